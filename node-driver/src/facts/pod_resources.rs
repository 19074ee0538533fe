//! Asks the kubelet which devices its device plugins gave to pods: the service `PodResourcesLister`
//! of `k8s.io/kubelet/pkg/apis/podresources/v1`, by its socket below the kubelet's directory.
//!
//! The kubelet gives a pod its devices while it admits it (`HandlePodAdditions`, `AddPod` of the
//! allocation manager), before its worker prepares claims (`SyncPod`), and holds no lock while it
//! calls a DRA driver. So the list has the devices of a pod whose claim is being prepared
//! (`pkg/kubelet` of Kubernetes 1.34 to 1.37).

mod connection;
pub mod wire;

use crate::facts::pod_resources::wire::v1::ListPodResourcesRequest;
use crate::facts::pod_resources::wire::v1::PodResources;
use crate::facts::pod_resources::wire::v1::pod_resources_lister_client::PodResourcesListerClient;
use connection::Connection;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The socket below the kubelet's directory.
const SOCKET: &str = "pod-resources/kubelet.sock";

/// Longest wait for the kubelet's answer; below its own limit for a DRA driver of 45 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest answer. A device plugin may list any number of short IDs, and each takes ten times its
/// size in memory, which the driver's container must have. 250 pods, each with 16 devices whose IDs have
/// 64 characters, take a third of it.
const MOST_BYTES: usize = 1 << 20;

/// A device that a device plugin gave a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginDevice {
    /// The extended resource, `nvidia.com/gpu`.
    pub resource: String,
    /// The ID that its device plugin chose.
    pub id: String,
}

/// The devices of one pod, and of all others of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDevices {
    /// Those of the pod.
    pub own: Vec<PluginDevice>,
    /// Those of other pods.
    pub others: Vec<PluginDevice>,
}

/// The kubelet did not say which devices a pod has.
#[derive(Debug, thiserror::Error)]
pub enum PodResourcesError {
    /// The socket could not be reached.
    #[error(
        "failed to ask the kubelet by `{}` which GPUs the pod has; is the directory mounted into the driver's pod?", path.display()
    )]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The kubelet refused.
    #[error("failed to ask the kubelet which GPUs the pod has")]
    List {
        /// The cause.
        source: Box<tonic::Status>,
    },
    /// The kubelet did not answer in time.
    #[error(
        "the kubelet did not say within {} s which GPUs the pod has; the driver tries again",
        PATIENCE.as_secs()
    )]
    Late,
    /// The kubelet has no pod of this name, or an ended and a new one.
    #[error(
        "the kubelet lists {found} pods named `{pod}`, so it is not known which GPUs the pod has; the driver tries again"
    )]
    Pods {
        /// Namespace and name of the pod.
        pod: String,
        /// How many it lists.
        found: usize,
    },
}

/// Reads the devices of a pod.
pub async fn read(
    kubelet: &Path,
    namespace: &str,
    name: &str,
) -> Result<PodDevices, PodResourcesError> {
    let path = kubelet.join(SOCKET);
    let listed = tokio::time::timeout(PATIENCE, list(&path)).await;
    split(listed.unwrap_or(Err(PodResourcesError::Late))?, namespace, name)
}

async fn list(path: &Path) -> Result<Vec<PodResources>, PodResourcesError> {
    let opened = Connection::open(path).await;
    let connection =
        opened.map_err(|source| PodResourcesError::Connect { path: path.to_owned(), source })?;
    let listed = PodResourcesListerClient::with_origin(connection, Connection::origin())
        .max_decoding_message_size(MOST_BYTES)
        .list(ListPodResourcesRequest {})
        .await;
    Ok(listed
        .map_err(|source| PodResourcesError::List { source: Box::new(source) })?
        .into_inner()
        .pod_resources)
}

/// Divides the list. It has no UIDs, so a name must be there once.
fn split(
    pods: Vec<PodResources>,
    namespace: &str,
    name: &str,
) -> Result<PodDevices, PodResourcesError> {
    let (own, others): (Vec<_>, Vec<_>) =
        pods.into_iter().partition(|pod| pod.namespace == namespace && pod.name == name);
    if own.len() != 1 {
        let pod = format!("{namespace}/{name}");
        return Err(PodResourcesError::Pods { pod, found: own.len() });
    }
    Ok(PodDevices { own: devices(own), others: devices(others) })
}

/// Without repetitions and empty IDs, which a device plugin may list without number.
fn devices(pods: Vec<PodResources>) -> Vec<PluginDevice> {
    let containers = pods.into_iter().flat_map(|pod| pod.containers);
    let mut devices = Vec::new();
    for mut of_resource in containers.flat_map(|container| container.devices) {
        let resource = of_resource.resource_name;
        of_resource.device_ids.sort_unstable();
        of_resource.device_ids.dedup();
        let ids = of_resource.device_ids.into_iter().filter(|id| !id.is_empty());
        devices.extend(ids.map(|id| PluginDevice { resource: resource.clone(), id }));
    }
    devices.sort_unstable();
    devices.dedup();
    devices
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::pod_resources::wire::v1::{ContainerDevices, ContainerResources};

    fn pod(namespace: &str, name: &str, ids: &[&str]) -> PodResources {
        let devices = ContainerDevices {
            resource_name: "nvidia.com/gpu".to_owned(),
            device_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            topology: None,
        };
        let container = ContainerResources { devices: vec![devices], ..Default::default() };
        PodResources {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            containers: vec![container.clone(), container],
            ..Default::default()
        }
    }

    fn ids(devices: &[PluginDevice]) -> Vec<&str> {
        devices.iter().map(|device| device.id.as_str()).collect()
    }

    #[test]
    fn a_pods_devices_are_those_of_its_containers() {
        let all =
            [pod("a", "x", &["2", "", "1", "2", ""]), pod("b", "x", &["3"]), pod("a", "y", &["4"])];
        let found = split(all.to_vec(), "a", "x").unwrap();
        assert_eq!((ids(&found.own), ids(&found.others)), (vec!["1", "2"], vec!["3", "4"]));
        let twice = [pod("a", "x", &["1"]), pod("a", "x", &["2"])];
        for (pods, count) in [(&twice[..], 2), (&all[1..], 0)] {
            let refused = split(pods.to_vec(), "a", "x").unwrap_err();
            assert!(matches!(refused, PodResourcesError::Pods { found, .. } if found == count));
        }
    }
}
