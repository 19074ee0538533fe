//! What denials say of clusters that lack something: classes that select nothing, and pools that the scheduler
//! ignores.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "plans/cluster.rs"]
mod cluster;

use admission::admit::admit;
use admission::plan::Policy;
use cluster::{DGX_H100, cluster, pod};
use cluster_model::view::{ClusterView, Index, ObjectKey};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use serde_json::json;
use std::fmt::Write as _;

fn denial(view: &ClusterView) -> String {
    let pod = pod("nvidia.com/gpu", 1, &[("aligned-nics", "1")]);
    match admit(&pod, view, &Policy::default()) {
        Ok(_) => "admitted".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// The cluster with another selector of a class.
fn with_class(name: &str, expression: &str) -> ClusterView {
    let mut view = cluster(&[DGX_H100]);
    let class = json!({ "metadata": { "name": name },
                        "spec": { "selectors": [{ "cel": { "expression": expression } }] } });
    view.apply(serde_json::from_value::<DeviceClass>(class).unwrap()).unwrap();
    view
}

/// A selector that no device passes, or that fails, is quoted with the reason.
#[test]
fn classes_that_select_nothing_are_named() {
    let mut text = String::new();
    for (class, expression) in [
        ("gpu.nvidia.com", r#"device.attributes["gpu.nvidia.com"].productName == "NVIDIA A100""#),
        ("gpu.nvidia.com", r#"device.attributes["example.com"].zone == 1"#),
        ("gpu.nvidia.com", "device.driver =="),
        ("dranet.net", r#"device.driver == "other.example.com""#),
        // It selects NICs, and fails on GPUs, which the scheduler's search reaches too.
        ("dranet.net", r#"device.attributes["dra.net"].rdma"#),
    ] {
        writeln!(text, "{class} {expression}\n    {}", denial(&with_class(class, expression)))
            .unwrap();
    }
    insta::assert_snapshot!(text);
}

/// The devices of a pool that lacks slices, or whose slices contradict each other, are not there for the
/// scheduler; the denial says so.
#[test]
fn pools_that_the_scheduler_ignores_are_named() {
    let mut text = String::new();
    for (driver, count, device) in
        [("gpu.nvidia.com", 2, "a"), ("dra.net", 3, "a"), ("gpu.nvidia.com", 1, "gpu-0")]
    {
        let mut view = cluster(&[DGX_H100]);
        let names: Vec<&str> = if device == "a" { vec!["a"] } else { vec![device, device] };
        let devices: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
        let slice = json!({ "metadata": { "name": format!("node-0-{driver}") }, "spec": {
            "driver": driver, "nodeName": "node-0", "devices": devices,
            "pool": { "name": "node-0", "generation": 2, "resourceSliceCount": count },
        } });
        view.apply(serde_json::from_value::<ResourceSlice>(slice).unwrap()).unwrap();
        writeln!(text, "{}", denial(&view)).unwrap();
    }
    insta::assert_snapshot!(text);
}

/// A cluster without nodes is not a selector that matches none.
#[test]
fn a_cluster_without_nodes_is_named() {
    let mut view = cluster(&[DGX_H100]);
    let key = ObjectKey { namespace: String::new(), name: "node-0".to_owned() };
    Index::<Node>::delete(&mut view, &key);
    assert!(denial(&view).contains("the cluster has no node"), "{}", denial(&view));
}
