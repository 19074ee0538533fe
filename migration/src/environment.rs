//! Environment variables that name NICs or interfaces of one node.

use crate::containers::containers_mut;
use crate::note::{Note, note};
use cluster_model::nic_lists::{NicList, list};
use serde_json::Value;

/// Interfaces for connections that do not need RDMA.
const INTERFACES: [&str; 3] = ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"];
/// Interfaces that every pod has.
const OF_PODS: [&str; 2] = ["eth0", "lo"];

/// Removes lists of NICs from a pod's containers, and tells of each and of the other variables.
pub(crate) fn clean(pod: &mut Value, object: &Value, notes: &mut Vec<Note>) {
    for container in containers_mut(pod) {
        let name = container["name"].as_str().unwrap_or_default().to_owned();
        for list in NicList::of(container) {
            if let Some(text) = told(&list, &name) {
                note(notes, object, text);
            }
        }
        let Some(container) = container.as_object_mut() else { continue };
        let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) else {
            continue;
        };
        variables.retain(|variable| {
            let key = variable["name"].as_str().unwrap_or_default();
            let value = variable["value"].as_str().unwrap_or("…");
            if list(key).is_some() {
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

/// What becomes of a list of a container.
fn told(list: &NicList, container: &str) -> Option<String> {
    let NicList { variable, value, in_command } = list;
    if *in_command {
        return list.names_nics().then(|| {
            format!(
                "the command of container `{container}` sets `{variable}={value}`: remove it, since it hides \
                 the NICs of the claim"
            )
        });
    }
    let why = if list.is_replaced() {
        "the driver sets it to the NICs of the claim"
    } else {
        "it hides the NICs of the claim"
    };
    Some(format!("`{variable}={value}` of container `{container}` is removed: {why}"))
}
