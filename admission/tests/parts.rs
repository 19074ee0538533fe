//! Parts of GPUs are aligned like the GPU that they belong to.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "plans/cluster.rs"]
mod cluster;

use admission::admit::admit;
use admission::plan::{Plan, Policy};
use cluster::{Built, DGX_H100, DGX_H100_ROCE, MI300X, classes, divided, pod};
use cluster_model::node_devices::NodeDevices;
use cluster_model::published_device::PublishedDevice as _;
use cluster_model::view::{ClusterView, Index};
use dra_allocator::{AllocatedState, Claim, ClaimName, Device, Limits, Outcome, allocate};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use publication::sharing::SharingArgs;
use serde_json::{Value, json};
use std::fmt::Write as _;
use topology_graph::PathKind;

/// The kind of AMD's partitions.
const PARTITION: &str = "amdgpu-partition";

/// A node whose GPUs are in mode CPX, as AMD's driver publishes them (ROCm/k8s-gpu-dra-driver, commit
/// 2622427, `cmd/gpu-kubeletplugin/deviceinfo.go`): no bus ID but the parent's own attribute, and the
/// parent's PCIe root. Its class selects GPUs and partitions alike, so a class for partitions is the
/// operator's. `attribute` has the parent's address: the driver's documentation names another one. With
/// another kind the GPUs are whole.
fn amd_view(kind: &'static str, attribute: &'static str) -> ClusterView {
    let mut view = ClusterView::default();
    for class in classes() {
        view.apply(class).unwrap();
    }
    let expression = r#"device.driver == "gpu.amd.com" && device.attributes["gpu.amd.com"].type == "amdgpu-partition""#;
    let class = json!({ "metadata": { "name": "cpx.amd.com" },
                        "spec": { "selectors": [{ "cel": { "expression": expression } }] } });
    view.apply(serde_json::from_value::<DeviceClass>(class).unwrap()).unwrap();
    let built = Built::new(MI300X, &[], &SharingArgs::default());
    built.put(&mut view, "node-0", 0);
    let topology = built.topology();
    let partitions = topology.gpus().iter().enumerate().flat_map(|(index, gpu)| {
        (0..if kind == PARTITION { 2 } else { 1 }).map(move |number| {
            let (card, render) = (8 * index + number, 128 + 8 * index + number);
            json!({ "name": format!("gpu-{card}-{render}"), "attributes": {
                "type": { "string": kind },
                attribute: { "string": gpu.address.to_string() },
                "cardIndex": { "int": card },
                "renderIndex": { "int": render },
                "parentDeviceID": { "string": format!("{index}") },
                "partitionProfile": { "string": "cpx_nps4" },
            }, "capacity": { "memory": { "value": "24Gi" } } })
        })
    });
    let slice = json!({ "metadata": { "name": "node-0-gpu.amd.com" }, "spec": {
        "driver": "gpu.amd.com", "nodeName": "node-0", "devices": partitions.collect::<Vec<_>>(),
        "pool": { "name": "node-0", "generation": 2, "resourceSliceCount": 1 },
    } });
    view.apply(serde_json::from_value::<ResourceSlice>(slice).unwrap()).unwrap();
    view
}

const CLASS: (&str, &str) = ("gpu-class", "mig.nvidia.com");

type Case = (&'static str, u32, &'static [(&'static str, &'static str)]);

const CASES: &[Case] = &[
    ("nvidia.com/mig-1g.10gb", 1, &[("aligned-nics", "1")]),
    ("nvidia.com/mig-1g.10gb.me", 1, &[("aligned-nics", "1"), ("alignment", "numa")]),
    ("nvidia.com/mig-1g.10gb", 1, &[("aligned-nics", "2"), ("alignment-policy", "preferred")]),
    ("nvidia.com/mig-1g.10gb", 2, &[("aligned-nics", "1")]),
    ("nvidia.com/mig-3g.40gb", 1, &[("aligned-nics", "1")]),
    ("nvidia.com/gpu", 1, &[("aligned-nics", "1")]),
    ("nvidia.com/gpu.shared", 1, &[("aligned-nics", "1")]),
    ("example.com/none", 1, &[("aligned-nics", "1"), CLASS, ("gpus", "1")]),
    ("example.com/none", 1, &[("aligned-nics", "1"), CLASS, ("gpus", "2")]),
];

