//! Handles the runtime's calls: parses requests, calls the node, encodes answers. It uses
//! only the events of pod sandboxes, and the creation of containers, because a claim may
//! be prepared for a pod only then.

use crate::claims::preparer::Preparer;
use crate::kernel::memlock;
use crate::model::plan::Plan;
use crate::prepare::cdi;
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use crate::prepare::metrics::Method;
use crate::prepare::sandboxes::{Inside, Sandbox};
use crate::publish::claim_status::Progress;
use crate::runtime::nri::session::{Answer, Call};
use crate::runtime::nri::wire::nri::{
    ConfigureRequest, ConfigureResponse, Container, ContainerAdjustment, CreateContainerRequest,
    CreateContainerResponse, Empty, Event, Mount, PodSandbox, PosixRlimit, RemovePodSandboxRequest,
    RunPodSandboxRequest, StateChangeEvent, StopPodSandboxRequest, SynchronizeRequest,
    SynchronizeResponse,
};
use process::chain::Chain;
use prost::Message;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// The events that the plugin subscribes to.
const EVENTS: [Event; 4] =
    [Event::RunPodSandbox, Event::StopPodSandbox, Event::RemovePodSandbox, Event::CreateContainer];

/// The plugin's state in one session.
pub(super) struct SandboxPlugin {
    node: Arc<LocalPreparer>,
    preparer: Preparer,
    /// The parts of a sandbox list received so far.
    listed: Vec<Sandbox>,
    /// A complete list that has not been applied yet.
    due: Option<Vec<Sandbox>>,
}

impl SandboxPlugin {
    pub(super) fn new(node: Arc<LocalPreparer>, preparer: Preparer) -> Self {
        Self { node, preparer, listed: Vec::new(), due: None }
    }

    /// The plugin's name.
    pub(super) fn name(&self) -> &str {
        &self.node.effects.paths.driver
    }

    /// Answers one call.
    pub(super) async fn answer(&mut self, call: &Call) -> Answer {
        let payload = &call.payload[..];
        match call.method.as_str() {
            "Configure" => Ok(configure(&read(payload)?)),
            "Synchronize" => Ok(self.synchronize(read(payload)?)),
            "RunPodSandbox" => {
                let RunPodSandboxRequest { pod } = read(payload)?;
                self.run(pod).await
            }
            "StopPodSandbox" => {
                let StopPodSandboxRequest { pod } = read(payload)?;
                self.stop(pod).await
            }
            "RemovePodSandbox" => {
                let RemovePodSandboxRequest { pod } = read(payload)?;
                self.stop(pod).await
            }
            "CreateContainer" => self.create(read(payload)?).await,
            "StateChange" => self.state_change(read(payload)?).await,
            // Other calls are not subscribed to; an empty answer is enough.
            _ => Ok(nothing()),
        }
    }

    /// Applies a list of sandboxes after it was answered: the runtime waits at most two
    /// seconds and ignores the result.
    pub(super) async fn settle(&mut self) {
        let Some(sandboxes) = self.due.take() else { return };
        tracing::info!(sandboxes = sandboxes.len(), "Synchronizing with the container runtime");
        let settled = self.on_node(move |node| node.synchronize(&sandboxes)).await;
        match settled {
            Ok(plans) => self.publish(plans),
            Err(error) => tracing::warn!(error, "Failed to synchronize with the container runtime"),
        }
    }

    fn synchronize(&mut self, request: SynchronizeRequest) -> Vec<u8> {
        let SynchronizeRequest { pods, more } = request;
        self.listed.extend(pods.into_iter().map(Sandbox::from));
        if !more {
            self.due = Some(std::mem::take(&mut self.listed));
        }
        SynchronizeResponse { more }.encode_to_vec()
    }

    async fn run(&self, pod: Option<PodSandbox>) -> Answer {
        let sandbox = Sandbox::from(pod.unwrap_or_default());
        let plans = self.timed(Method::Attach, move |node| node.run_sandbox(&sandbox)).await?;
        self.publish(plans);
        Ok(nothing())
    }

