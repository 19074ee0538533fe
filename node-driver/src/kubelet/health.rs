//! Streams the health of the devices as complete lists, in both versions
//! (`dra-health/v1`, `v1alpha1`). The kubelet shows it in the pod's status; eviction is
//! the task of device taints.

use crate::kubelet::wire::{health_v1, health_v1alpha1};
use publication::nic::NicState;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::{Instant, interval_at};
use tokio_stream::wrappers::{IntervalStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use topology_graph::PortState;

/// How often the list is repeated if nothing changes. The kubelet treats a device as
/// unknown after 30 s without news (`DefaultHealthTimeout` in
/// `pkg/kubelet/cm/dra/healthinfo.go`).
const PERIOD: Duration = Duration::from_secs(10);

/// Longest message that the kubelet keeps, in bytes.
const MESSAGE_MAX: usize = 1024;

/// The health of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceHealth {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: String,
    /// Its state.
    pub state: HealthState,
    /// The reason, as human-readable text.
    pub message: String,
    /// When it was observed.
    pub at: SystemTime,
}

/// The states that the kubelet knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    /// Nothing is known.
    Unknown,
    /// It works.
    Healthy,
    /// It does not work.
    Unhealthy,
}

/// The health of all functions. A NIC is healthy while any of its ports is active, as for
/// the taint `dranet.io/port-down`, and its RDMA device answers. The health of a NIC
/// without RDMA is unknown.
pub fn device_health(
    nics: &[NicState],
    unresponsive: &BTreeSet<String>,
    pool: &str,
    at: SystemTime,
) -> Vec<DeviceHealth> {
    let functions = nics.iter().filter(|nic| nic.function.is_some() && nic.can_be_prepared());
    let devices = functions.map(|nic| {
        let (state, message) = state(nic, unresponsive);
        DeviceHealth { pool: pool.to_owned(), device: nic.name.clone(), state, message, at }
    });
    devices.collect()
}

fn state(nic: &NicState, unresponsive: &BTreeSet<String>) -> (HealthState, String) {
    let Some(rdma) = &nic.rdma else { return (HealthState::Unknown, String::new()) };
    if unresponsive.contains(&rdma.name) {
        return (HealthState::Unhealthy, format!("{} does not answer", rdma.name));
    }
    let inactive = rdma.ports.iter().filter(|port| port.state != Some(PortState::Active));
    let inactive: Vec<_> = inactive.map(|port| port.number.to_string()).collect();
    if inactive.is_empty() {
        return (HealthState::Healthy, String::new());
    }
    let message = format!("{}: port {} is not active", rdma.name, inactive.join(", "));
    let is_down = inactive.len() == rdma.ports.len();
    (if is_down { HealthState::Unhealthy } else { HealthState::Healthy }, message)
}

/// Adds the health of places that stand for a NIC, which is that of the NIC.
pub fn with_places<'p>(
    mut health: Vec<DeviceHealth>,
    places: impl Iterator<Item = (&'p String, &'p String)>,
) -> Vec<DeviceHealth> {
    let of_places: Vec<_> = places
        .filter_map(|(place, nic)| {
            let of_nic = health.iter().find(|health| health.device == *nic)?;
            Some(DeviceHealth { device: place.clone(), ..of_nic.clone() })
        })
        .collect();
    health.extend(of_places);
    health
}

/// The current list and its changes.
pub type Watched = watch::Receiver<Vec<DeviceHealth>>;

/// The service. Clones share its state.
#[derive(Clone)]
pub(super) struct HealthService {
    devices: Watched,
    stop: CancellationToken,
}

impl HealthService {
    pub(super) fn new(devices: Watched, stop: CancellationToken) -> Self {
        Self { devices, stop }
    }

    /// The list now, after each change, and again every [`PERIOD`]. The stream ends with
    /// the driver; otherwise it would delay its shutdown.
    fn lists(&self) -> impl Stream<Item = Vec<DeviceHealth>> + Send + use<> {
        let changes = WatchStream::new(self.devices.clone());
        let devices = self.devices.clone();
        let again = IntervalStream::new(interval_at(Instant::now() + PERIOD, PERIOD))
            .map(move |_| devices.borrow().clone());
        let stop = self.stop.clone();
        futures::StreamExt::take_until(changes.merge(again), stop.cancelled_owned())
    }
}

fn seconds(at: SystemTime) -> i64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn cut(message: &str) -> String {
    message[..message.floor_char_boundary(MESSAGE_MAX)].to_owned()
}

macro_rules! serve_version {
    ($version:ident) => {
        impl From<DeviceHealth> for $version::DeviceHealth {
            fn from(health: DeviceHealth) -> Self {
                let DeviceHealth { pool, device, state, message, at } = health;
                let state = match state {
                    HealthState::Unknown => $version::HealthStatus::Unknown,
                    HealthState::Healthy => $version::HealthStatus::Healthy,
                    HealthState::Unhealthy => $version::HealthStatus::Unhealthy,
                };
                Self {
                    device: Some($version::DeviceIdentifier {
                        pool_name: pool,
                        device_name: device,
                    }),
                    health: state.into(),
                    last_updated_time: seconds(at),
                    // 0 selects the kubelet's default.
                    health_check_timeout_seconds: 0,
                    message: cut(&message),
                }
            }
        }

        #[tonic::async_trait]
        impl $version::dra_resource_health_server::DraResourceHealth for HealthService {
            type NodeWatchResourcesStream = Pin<
                Box<dyn Stream<Item = Result<$version::NodeWatchResourcesResponse, Status>> + Send>,
            >;

            async fn node_watch_resources(
                &self,
                _: Request<$version::NodeWatchResourcesRequest>,
            ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
                let lists = self.lists().map(|list| {
                    let devices = list.into_iter().map(Into::into).collect();
                    Ok($version::NodeWatchResourcesResponse { devices })
                });
                Ok(Response::new(Box::pin(lists)))
            }
        }
    };
}

serve_version!(health_v1);
serve_version!(health_v1alpha1);

#[cfg(test)]
mod tests {
    use super::*;
    use publication::live::{function, rdma_device};
    use topology_graph::{LinkLayer, RdmaPort};

    #[test]
    fn a_nic_works_while_any_of_its_ports_is_active() {
        for (inactive, expected, message) in [
            (&[][..], HealthState::Healthy, ""),
            (&[2], HealthState::Healthy, "mlx4_0: port 2 is not active"),
            (&[1, 2], HealthState::Unhealthy, "mlx4_0: port 1, 2 is not active"),
        ] {
            let mut rdma =
                rdma_device("mlx4_0", LinkLayer::InfiniBand, ["uverbs0", "umad0", "issm0"]);
            rdma.ports.push(RdmaPort { number: 2, ..rdma.ports[0].clone() });
            for port in rdma.ports.iter_mut().filter(|port| inactive.contains(&port.number)) {
                port.state = Some(PortState::Down);
            }
            let function = Some(function("0000:01:00.0"));
            let nic = NicState { function, rdma: Some(rdma), ..NicState::default() };
            let nics = [nic];
            let health = device_health(&nics, &BTreeSet::new(), "node", SystemTime::UNIX_EPOCH);
            assert_eq!((health[0].state, health[0].message.as_str()), (expected, message));
            let silent = BTreeSet::from(["mlx4_0".to_owned()]);
            let health = device_health(&nics, &silent, "node", SystemTime::UNIX_EPOCH);
            assert_eq!(health[0].state, HealthState::Unhealthy);
            assert_eq!(health[0].message, "mlx4_0 does not answer");
        }
    }
}
