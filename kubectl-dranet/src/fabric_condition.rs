//! What fabric-controller wrote to a pod about its group.

use cluster_model::names::CONDITION_FABRIC;
use serde_json::Value;

/// Why the pod's group waits for a fabric, in the words of the pod's condition.
pub(crate) fn why_waiting(pod: &Value) -> Option<&str> {
    let mut conditions = pod["status"]["conditions"].as_array()?.iter();
    let of_fabric =
        conditions.find(|it| it["type"] == CONDITION_FABRIC && it["status"] == "False")?;
    of_fabric["message"].as_str()
}
