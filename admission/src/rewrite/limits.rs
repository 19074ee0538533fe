//! Stores the GPU limits that a claim replaces on the pod: by container, as `{"nccl":
//! {"nvidia.com/gpu": "1"}}`.

use super::containers;
use crate::intent::GpuResources;
use serde_json::{Map, Value};

/// The limits on extended resources of GPUs as text, if there are any.
pub(super) fn text(pod: &Value, resources: &GpuResources) -> Option<String> {
    let mut pod = pod.clone();
    let mut kept = Map::new();
    for container in containers(&mut pod) {
        let Some(limits) = container["resources"]["limits"].as_object() else { continue };
        let ours = resources.names().filter_map(|name| Some((name, limits.get(name)?.clone())));
        let ours: Map<String, Value> =
            ours.map(|(name, amount)| (name.to_owned(), amount)).collect();
        if let (Some(name), false) = (container["name"].as_str(), ours.is_empty()) {
            kept.insert(name.to_owned(), ours.into());
        }
    }
    (!kept.is_empty()).then(|| Value::from(kept).to_string())
}

/// Restores stored limits; ignores malformed text.
pub(super) fn restore(pod: &mut Value, kept: &str, resources: &GpuResources) {
    let Ok(Value::Object(kept)) = serde_json::from_str::<Value>(kept) else { return };
    for container in containers(pod) {
        let name = container["name"].as_str().unwrap_or_default();
        let Some(limits) = kept.get(name).and_then(Value::as_object) else { continue };
        for resource in resources.names() {
            if let Some(amount) = limits.get(resource) {
                container["resources"]["limits"][resource] = amount.clone();
            }
        }
    }
}
