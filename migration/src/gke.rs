//! Networks that GKE gives to pods (`networking.gke.io/interfaces`): with its type `Device`, each is one
//! NIC of the node.

use crate::note::{Note, note};
use cluster_model::nic_plugins::is_nics;
use serde_json::Value;

/// The interfaces of a pod, a list in JSON with the network of each.
const INTERFACES: &str = "networking.gke.io/interfaces";
/// The interface of the default route.
const DEFAULT_INTERFACE: &str = "networking.gke.io/default-interface";
/// The network that every pod has.
const DEFAULT_NETWORK: &str = "default";
/// The prefix of the resources by which GKE counts NICs, and addresses of NICs (with `.IP`).
const PREFIX: &str = "networking.gke.io.networks/";

/// The resources of the networks that are NICs. GKE adds limits on them to the pod.
pub(crate) fn resources(pod: &Value) -> Vec<String> {
    let interfaces = interfaces(pod).unwrap_or_default();
    interfaces.iter().map(resource).filter(|resource| is_nics(resource)).collect()
}

/// Whether a resource is addresses, of which each of a network's NICs needs one.
pub(crate) fn is_addresses(resource: &str) -> bool {
    resource.strip_prefix(PREFIX).is_some_and(|network| network.strip_suffix(".IP").is_some())
}

/// Removes the networks that are NICs.
pub(crate) fn remove(pod: &mut Value, object: &Value, notes: &mut Vec<Note>) {
    let Some(mut kept) = interfaces(pod) else { return };
    let before = kept.len();
    kept.retain(|interface| !is_nics(&resource(interface)));
    let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() else { return };
    if kept.len() == before {
        return;
    }
    if kept.iter().all(|interface| interface["network"] == DEFAULT_NETWORK) {
        annotations.remove(INTERFACES);
        annotations.remove(DEFAULT_INTERFACE);
    } else {
        annotations.insert(INTERFACES.to_owned(), Value::Array(kept).to_string().into());
    }
    note(
        notes,
        object,
        format!(
            "the networks of `{INTERFACES}` that are NICs are removed, since the claim gives the pod \
             its NICs with the names that they have on the node"
        ),
    );
}

fn interfaces(pod: &Value) -> Option<Vec<Value>> {
    let text = pod["metadata"]["annotations"][INTERFACES].as_str()?;
    serde_json::from_str(text).ok()
}

fn resource(interface: &Value) -> String {
    format!("{PREFIX}{}", interface["network"].as_str().unwrap_or_default())
}
