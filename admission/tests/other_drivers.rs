//! Clusters whose NICs are published by another driver: live slices of upstream DRANET,
//! without NodeTopology objects.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "plans/cluster.rs"]
mod cluster;

use admission::admit::admit;
use admission::pin;
use admission::plan::{Plan, Policy};
use cluster::{Built, GB300, H100, add, cluster, pod};
use cluster_model::node_devices::NodeDevices;
use cluster_model::placement::Placement;
use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use dra_allocator::device::Device;
use dra_allocator::{Claim, ClaimName, Limits, Outcome, allocate};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use publication::sharing::SharingArgs;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use topology_graph::{Level, NodeTopology, PciAddress};

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

/// A node as published live, and its name.
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

/// A GB300 on Azure with the NICs of an upstream DRANET and the node's topology.
fn beside_upstream() -> (ClusterView, String) {
    let (mut view, node) = live("aks-gb300");
    let example = snapshot::objects(&file("deploy/examples/aks-gb300/cluster.yaml")).unwrap();
    let mut graphs = example.into_iter().filter(|object| object["kind"] == "NodeTopology");
    let mut graph: NodeTopology = serde_json::from_value(graphs.next().unwrap()).unwrap();
    graph.metadata.name = Some(node.clone());
    view.apply(graph).unwrap();
    (view, node)
}