/// What the plan for a pod says, or why there is none.
fn answer(view: &ClusterView, pod: &Value) -> String {
    let answer = match admit(pod, view, &Policy::default()) {
        Ok(verdict) => verdict.planned.unwrap().plan.note("…"),
        Err(error) => format!("denied: {error}"),
    };
    answer.split("; template").next().unwrap().to_owned()
}

#[test]
fn plans_for_parts_of_gpus() {
    let mut text = String::new();
    for machine in [DGX_H100, DGX_H100_ROCE] {
        let view = divided(machine);
        writeln!(text, "{}", machine.fixture).unwrap();
        for (resource, count, annotations) in CASES {
            let answer = answer(&view, &pod(resource, *count, annotations));
            writeln!(text, "{count} {resource} {annotations:?}\n    {answer}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn plans_for_partitions_of_amd() {
    let class = ("gpu-class", "cpx.amd.com");
    let cases: [&[(&str, &str)]; 3] = [
        &[("aligned-nics", "1"), class, ("gpus", "1")],
        &[("aligned-nics", "1"), ("gpu-class", "gpu.amd.com"), ("gpus", "1")],
        &[("aligned-nics", "1"), class, ("gpus", "2")],
    ];
    let mut text = String::new();
    for attribute in ["parentPciAddr", "pciAddr"] {
        let view = amd_view(PARTITION, attribute);
        writeln!(text, "{attribute}").unwrap();
        for annotations in cases {
            let answer = answer(&view, &pod("example.com/none", 1, annotations));
            writeln!(text, "{annotations:?}\n    {answer}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

/// Each partition gets a NIC near its parent.
#[test]
fn partitions_of_amd_get_nics_near_their_parent() {
    for attribute in ["parentPciAddr", "pciAddr"] {
        let view = amd_view(PARTITION, attribute);
        let annotations = [("aligned-nics", "1"), ("gpu-class", "cpx.amd.com"), ("gpus", "1")];
        let plan = admit(&pod("example.com/none", 1, &annotations), &view, &Policy::default());
        let pods = placed(&view, &plan.unwrap().planned.unwrap().plan, attribute);
        assert_eq!(pods, 8, "one for each NIC");
    }
    // Whole GPUs have no standard bus ID in that version either.
    let view = amd_view("amdgpu", "pciAddr");
    let whole = pod("amd.com/gpu", 1, &[("aligned-nics", "1")]);
    let plan = admit(&whole, &view, &Policy::default()).unwrap().planned.unwrap().plan;
    assert_eq!(placed(&view, &plan, "whole"), 8);
}

fn plan(view: &ClusterView) -> Plan {
    let pod = pod("nvidia.com/mig-1g.10gb", 1, &[("aligned-nics", "1")]);
    admit(&pod, view, &Policy::default()).unwrap().planned.unwrap().plan
}

/// Each pod gets a part of the profile and a NIC near its GPU, until no such NIC is free.
#[test]
fn parts_get_nics_near_their_gpu() {
    for machine in [DGX_H100, DGX_H100_ROCE] {
        let view = divided(machine);
        let nics = NodeDevices::new(&view, "node-0").unwrap().nics.len();
        let pods = placed(&view, &plan(&view), machine.fixture);
        assert!(pods >= 8 && pods <= nics, "{}: {pods} pods", machine.fixture);
    }
}

/// How many pods with this plan the allocator places on the node; each has a NIC near its part.
fn placed(view: &ClusterView, plan: &Plan, machine: &str) -> usize {
    let claim = Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap();
    let mut state = AllocatedState::new();
    let mut pods = 0;
    loop {
        let (inventory, steps) = (view.inventory(), Limits::steps(10_000));
        let claims = std::slice::from_ref(&claim);
        let found = allocate(inventory, "node-0", claims, &state, view.settings(), steps);
        let Outcome::Allocated(claims) = found.outcome else { return pods };
        let given: Vec<&Device> = inventory
            .devices_on("node-0", view.settings())
            .unwrap()
            .into_iter()
            .filter(|it| claims[0].results.iter().any(|result| result.device == *it.id()))
            .collect();
        assert_eq!(given.len(), 2);
        let [one, other] = [given[0], given[1]].map(|it| it.address().unwrap());
        let path = view.topology("node-0").unwrap().path(one, other);
        assert!(path <= PathKind::Node, "{machine}: {path}");
        for device in given {
            state.insert(device.id().clone());
        }
        pods += 1;
    }
}