    async fn stop(&self, pod: Option<PodSandbox>) -> Answer {
        let sandbox = Sandbox::from(pod.unwrap_or_default());
        self.timed(Method::Detach, move |node| node.stop_sandbox(&sandbox)).await?;
        Ok(nothing())
    }

    async fn create(&self, request: CreateContainerRequest) -> Answer {
        let CreateContainerRequest { pod, container } = request;
        let sandbox = Sandbox::from(pod.unwrap_or_default());
        let container = container.unwrap_or_default();
        let devices = container.cdi_devices.iter().map(|device| device.name.clone());
        let devices: Vec<String> = devices.collect();
        if !devices.iter().any(|device| self.node.is_ours(device)) {
            return Ok(nothing());
        }
        let Inside { claims, shareable, has_rdma, moved } = self
            .timed(Method::Attach, move |node| node.create_container(&sandbox, &devices))
            .await?;
        self.publish(moved);
        let locks = has_rdma && self.node.effects.settings.locked_memory;
        let unmounted = if has_own_users(&container) { claims } else { shareable };
        Ok(adjustment(&unmounted, locks))
    }

    /// Handles sandbox events of runtimes before NRI 0.10.
    async fn state_change(&self, event: StateChangeEvent) -> Answer {
        match event.event() {
            Event::RunPodSandbox => self.run(event.pod).await,
            Event::StopPodSandbox | Event::RemovePodSandbox => self.stop(event.pod).await,
            Event::Unknown | Event::CreateContainer => Ok(nothing()),
        }
    }

    fn publish(&self, plans: Vec<Plan>) {
        for plan in plans {
            self.preparer.publish_status(plan, Progress::Attached);
        }
    }

    async fn timed<T: Send + 'static>(
        &self,
        method: Method,
        work: impl FnOnce(&LocalPreparer) -> Result<T, PrepareError> + Send + 'static,
    ) -> Result<T, String> {
        let begin = Instant::now();
        let done = self.on_node(work).await;
        self.node.metrics.observe(method, done.is_ok(), begin.elapsed());
        if let Err(error) = &done {
            tracing::warn!(error, "Reported a failure to the container runtime");
        }
        done
    }

    async fn on_node<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LocalPreparer) -> Result<T, PrepareError> + Send + 'static,
    ) -> Result<T, String> {
        self.preparer.on_node(work).await.map_err(|error| Chain(&error).to_string())
    }
}

fn configure(request: &ConfigureRequest) -> Vec<u8> {
    let ConfigureRequest { runtime_name, runtime_version, request_timeout } = request;
    tracing::info!(runtime_name, runtime_version, request_timeout, "Configured by NRI");
    // One bit for each event, starting with the first (`EventMask.Set`).
    let events = EVENTS.iter().fold(0, |mask, event| mask | (1 << (*event as i32 - 1)));
    ConfigureResponse { events }.encode_to_vec()
}

