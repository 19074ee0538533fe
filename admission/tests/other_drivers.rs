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
use dra_allocator::device::Device;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
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

const LIVE: [(&str, &str); 3] = [
    ("aks-gb300", "dranet.net"),
    ("oke-gb200", "dranet.net"),
    ("eks-p4d", "efa.networking.k8s.aws"),
];

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A node as it was published live, and its name.
fn live(fixture: &str) -> (ClusterView, String) {
    let mut view = snapshot::load(&file("tests/fixtures").join(fixture)).unwrap().0;
    let node = view.inventory().slices().find_map(|slice| slice.node_name()).unwrap().to_string();
    let object = json!({ "metadata": { "name": node } });
    view.apply(serde_json::from_value::<Node>(object).unwrap()).unwrap();
    (view, node)
}

#[test]
fn live_slices() {
    for (name, class) in LIVE {
        let (view, _) = live(name);
        let policy = Policy { nic_class: class.to_owned(), ..Policy::default() };
        insta::assert_snapshot!(name, report(&view, &policy));
    }
}

/// With the node's graph, cells are known; and no claim can say them: alternatives
/// of two requests are kept apart only by an attribute that all devices of both
/// have, with no value in common.
#[test]
fn a_graph_is_not_enough_to_list_cells() {
    let (mut view, node) = live("aks-gb300");
    let example = snapshot::objects(&file("deploy/examples/aks-gb300/cluster.yaml")).unwrap();
    let mut graphs = example.into_iter().filter(|object| object["kind"] == "NodeTopology");
    let mut graph: NodeTopology = serde_json::from_value(graphs.next().unwrap()).unwrap();
    graph.metadata.name = Some(node);
    view.apply(graph).unwrap();
    insta::assert_snapshot!(report(&view, &Policy::default()));

    let found: Vec<_> = LIVE.iter().map(|(name, _)| (*name, in_common(&live(name).0))).collect();
    let root = "resource.kubernetes.io/pcieRoot";
    let expected: [(&str, &[(&str, bool)]); 3] =
        [("aks-gb300", &[]), ("oke-gb200", &[(root, false)]), ("eks-p4d", &[(root, true)])];
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        let found: Vec<_> = found.iter().map(|(name, same)| (name.as_str(), *same)).collect();
        assert_eq!(found, expected, "{name}");
    }
}

/// The attributes that GPUs and NICs of a cluster both have, and whether a GPU and
/// a NIC have one value of it.
fn in_common(view: &ClusterView) -> BTreeMap<String, bool> {
    let values = |of_nics: bool| -> BTreeMap<String, BTreeSet<String>> {
        let mut values: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        let slices = view.inventory().slices();
        let slices = slices.filter(|slice| (*slice.pool.driver == *"dra.net") == of_nics);
        for (name, value) in slices.flat_map(|slice| &slice.devices).flat_map(Device::attributes) {
            values.entry(name.to_string()).or_default().insert(value.to_string());
        }
        values
    };
    let (gpus, nics) = (values(false), values(true));
    let both = gpus.into_iter().filter_map(|(name, gpus)| {
        let same = !gpus.is_disjoint(nics.get(&name)?);
        Some((name, same))
    });
    both.collect()
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
