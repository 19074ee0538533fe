//! Clusters whose NICs another driver publishes: upstream DRANET's live slices,
//! where no node has a graph of its own.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "plans/cluster.rs"]
mod cluster;

use admission::admit::admit;
use admission::plan::Policy;
use cluster::{H100, add, cluster, pod};
use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use topology_graph::NodeTopology;

const INTENTS: &[(u32, &[(&str, &str)])] = &[
    (1, &[("aligned-nics", "1")]),
    (1, &[("aligned-nics", "2")]),
    (1, &[("aligned-nics", "2"), ("alignment-policy", "preferred")]),
    (4, &[("aligned-nics", "4"), ("pairing", "group")]),
    (4, &[("aligned-nics", "per-gpu")]),
];

fn report(view: &ClusterView, policy: &Policy) -> String {
    let mut text = String::new();
    for (gpus, annotations) in INTENTS {
        let pod = pod("nvidia.com/gpu", *gpus, annotations);
        let answer = match admit(&pod, view, policy) {
            Ok(verdict) => verdict.planned.unwrap().plan.note("…"),
            Err(error) => format!("denied: {error}"),
        };
        let answer = answer.split("; template").next().unwrap();
        writeln!(text, "{gpus} GPU {annotations:?}\n    {answer}").unwrap();
    }
    text
}

#[test]
fn live_slices() {
    for (name, class) in [
        ("aks-gb300", "dranet.net"),
        ("oke-gb200", "dranet.net"),
        ("eks-p4d", "efa.networking.k8s.aws"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
        let mut view = snapshot::load(&path).unwrap().0;
        let node = view.inventory().slices().find_map(|slice| slice.node_name()).cloned().unwrap();
        let node = json!({ "metadata": { "name": &*node } });
        view.apply(serde_json::from_value::<Node>(node).unwrap()).unwrap();
        let policy = Policy { nic_class: class.to_owned(), ..Policy::default() };
        insta::assert_snapshot!(name, report(&view, &policy));
    }
}

/// ND H100 v5 with a GPU driver that publishes the standard NUMA node, and NICs
/// as upstream DRANET's main branch publishes them, which has it too. Synthetic:
/// no such slice has been seen; the graph is that of the machine's size.
#[test]
fn a_size_stands_in_for_the_graph() {
    let mut view = cluster(&[]);
    add(&mut view, "node", H100);
    let nics: Vec<Value> = view
        .inventory()
        .slices()
        .filter(|slice| *slice.pool.driver == *"dra.net")
        .flat_map(|slice| &slice.devices)
        .map(|device| {
            let value = |name: &str| device.attribute(name).unwrap().to_string();
            let numa: i64 = value("resource.kubernetes.io/numaNode").parse().unwrap();
            let address = value("resource.kubernetes.io/pciBusID").replace('"', "");
            json!({ "name": device.id().device.to_string(), "attributes": {
                "azure.dra.net/vmSize": { "string": "Standard_ND96isr_H100_v5" },
                "dra.net/pciAddress": { "string": address },
                "dra.net/rdma": { "bool": true },
                "resource.kubernetes.io/numaNode": { "int": numa },
            } })
        })
        .collect();
    Index::<NodeTopology>::delete(&mut view, &ObjectKey::cluster_wide("node"));
    assert!(!view.has_graphs(), "its type of machine is all that is known of the node");
    let slice = json!({ "metadata": { "name": "node-dra.net" }, "spec": {
        "driver": "dra.net", "nodeName": "node", "devices": nics,
        "pool": { "name": "node", "generation": 1, "resourceSliceCount": 1 },
    } });
    view.apply(serde_json::from_value::<ResourceSlice>(slice).unwrap()).unwrap();
    insta::assert_snapshot!(report(&view, &Policy::default()));
}
