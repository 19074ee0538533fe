//! Clusters that were reported: what a pod gets on healthy nodes must not depend on others. The
//! files are snapshots of small clusters of GB300 nodes, some with lost devices.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

use admission::admit::{Verdict, admit, fits_anew};
use admission::plan::{Plan, Policy};
use cluster_model::node_devices::NodeDevices;
use cluster_model::snapshot;
use cluster_model::view::ClusterView;
use dra_allocator::{Claim, ClaimName, DeviceId, Limits, Outcome, allocate};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use topology_graph::PathKind;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fleets").join(name).with_extension("gz")
}

fn fleet(name: &str) -> ClusterView {
    snapshot::load(&file(name)).unwrap().0
}

fn pod(nics: &str, annotations: Value) -> Value {
    let mut all = json!({ "dranet.io/aligned-nics": nics });
    let Value::Object(more) = annotations else { panic!("annotations are an object") };
    all.as_object_mut().unwrap().extend(more);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "w", "namespace": "team", "annotations": all },
        "spec": { "containers": [
            { "name": "a", "image": "x", "resources": { "limits": { "nvidia.com/gpu": 1 } } },
        ] },
    })
}

fn preferred(level: &str) -> Value {
    let mut annotations = json!({ "dranet.io/alignment-policy": "preferred" });
    if !level.is_empty() {
        annotations["dranet.io/alignment"] = level.into();
    }
    annotations
}

fn plan(view: &ClusterView, pod: &Value) -> Plan {
    admit(pod, view, &Policy::default()).unwrap().planned.unwrap().plan
}

/// The paths from the GPU to each NIC that the pod would get now on a node.
fn paths(view: &ClusterView, plan: &Plan, node: &str) -> Option<Vec<PathKind>> {
    let claims = [Claim::from_spec(ClaimName::new("team", "w"), &plan.claim).unwrap()];
    let limits = Limits::steps(Policy::default().max_steps);
    let (inventory, settings) = (view.inventory(), view.settings());
    let found = allocate(inventory, node, &claims, inventory.state(), settings, limits);
    let Outcome::Allocated(claims) = found.outcome else { return None };
    let devices = NodeDevices::new(view, node)?;
    let is_given = |id: &DeviceId| claims[0].results.iter().any(|result| result.device == *id);
    let gpu = *devices.gpus.iter().find(|(_, gpu)| is_given(gpu.id()))?.0;
    let nics = devices.nics.iter().filter(|(_, nic)| is_given(nic.id()));
    Some(nics.map(|(nic, _)| devices.topology.path(gpu, *nic)).collect())
}

fn fitting(view: &ClusterView, plan: &Plan) -> usize {
    let nodes = view.inventory().node_names().filter(|node| !view.is_remembered(node));
    nodes.filter(|node| paths(view, plan, node).is_some()).count()
}

#[test]
fn preferred_alignment_does_not_depend_on_broken_nodes() {
    let asked = pod("2", preferred(""));
    for name in ["preferred-healthy", "preferred-beside-broken"] {
        let view = fleet(name);
        let found = paths(&view, &plan(&view, &asked), "gb300-1").unwrap();
        assert!(found.iter().all(|path| *path <= PathKind::Node), "{name}: {found:?}");
    }
}

#[test]
fn preferred_alignment_is_never_denied() {
    let view = fleet("three-broken");
    for (nics, level) in [("1", "numa"), ("1", ""), ("2", "numa"), ("4", "switch")] {
        let plan = plan(&view, &pod(nics, preferred(level)));
        let without: Vec<_> =
            plan.machines.iter().filter(|it| it.could && it.nearness.is_none()).collect();
        assert!(without.is_empty(), "{nics} {level}: {without:?}");
    }
}

#[test]
fn pairs_are_required_only_where_they_are_nearer() {
    for name in ["strand-healthy", "strand-beside-broken"] {
        let view = fleet(name);
        let plan = plan(&view, &pod("1", json!({})));
        assert!(paths(&view, &plan, "gb300-1").is_some(), "{name}: {}", plan.note("t"));
    }
}

#[test]
fn one_odd_node_does_not_lower_the_level_of_others() {
    for name in ["near-nics-busy", "near-nics-busy-beside-odd"] {
        let view = fleet(name);
        let plan = plan(&view, &pod("2", json!({})));
        let found = paths(&view, &plan, "gb300-1").unwrap();
        assert!(found.iter().all(|path| *path <= PathKind::Phb), "{name}: {found:?}");
        assert_eq!(plan.nodes.0, plan.nodes.1, "{name}");
    }
    let view = fleet("near-nics-busy-beside-odd");
    insta::assert_snapshot!(plan(&view, &pod("2", json!({}))).note("t"));
}

#[test]
fn no_node_is_left_out_because_others_are_broken() {
    let view = fleet("busy-and-broken");
    let plan = plan(&view, &pod("2", json!({})));
    assert_eq!(plan.nodes, (10, 10), "{}", plan.note("t"));
    assert_eq!(fitting(&view, &plan), 5, "those that are not busy");
}

#[test]
fn a_new_pod_fits_where_an_old_one_waits() {
    for (name, nodes) in [("new-shape", 2), ("arrived", 1)] {
        let old = snapshot::load_keeping(&file(name), &["Pod"]).unwrap().kept.remove(0);
        let old: Pod = serde_json::from_value(old).unwrap();
        let policy = Policy { admit_unknown: true, ..Policy::default() };
        let found = fits_anew(&old, &fleet(name), &policy).unwrap();
        assert_eq!(found.len(), nodes, "{name}: {found:?}");
    }
}

#[test]
fn gpus_of_old_drivers_are_found() {
    for name in ["old-driver", "mixed-drivers"] {
        let view = fleet(name);
        for nics in ["1", "2"] {
            let plan = plan(&view, &pod(nics, json!({})));
            assert_eq!((plan.nodes, fitting(&view, &plan)), ((4, 4), 4), "{name}");
        }
    }
}

#[test]
fn a_pool_without_nodes_is_unknown_whatever_other_pools_have() {
    let view = fleet("unknown-pool");
    let mut asked = pod("1", json!({}));
    asked["spec"]["nodeSelector"] = json!({ "pool": "never-seen" });
    let denied = admit(&asked, &view, &Policy::default()).unwrap_err();
    assert!(denied.to_string().contains("no node matches"), "{denied}");
    let policy = Policy { admit_unknown: true, ..Policy::default() };
    let Verdict { planned, warnings, .. } = admit(&asked, &view, &policy).unwrap();
    assert!(warnings.iter().any(|it| it.contains("waits for such a node")), "{warnings:?}");
    // The first node of the pool can serve it.
    assert!(fitting(&view, &planned.unwrap().plan) > 0);
}

#[test]
fn a_quota_with_scopes_counts_the_pods_in_them() {
    let view = fleet("quota-scope");
    let mut asked = pod("1", json!({}));
    asked["spec"]["priorityClassName"] = "low".into();
    admit(&asked, &view, &Policy::default()).unwrap();
    asked["spec"]["priorityClassName"] = "high".into();
    let denied = admit(&asked, &view, &Policy::default()).unwrap_err();
    assert!(denied.to_string().contains("quota"), "{denied}");
}
