//! The containers of a pod.

use serde_json::Value;

pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["containers"].as_array().into_iter().flatten()
}

/// Includes init containers: their requests must be removed, and they use the pod's devices.
pub(crate) fn containers_mut(pod: &mut Value) -> impl Iterator<Item = &mut Value> {
    let spec = pod["spec"].as_object_mut().into_iter().flatten();
    let all = spec.filter(|(field, _)| ["containers", "initContainers"].contains(&field.as_str()));
    all.filter_map(|(_, list)| list.as_array_mut()).flatten()
}