/// Whether the container has a user namespace. The CDI library asks for each mount of such a container with
/// mapped user IDs (`withIDMapForBindMount`), which the kernel does not do for network namespaces.
fn has_own_users(container: &Container) -> bool {
    let mut namespaces = container.linux.iter().flat_map(|linux| &linux.namespaces);
    namespaces.any(|namespace| namespace.r#type == "user")
}

/// Removes the mounts for which the container waits, of these claims. Their interfaces are there.
///
/// Also lifts the limit of locked memory, if the container may lock its memory.
fn adjustment(unmounted: &[String], locks: bool) -> Vec<u8> {
    if unmounted.is_empty() && !locks {
        return nothing();
    }
    // A minus sign marks what is removed (`MarkForRemoval`).
    let mounts = unmounted
        .iter()
        .map(|uid| Mount { destination: format!("-{}", cdi::network(uid)) })
        .collect();
    let rlimits = locks.then(unlimited).into_iter().collect();
    CreateContainerResponse { adjust: Some(ContainerAdjustment { mounts, rlimits }) }
        .encode_to_vec()
}

/// `RLIM_INFINITY` for locked memory.
fn unlimited() -> PosixRlimit {
    PosixRlimit { r#type: memlock::NAME.to_owned(), hard: u64::MAX, soft: u64::MAX }
}

fn nothing() -> Vec<u8> {
    Empty {}.encode_to_vec()
}

fn read<M: Message + Default>(payload: &[u8]) -> Result<M, String> {
    M::decode(payload).map_err(|error| format!("malformed request: {error}"))
}

impl From<PodSandbox> for Sandbox {
    fn from(pod: PodSandbox) -> Self {
        let PodSandbox { id, name, uid, namespace, linux, pid } = pod;
        let namespaces = linux.unwrap_or_default().namespaces.into_iter();
        let mut networks = namespaces.filter(|namespace| namespace.r#type == "network");
        let network = networks.next().map(|namespace| namespace.path);
        Self {
            id,
            pod_uid: uid,
            pod: format!("{namespace}/{name}"),
            network: network.filter(|path| !path.is_empty()).map(PathBuf::from),
            is_running: pid != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::nri::wire::nri::{LinuxContainer, LinuxNamespace, LinuxPodSandbox};

    #[test]
    fn pod_and_container_events_are_subscribed_to() {
        let answer = configure(&ConfigureRequest::default());
        let ConfigureResponse { events } = ConfigureResponse::decode(&answer[..]).unwrap();
        assert_eq!(events, 0b1111);
    }

    #[test]
    fn a_container_has_a_user_namespace() {
        let namespace =
            |kind: &str| LinuxNamespace { r#type: kind.to_owned(), path: "/proc/7/ns".to_owned() };
        let with = |kinds: &[&str]| {
            let namespaces = kinds.iter().map(|kind| namespace(kind)).collect();
            Container { linux: Some(LinuxContainer { namespaces }), ..Container::default() }
        };
        assert!(has_own_users(&with(&["network", "user"])));
        assert!(!has_own_users(&with(&["network"])));
        assert!(!has_own_users(&Container::default()));
    }

    #[test]
    fn mounts_are_removed() {
        let answer = adjustment(&["u-1".to_owned(), "u-2".to_owned()], false);
        let response = CreateContainerResponse::decode(&answer[..]).unwrap();
        let mounts = response.adjust.unwrap().mounts;
        let removed: Vec<_> = mounts.iter().map(|mount| mount.destination.as_str()).collect();
        assert_eq!(removed, ["-/etc/dranet/network/u-1", "-/etc/dranet/network/u-2"]);
        assert_eq!(adjustment(&[], false), nothing());
    }

    #[test]
    fn the_limit_of_locked_memory_is_lifted_with_an_rdma_device() {
        let answer = adjustment(&[], true);
        let response = CreateContainerResponse::decode(&answer[..]).unwrap();
        let ContainerAdjustment { mounts, rlimits } = response.adjust.unwrap();
        assert_eq!((mounts, rlimits), (vec![], vec![unlimited()]));
    }

    #[test]
    fn a_sandbox_has_the_network_that_its_specification_names() {
        let namespace = |kind: &str, path: &str| LinuxNamespace {
            r#type: kind.to_owned(),
            path: path.to_owned(),
        };
        let pod = |namespaces| PodSandbox {
            id: "s-1".to_owned(),
            name: "user".to_owned(),
            uid: "p-1".to_owned(),
            namespace: "team".to_owned(),
            linux: Some(LinuxPodSandbox { namespaces }),
            pid: 7,
        };
        let own = vec![namespace("ipc", ""), namespace("network", "/run/netns/cni-1")];
        let sandbox = Sandbox::from(pod(own));
        assert_eq!(sandbox.network, Some("/run/netns/cni-1".into()));
        assert_eq!((sandbox.pod.as_str(), sandbox.is_running), ("team/user", true));
        assert_eq!(Sandbox::from(pod(vec![namespace("ipc", "")])).network, None);
        assert_eq!(Sandbox::from(pod(vec![namespace("network", "")])).network, None);
    }
}
