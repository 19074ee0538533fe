//! Pods that use the NICs of their host without a device plugin: they share its network, are
//! privileged, or mount `/dev/infiniband`.

use crate::containers::{containers, containers_mut};
use serde_json::Value;

/// The folder of RDMA devices.
const DEVICES: &str = "/dev/infiniband";
/// The DNS policy that pods of the host's network need.
const HOST_DNS: &str = "ClusterFirstWithHostNet";

/// By what a pod reaches the NICs of its host.
pub(crate) struct HostAccess {
    pub(crate) is_privileged: bool,
    shares_network: bool,
    /// Names of volumes with the device files.
    volumes: Vec<String>,
}

impl HostAccess {
    pub(crate) fn of(pod: &Value) -> Self {
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        Self {
            is_privileged: containers(pod)
                .any(|container| container["securityContext"]["privileged"] == true),
            shares_network: pod["spec"]["hostNetwork"] == true,
            volumes: volumes
                .filter(|volume| volume["hostPath"]["path"].as_str().is_some_and(is_of_devices))
                .filter_map(|volume| volume["name"].as_str().map(str::to_owned))
                .collect(),
        }
    }

    /// Whether the pod reaches the NICs. Many privileged pods of the host's network have nothing to
    /// do with NICs; those with GPUs have.
    pub(crate) fn reaches_nics(&self, gpus: u64) -> bool {
        !self.volumes.is_empty() || (self.is_privileged && self.shares_network && gpus > 0)
    }

    /// The fields that give the access.
    pub(crate) fn described(&self) -> String {
        let fields = [
            self.shares_network.then(|| "`hostNetwork`".to_owned()),
            self.is_privileged.then(|| "`privileged`".to_owned()),
        ];
        let volumes = self.volumes.iter().map(|name| format!("the volume `{name}`"));
        fields.into_iter().flatten().chain(volumes).collect::<Vec<_>>().join(", ")
    }

    /// Removes the volumes with device files: a claim gives a container the files of its NICs.
    /// Returns what was removed.
    pub(crate) fn remove_volumes(&self, pod: &mut Value) -> Vec<String> {
        remove_items(&mut pod["spec"], "volumes", |volume| self.has_volume(volume));
        for container in containers_mut(pod) {
            remove_items(container, "volumeMounts", |mount| self.has_volume(mount));
        }
        self.volumes.iter().map(|name| format!("the volume `{name}`")).collect()
    }

    /// Whether a volume, or the mount of one, has the device files.
    fn has_volume(&self, item: &Value) -> bool {
        self.volumes.iter().any(|volume| item["name"] == volume.as_str())
    }

    /// Gives the pod a network of its own: interfaces of claims cannot move into the host's network,
    /// where they are already. Returns what was removed.
    pub(crate) fn leave_network(&self, pod: &mut Value) -> Option<&'static str> {
        let spec = pod["spec"].as_object_mut().filter(|_| self.shares_network)?;
        spec.remove("hostNetwork");
        if spec.get("dnsPolicy").is_some_and(|policy| policy == HOST_DNS) {
            spec.remove("dnsPolicy");
            return Some("`hostNetwork` and its `dnsPolicy`");
        }
        Some("`hostNetwork`")
    }
}

/// Whether a path of the host has RDMA devices.
fn is_of_devices(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    path == "/dev" || path == DEVICES || path.starts_with("/dev/infiniband/")
}

/// Removes items of a list, and the list if it becomes empty.
fn remove_items(object: &mut Value, field: &str, is_removed: impl Fn(&Value) -> bool) {
    let Some(object) = object.as_object_mut() else { return };
    let Some(list) = object.get_mut(field).and_then(Value::as_array_mut) else { return };
    list.retain(|item| !is_removed(item));
    if list.is_empty() {
        object.remove(field);
    }
}
