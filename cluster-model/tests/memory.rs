//! Memory use for the pods of a large cluster: a hundred thousand, added one by one as
//! from a watch.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use cluster_model::predict;
use cluster_model::room::{Ask, Nodes, Room, WhyNot};
use cluster_model::view::{ClusterView, Index as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use peak_alloc::PeakAlloc;
use serde_json::json;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const PODS: usize = 100_000;
const NODES: usize = 5_000;
/// Limit for all pods plus the one that is being added.
const BYTES_MAX: usize = 80 << 20;

/// A pod of a Job with a unique set of labels and the fields that kubelets fill.
fn pod(number: usize) -> Pod {
    let name = format!("train-{}-{}-x7k2p", number / 100, number % 100);
    let env: Vec<_> = (0..20).map(|i| json!({"name": format!("E{i}"), "value": "v"})).collect();
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": format!("team-{}", number % 50),
            "uid": format!("{number:032}"), "resourceVersion": "1",
            "labels": {
                "app": "train", "batch.kubernetes.io/job-name": format!("train-{}", number / 100),
                "batch.kubernetes.io/job-completion-index": (number % 100).to_string(),
                "batch.kubernetes.io/controller-uid": format!("{:032}", number / 100),
            },
        },
        "spec": {
            "nodeName": format!("gpu-pool-{:05}", number % NODES),
            "containers": [{
                "name": "c", "image": "registry.example.com/train:1", "env": env,
                "resources": {"requests": {"cpu": format!("{}m", 100 + number % 8), "memory": "1Gi"}},
            }],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }))
    .unwrap()
}

#[test]
fn a_hundred_thousand_pods_take_some_tens_of_megabytes() {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let mut nodes = Nodes::default();
    for number in 0..PODS {
        nodes.apply_pod(&pod(number));
    }
    let (held, peak) = (HEAP.current_usage() - before, HEAP.peak_usage() - before);
    println!("{PODS} pods: {} MiB held, {} MiB at most", held >> 20, peak >> 20);
    assert!(peak < BYTES_MAX, "{held} bytes held, {peak} at most");
    let mut view = ClusterView::default();
    for (name, room) in [("gpu-pool-00000", 0), ("gpu-pool-00001", 1)] {
        let allocatable =
            json!({"cpu": "64", "memory": "64Gi", "pods": (PODS / NODES + room).to_string()});
        let node = json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}});
        let node: Node = serde_json::from_value(node).unwrap();
        nodes.apply(&node);
        view.apply(node).unwrap();
    }
    let budget = predict::budget(&view);
    let room = Room::new(&view, &nodes, &budget);
    let ask = Ask::new(&pod(PODS));
    assert_eq!(room.why_not("gpu-pool-00000", &ask).unwrap(), Some(WhyNot::Full));
    assert_eq!(room.why_not("gpu-pool-00001", &ask).unwrap(), None);
}
