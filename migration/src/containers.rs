//! Pods in objects, and their containers.

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

/// Collects all pods and pod templates in the object.
pub(crate) fn pod_templates<'v>(value: &'v mut Value, found: &mut Vec<&'v mut Value>) {
    if value["spec"]["containers"].is_array() {
        found.push(value);
        return;
    }
    let inner: Vec<&'v mut Value> = match value {
        Value::Object(map) => map.values_mut().collect(),
        Value::Array(list) => list.iter_mut().collect(),
        _ => return,
    };
    for value in inner {
        pod_templates(value, found);
    }
}

/// The limits of a container that are integers.
pub(crate) fn amounts(container: &Value) -> Vec<(String, u64)> {
    let amounts = container["resources"]["limits"].as_object().into_iter().flatten();
    amounts
        .filter_map(|(name, value)| {
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
            Some((name.clone(), number))
        })
        .collect()
}
