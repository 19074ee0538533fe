//! Environment variables that name NICs of one node. On another node, or with other NICs of the same
//! node, such a list hides the NICs of the claim.

use crate::containers::containers_mut;
use crate::note::{Note, note};
use serde_json::Value;

/// Lists of RDMA devices. The driver tells containers their NICs by the first two.
const LISTS: [&str; 4] =
    ["NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST", "NVSHMEM_HCA_PE_MAPPING"];
/// Interfaces for connections that do not need RDMA.
const INTERFACES: [&str; 3] = ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"];
/// Interfaces that every pod has.
const OF_PODS: [&str; 2] = ["eth0", "lo"];

/// Removes lists of devices from a pod's containers, and tells of each and of the other variables.
pub(crate) fn clean(pod: &mut Value, object: &Value, notes: &mut Vec<Note>) {
    for container in containers_mut(pod) {
        let name = container["name"].as_str().unwrap_or_default().to_owned();
        for text in in_command(container) {
            let text = format!(
                "the command of container `{name}` sets `{text}`: remove it, since a list of one \
                 node's NICs hides those of the claim; the driver sets it to these"
            );
            note(notes, object, text);
        }
        let Some(container) = container.as_object_mut() else { continue };
        let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) else {
            continue;
        };
        variables.retain(|variable| {
            let key = variable["name"].as_str().unwrap_or_default();
            let value = variable["value"].as_str().unwrap_or("…");
            if LISTS.contains(&key) {
                let text = format!(
                    "`{key}={value}` of container `{name}` is removed: a list of one node's NICs hides \
                     those of the claim, of which the driver tells the container"
                );
                note(notes, object, text);
                return false;
            }
            if INTERFACES.contains(&key) && names_interface_of_host(value) {
                let text = format!(
                    "`{key}={value}` of container `{name}` stays: check that the pod has this \
                     interface; its own network is `eth0`"
                );
                note(notes, object, text);
            }
            true
        });
        if variables.is_empty() {
            container.remove("env");
        }
    }
}

/// Whether a list of interfaces has one that not every pod has. With `^` it lists what is not used.
fn names_interface_of_host(value: &str) -> bool {
    let mut names = value.trim_start_matches('=').split(',');
    !value.starts_with('^') && names.any(|name| !OF_PODS.contains(&name))
}

/// The lists of devices that a container's command sets, as `mpirun -x NCCL_IB_HCA=…` does.
fn in_command(container: &Value) -> Vec<&'static str> {
    let words = ["command", "args"].map(|field| container[field].to_string());
    let is_set = |list: &&str| words.iter().any(|text| text.contains(&format!("{list}=")));
    LISTS.into_iter().filter(is_set).collect()
}
