//! Refuses pods that are too large: those that kube-apiserver refuses after the webhooks, and those
//! with more selectors than a plan should depend on. A request may have three megabytes, and a dry
//! run costs its sender nothing.

use serde_json::Value;

/// The maximum size of all annotations in bytes, keys included (`TotalAnnotationSizeLimitB` of
/// `k8s.io/apimachinery`).
const ANNOTATIONS_MAX: usize = 256 << 10;

/// The longest key of an annotation in bytes: a DNS subdomain, a slash and a name
/// (`IsQualifiedName` of `k8s.io/apimachinery`).
const KEY_MAX: usize = 253 + 1 + 63;

/// The maximum size of the node selector and the node affinity in bytes, as JSON. Kubernetes has no
/// such limit. Every node is compared with all of it, and plans are remembered by it.
const PLACEMENT_MAX: usize = 256 << 10;

/// A pod is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// Its annotations.
    #[error(
        "the annotations of the pod have {0} bytes; Kubernetes allows {ANNOTATIONS_MAX} in all"
    )]
    Annotations(usize),
    /// The key of an annotation.
    #[error("the key of an annotation has {0} bytes; Kubernetes allows {KEY_MAX}")]
    Key(usize),
    /// Its node selector and node affinity.
    #[error(
        "the node selector and node affinity of the pod have {0} bytes; dranet.io/aligned-nics \
         allows {PLACEMENT_MAX}: select nodes by fewer labels"
    )]
    Placement(usize),
}

/// Checks the sizes of a pod, before anything else reads it.
pub(crate) fn check(pod: &Value) -> Result<(), TooLarge> {
    let annotations = pod["metadata"]["annotations"].as_object();
    let mut total: usize = 0;
    for (key, value) in annotations.into_iter().flatten() {
        if key.len() > KEY_MAX {
            return Err(TooLarge::Key(key.len()));
        }
        total = total.saturating_add(key.len() + value.as_str().map_or(0, str::len));
    }
    if total > ANNOTATIONS_MAX {
        return Err(TooLarge::Annotations(total));
    }
    let spec = &pod["spec"];
    let placement = size(&spec["nodeSelector"]) + size(&spec["affinity"]["nodeAffinity"]);
    if placement > PLACEMENT_MAX {
        return Err(TooLarge::Placement(placement));
    }
    Ok(())
}

/// The size of a value as JSON, without escapes.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => text.len() + 3,
        Value::Array(values) => 2 + values.iter().map(size).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_kubernetes_refuses_is_refused_first() {
        let annotated = |key: &str, bytes: usize| json!({"metadata": {"annotations": {key: "x".repeat(bytes)}}});
        let key = "dranet.io/aligned-nics";
        assert_eq!(check(&annotated(key, ANNOTATIONS_MAX - key.len())), Ok(()));
        let over = ANNOTATIONS_MAX + 1;
        assert_eq!(check(&annotated(key, over - key.len())), Err(TooLarge::Annotations(over)));
        let long = format!("dranet.io/{}", "a".repeat(2_500_000));
        assert_eq!(check(&annotated(&long, 1)), Err(TooLarge::Key(long.len())));
    }

    #[test]
    fn a_placement_is_small() {
        let affine = |values: usize| {
            let values: Vec<_> = (0..values).map(|number| format!("node-{number}")).collect();
            let expression = json!({"key": "a", "operator": "In", "values": values});
            let term = json!({"matchExpressions": [expression]});
            let required = json!({"nodeSelectorTerms": [term]});
            let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
            json!({"spec": {"affinity": {"nodeAffinity": affinity}}})
        };
        assert_eq!(check(&affine(5_000)), Ok(()));
        assert!(matches!(check(&affine(200_000)), Err(TooLarge::Placement(2_000_000..))));
    }
}
