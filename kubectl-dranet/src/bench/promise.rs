//! The rates of the links of a pod's NICs.

use crate::answer::{BenchEnd, BenchNic};
use cluster_model::names::attribute;
use cluster_model::node_devices::{NodeDevices, int};
use cluster_model::room::pod_claims;
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::Pod;
use topology_graph::Topology;

/// Gigabits in a megabyte.
const MEGABYTE: f64 = 8.0 / 1e3;

/// Which NICs of a pod a test uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uses {
    First,
    All,
}

impl BenchEnd {
    /// The end of a pod that has its devices.
    pub(crate) fn new(pod: &Pod, view: &ClusterView) -> Self {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let known = Self { node: node.clone(), ..Self::default() };
        let (Ok(claims), Some(devices)) = (pod_claims(pod, view), NodeDevices::new(view, &node))
        else {
            return known;
        };
        let held: Vec<_> = claims.allocated.iter().flat_map(|key| view.held_by(key)).collect();
        // The graph of the shape is shared; how links run is each node's own.
        let own = view.node_topology(&node).and_then(|it| Topology::from_spec(&it.spec).ok());
        let gpus = devices.gpus.iter().filter(|(_, gpu)| held.contains(&gpu.id()));
        let gpus: Vec<_> = gpus.collect();
        let nics = devices.nics.iter().filter(|(_, nic)| held.contains(&nic.id()));
        let nics = nics.map(|(address, nic)| BenchNic {
            name: nic.id().device.to_string(),
            path: gpus.iter().map(|(gpu, _)| devices.topology.path(**gpu, *address)).min(),
            port_gbps: int(nic, attribute::RATE_GBPS).map(gbps),
            pcie_gbps: own
                .as_ref()
                .and_then(|own| own.nic(*address)?.current_link)
                .map(|link| f64::from(link.megabytes_per_second()) * MEGABYTE),
        });
        let names = gpus.iter().map(|(_, gpu)| gpu.id().device.to_string());
        Self { gpus: names.collect(), nics: nics.collect(), ..known }
    }

    /// What the NICs that a test uses can carry together; `None` if a rate is unknown.
    fn rate(&self, uses: Uses) -> Option<f64> {
        let count = if uses == Uses::First { 1 } else { self.nics.len() };
        let rates: Option<Vec<f64>> = self.nics.iter().take(count).map(BenchNic::least).collect();
        rates.filter(|rates| !rates.is_empty()).map(|rates| rates.iter().sum())
    }
}

impl BenchNic {
    /// The rate of its slowest link.
    fn least(&self) -> Option<f64> {
        self.port_gbps.into_iter().chain(self.pcie_gbps).min_by(f64::total_cmp)
    }
}

#[allow(clippy::cast_precision_loss, reason = "rates are below a million")]
fn gbps(rate: i64) -> f64 {
    rate as f64
}

/// What the slower end can carry; `None` if no rate is known.
pub(crate) fn promised(ends: &[BenchEnd; 2], uses: Uses) -> Option<f64> {
    ends.iter().filter_map(|end| end.rate(uses)).min_by(f64::total_cmp)
}
