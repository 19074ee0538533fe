//! Pods without GPUs get NICs near each other.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "plans/cluster.rs"]
mod cluster;

use admission::admit::admit;
use admission::plan::Policy;
use cluster::{DGX_B200, DGX_H100, GB300, Gpus, HGX, cluster};
use cluster_model::node_devices::NodeDevices;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use dra_allocator::{Claim, ClaimName, Limits, Outcome, allocate};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

const INTENTS: &[&[(&str, &str)]] = &[
    &[("aligned-nics", "1")],
    &[("aligned-nics", "2")],
    &[("aligned-nics", "2"), ("alignment", "switch")],
    &[("aligned-nics", "2"), ("alignment", "root")],
    &[("aligned-nics", "2"), ("alignment", "root-port")],
    &[("aligned-nics", "5")],
    &[("aligned-nics", "5"), ("alignment-policy", "preferred")],
    &[("aligned-nics", "2"), ("nic-role", "storage")],
    &[("aligned-nics", "2"), ("aligned-cpus", "true")],
    &[("aligned-nics", "1"), ("rail", "same")],
    &[("aligned-nics", "per-gpu")],
    &[("aligned-nics", "31")],
];

/// A pod without GPUs and with whole CPUs.
fn pod(annotations: &[(&str, &str)]) -> Value {
    let mut pod = cluster::pod("cpu", 4, annotations);
    pod["metadata"]["annotations"]["dranet.io/gpus"] = json!("0");
    pod
}

/// CPUs of two NUMA nodes, as dra-driver-cpu publishes them.
fn add_cpus(view: &mut ClusterView) {
    let class = json!({ "metadata": { "name": "dra.cpu" }, "spec": { "selectors": [
        { "cel": { "expression": r#"device.driver == "dra.cpu""# } },
    ] } });
    view.apply(serde_json::from_value::<DeviceClass>(class).unwrap()).unwrap();
    let group = |numa: i64| {
        json!({ "name": format!("cpus-{numa}"), "allowMultipleAllocations": true,
                "attributes": { "resource.kubernetes.io/numaNode": { "int": numa } },
                "capacity": { "dra.cpu/cpu": { "value": "64" } } })
    };
    let slice = json!({ "metadata": { "name": "node-0-cpus" }, "spec": {
        "driver": "dra.cpu", "nodeName": "node-0", "devices": [group(0), group(1)],
        "pool": { "name": "node-0", "generation": 1, "resourceSliceCount": 1 },
    } });
    view.apply(serde_json::from_value::<ResourceSlice>(slice).unwrap()).unwrap();
}

/// A cluster of storage nodes and routers has no GPU, and no class of GPUs.
fn without_gpus(view: &mut ClusterView) {
    for driver in ["gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com"] {
        let slice = ObjectKey::cluster_wide(&format!("node-0-{driver}"));
        Index::<ResourceSlice>::delete(view, &slice);
        Index::<DeviceClass>::delete(view, &ObjectKey::cluster_wide(driver));
    }
}

#[test]
fn plans_for_pods_without_gpus() {
    let mut text = String::new();
    for machine in [GB300, DGX_H100, DGX_B200, HGX] {
        let mut view = cluster(&[machine]);
        without_gpus(&mut view);
        add_cpus(&mut view);
        writeln!(text, "{}", machine.fixture).unwrap();
        for annotations in INTENTS {
            let answer = match admit(&pod(annotations), &view, &Policy::default()) {
                Ok(verdict) => verdict.planned.unwrap().plan.note("…"),
                Err(error) => format!("denied: {error}"),
            };
            let answer = answer.split("; template").next().unwrap();
            writeln!(text, "{annotations:?}\n    {answer}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn claims_of_pods_without_gpus() {
    let mut view = cluster(&[DGX_H100]);
    add_cpus(&mut view);
    let mut text = String::new();
    for annotations in [INTENTS[1], INTENTS[6], INTENTS[8]] {
        let plan =
            admit(&pod(annotations), &view, &Policy::default()).unwrap().planned.unwrap().plan;
        let claim = serde_json::to_string_pretty(&plan.claim).unwrap();
        writeln!(text, "{annotations:?} {:?}\n{claim}", plan.grants).unwrap();
    }
    insta::assert_snapshot!(text);
}

/// The scheduler gives such pods NICs of one NUMA node, or any if they only prefer it.
#[test]
fn pods_without_gpus_get_nics_near_each_other() {
    for machine in [GB300, DGX_H100, HGX] {
        let view = cluster(&[machine]);
        for annotations in [INTENTS[0], INTENTS[1], INTENTS[6]] {
            let Ok(verdict) = admit(&pod(annotations), &view, &Policy::default()) else { continue };
            let plan = verdict.planned.unwrap().plan;
            let claim = Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap();
            let (inventory, steps) = (view.inventory(), Limits::steps(10_000));
            let state = inventory.state();
            let found = allocate(inventory, "node-0", &[claim], state, view.settings(), steps);
            let Outcome::Allocated(claims) = found.outcome else { panic!("{:?}", found.outcome) };
            let devices = NodeDevices::new(&view, "node-0").unwrap();
            let given = devices.nics.iter().filter(|(_, nic)| {
                claims[0].results.iter().any(|result| result.device == *nic.id())
            });
            let given: Vec<_> = given.map(|(address, _)| *address).collect();
            let asked: usize = annotations[0].1.parse().unwrap();
            assert_eq!(given.len(), asked, "{annotations:?}");
            let numa: BTreeSet<_> =
                given.iter().map(|nic| devices.topology.nic(*nic).unwrap().numa).collect();
            assert!(numa.len() == 1 || annotations == INTENTS[6], "{annotations:?}: {numa:?}");
        }
    }
}

/// Late binding chooses NICs near the GPUs of a pod. Nodes that bind by name still serve the pod.
#[test]
fn a_pod_without_gpus_needs_nics_by_name() {
    let asked = pod(&[("aligned-nics", "2")]);
    let late = GB300.with(Gpus::PluginLate);
    let denied = admit(&asked, &cluster(&[late]), &Policy::default()).unwrap_err().to_string();
    assert!(denied.contains("the NICs of node node-0 are bound late"), "{denied}");
    let both = cluster(&[late, GB300]);
    let plan = admit(&asked, &both, &Policy::default()).unwrap().planned.unwrap().plan;
    assert_eq!(plan.nodes, (1, 1));
}
