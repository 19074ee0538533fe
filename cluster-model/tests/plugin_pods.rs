//! The pods that have GPUs of a device plugin, by their limits.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cluster_model::view::{ClusterView, Index, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

fn apply(view: &mut ClusterView, spec: &Value, phase: &str) -> (u64, bool) {
    let before = view.node_version("a");
    let pod = json!({
        "metadata": { "namespace": "team", "name": "train" },
        "spec": spec, "status": { "phase": phase },
    });
    view.apply(serde_json::from_value::<Pod>(pod).unwrap()).unwrap();
    let units = view.plugin_pods("a", "nvidia.com/gpu").map(|(_, units)| units).sum();
    (units, view.node_version("a") != before)
}

#[test]
fn pods_have_their_gpus_until_they_end() {
    let gpus =
        |gpus: &str| json!({ "name": "c", "resources": { "limits": { "nvidia.com/gpu": gpus } } });
    let two = json!({ "nodeName": "a", "containers": [gpus("1"), gpus("1")] });
    let init = json!({
        "nodeName": "a", "containers": [gpus("1")],
        "initContainers": [
            { "name": "s", "restartPolicy": "Always", "resources": gpus("1")["resources"] },
            gpus("2"),
        ],
    });
    let mut view = ClusterView::default();
    let waits = json!({ "containers": [gpus("2")] });
    assert_eq!(apply(&mut view, &waits, "Pending"), (0, false));
    assert_eq!(apply(&mut view, &two, "Pending"), (2, true));
    assert_eq!(apply(&mut view, &two, "Running"), (2, false));
    assert_eq!(apply(&mut view, &init, "Running"), (3, true));
    assert_eq!(apply(&mut view, &two, "Succeeded"), (0, true));
    apply(&mut view, &two, "Running");
    let before = view.node_version("a");
    let key = ObjectKey { namespace: "team".to_owned(), name: "train".to_owned() };
    Index::<Pod>::delete(&mut view, &key);
    assert_eq!(view.plugin_pods("a", "nvidia.com/gpu").count(), 0);
    assert_ne!(view.node_version("a"), before);
}