/// With the node's topology, cells are known, but no claim can list them as alternatives.
/// Alternatives of two requests can only be kept apart by an attribute that all devices
/// of both have, with no common value. So each pod is pinned to one cell.
#[test]
fn a_graph_is_not_enough_to_list_cells() {
    let (view, _) = beside_upstream();
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

/// The attributes that both GPUs and NICs have, and whether any GPU and NIC share a
/// value.
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

/// ND H100 v5 with a GPU driver that publishes the standard NUMA node, and NICs from
/// upstream DRANET's main branch, which has it too. Synthetic: no such slice has been
/// seen; the topology is that of the machine size.
#[test]
fn a_machine_size_replaces_the_graph() {
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

fn planned(gpus: u32, annotations: &[(&str, &str)], view: &ClusterView) -> Plan {
    let pod = pod("nvidia.com/gpu", gpus, annotations);
    admit(&pod, view, &Policy::default()).unwrap().planned.unwrap().plan
}

/// Allocates devices to a pod with this plan as the scheduler would; none if the pod has
/// to wait. The claim is created in any case.
fn schedule(view: &mut ClusterView, node: &str, name: &str, plan: &Plan) -> Vec<PciAddress> {
    let claim = Claim::from_spec(ClaimName::new("default", name), &plan.claim).unwrap();
    let inventory = view.inventory();
    let steps = Limits::steps(1_000);
    let found = allocate(inventory, node, &[claim], inventory.state(), view.settings(), steps);
    let found = match found.outcome {
        Outcome::Allocated(mut claims) => claims.pop(),
        other => {
            assert!(matches!(other, Outcome::NoFit(_)), "{other:?}");
            None
        }
    };
    let results = found.iter().flat_map(|claim| &claim.results);
    let results: Vec<_> = results
        .map(|result| {
            let id = &result.device;
            json!({ "request": result.request.to_string(), "driver": id.driver.to_string(),
                    "pool": id.pool.to_string(), "device": id.device.to_string() })
        })
        .collect();
    let devices = NodeDevices::new(view, node).unwrap();
    let all = devices.gpus.iter().chain(&devices.nics);
    let given = all.filter(|(_, device)| {
        found.iter().flat_map(|claim| &claim.results).any(|it| it.device == *device.id())
    });
    let given: Vec<_> = given.map(|(address, _)| *address).collect();
    let pin = plan.pins.iter().find(|pin| pin.claim == plan.claim).unwrap();
    let allocation = found.is_some().then(|| json!({ "devices": { "results": results } }));
    let object = json!({
        "metadata": { "name": name, "namespace": "default",
                      "labels": { "dranet.io/template": pin.template } },
        "spec": plan.claim, "status": { "allocation": allocation },
    });
    view.apply(serde_json::from_value::<ResourceClaim>(object).unwrap()).unwrap();
    given
}

/// Each pod gets a claim for one cell: among the free cells, the one with the fewest
/// pods.
#[test]
fn pods_are_pinned_to_cells_that_are_free() {
    let (mut view, node) = beside_upstream();
    let mut places = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let plan = planned(1, &[("aligned-nics", "1")], &view);
        let given = schedule(&mut view, &node, name, &plan);
        let devices = NodeDevices::new(&view, &node).unwrap();
        let holds = |cell: &topology_graph::Cell| {
            given.iter().all(|it| cell.gpus.contains(it) || cell.nics.contains(it))
        };
        assert_eq!(given.len(), 2);
        assert!(devices.cells(Level::Numa).iter().any(holds), "{name}: {given:?}");
        places.push(plan.place.unwrap());
    }
    let cell = |numa: u32| format!("numa{numa} of Standard_ND128isr_GB300_v6");
    assert_eq!(places, [cell(0), cell(1), cell(0), cell(1)]);

    // Nothing is free now: required alignment waits for near devices, preferred alignment
    // takes any.
    let waiting = planned(1, &[("aligned-nics", "1")], &view);
    assert_eq!(waiting.place, Some(cell(0)));
    let preferred = [("aligned-nics", "1"), ("alignment-policy", "preferred")];
    assert_eq!(planned(1, &preferred, &view).place, None);
}

/// Pods of a burst are created before their claims are visible.
#[test]
fn pods_of_a_burst_go_to_different_cells() {
    let (view, _) = beside_upstream();
    let plan = planned(1, &[("aligned-nics", "1")], &view);
    let mut created: Vec<String> = Vec::new();
    for _ in 0..4 {
        let known = created.clone();
        let count = |template: &str| known.iter().filter(|name| *name == template).count();
        let chosen = pin::choose(plan.clone(), &Placement::default(), &view, count);
        let pin = chosen.pins.iter().find(|pin| pin.place == chosen.place).unwrap();
        created.push(pin.template.clone());
    }
    let [first, second] = [&plan.pins[0].template, &plan.pins[1].template];
    assert_eq!(created.iter().collect::<Vec<_>>(), [first, second, first, second]);
}

/// A pod that waits for a cell is not moved when another one becomes free, but this is
/// reported.
#[test]
fn pods_waiting_while_another_cell_is_free_are_reported() {
    let (mut view, node) = beside_upstream();
    let all = planned(2, &[("aligned-nics", "2"), ("pairing", "group")], &view);
    assert_eq!(schedule(&mut view, &node, "both", &all).len(), 4);
    let own = all.pins.iter().find(|pin| pin.place == all.place).unwrap().template.clone();
    let place = Placement::default();
    let waiting = pin::elsewhere(&all, &own, &place, &view);
    assert_eq!(waiting, all.place.as_deref().zip(all.pins[1].place.as_deref()));
    assert_eq!(schedule(&mut view, &node, "other", &all), [], "the cell is full");
    let rest = planned(2, &[("aligned-nics", "2"), ("pairing", "group")], &view);
    assert_eq!(schedule(&mut view, &node, "rest", &rest).len(), 4);
    assert_eq!(pin::elsewhere(&all, &own, &place, &view), None, "no cell is free");
}

/// The decision stays if the pod is seen again before its template.
#[test]
fn a_pinned_pod_keeps_its_cell() {
    let (mut view, node) = beside_upstream();
    let wanted = pod("nvidia.com/gpu", 1, &[("aligned-nics", "1")]);
    let first = admit(&wanted, &view, &Policy::default()).unwrap();
    let plan = &first.planned.as_ref().unwrap().plan;
    assert_eq!(schedule(&mut view, &node, "a", plan).len(), 2);
    let again = admit(&first.pod, &view, &Policy::default()).unwrap();
    assert_eq!(again.pod, first.pod);
}

/// On another machine type, the same bus IDs are other cells.
#[test]
fn a_pinned_claim_is_limited_to_one_machine_type() {
    let (view, node) = beside_upstream();
    let plan = planned(1, &[("aligned-nics", "1")], &view);
    let slices = snapshot::objects(&file("tests/fixtures/aks-gb300/resourceslice-dranet.yaml"));
    let text = serde_json::to_string(&slices.unwrap()[0]).unwrap();
    let other = text.replace("Standard_ND128isr_GB300_v6", "Standard_of_another_size");
    let mut other_view = view.clone();
    other_view.apply(serde_json::from_str::<ResourceSlice>(&other).unwrap()).unwrap();
    assert_eq!(schedule(&mut view.clone(), &node, "a", &plan).len(), 2);
    assert_eq!(schedule(&mut other_view, &node, "a", &plan), []);
}

/// Upstream's driver has the name of ours, and does not lift the limit of locked memory. Ours need not.
#[test]
fn locked_memory_is_a_warning_where_the_driver_does_not_lift_its_limit() {
    let (upstream, _) = beside_upstream();
    let with = |lifts: Option<bool>| {
        let mut view = cluster(&[GB300]);
        let mut spec = Built::new(GB300, &[], &SharingArgs::default()).spec().clone();
        spec.locked_memory = lifts;
        view.apply(NodeTopology::new("node-0", spec)).unwrap();
        view
    };
    for (view, is_warned) in [
        (upstream, true),
        (cluster(&[GB300]), false),
        (with(Some(true)), false),
        (with(Some(false)), true),
    ] {
        let mut pod = pod("nvidia.com/gpu", 1, &[("aligned-nics", "1")]);
        pod["spec"]["containers"][0]["securityContext"] = json!({});
        let verdict = admit(&pod, &view, &Policy::default()).unwrap();
        let warned = verdict.warnings.iter().any(|it| it.contains("IPC_LOCK"));
        assert_eq!(warned, is_warned, "{:?}", verdict.warnings);
    }
}
