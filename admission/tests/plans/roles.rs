//! What pods get on machines with NICs for several purposes: plans on what node-driver publishes,
//! allocated as the scheduler does.

use crate::cluster::*;
use admission::admit::{AdmitError, admit};
use admission::plan::Policy;
use cluster_model::names::attribute;
use cluster_model::node_devices::{NodeDevices, text};
use cluster_model::view::ClusterView;
use dra_allocator::{
    AllocatedState, AttributeValue, Claim, ClaimName, Device, Limits, Outcome, allocate,
};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use serde_json::json;
use std::collections::BTreeSet;
use std::slice;
use topology_graph::PciAddress;

const NVIDIA: &str = "nvidia.com/gpu";
const AMD: &str = "amd.com/gpu";

/// Machines, their GPUs' resource, and the rate of their compute NICs in gigabits per second.
const MACHINES: [(Machine, &str, i64); 8] = [
    (DGX_B200, NVIDIA, 400),
    (DGX_H100, NVIDIA, 400),
    (DGX_H100_ROCE, NVIDIA, 400),
    (NVL72, NVIDIA, 400),
    (NVL72_ROCE, NVIDIA, 400),
    (LENOVO, NVIDIA, 400),
    (MI300X, AMD, 400),
    (P4D, NVIDIA, 100),
];

/// GPUs and annotations.
const PODS: [(u32, &[(&str, &str)]); 7] = [
    (1, &[("aligned-nics", "1")]),
    (1, &[("aligned-nics", "2")]),
    (2, &[("aligned-nics", "per-gpu")]),
    (2, &[("aligned-nics", "2"), ("pairing", "group")]),
    (4, &[("aligned-nics", "4"), ("pairing", "group")]),
    (4, &[("aligned-nics", "per-gpu")]),
    (8, &[("aligned-nics", "per-gpu")]),
];

/// Allocates the claim on the node until nothing fits, and returns the addresses of each claim.
fn fill(view: &ClusterView, spec: &ResourceClaimSpec) -> Vec<Vec<PciAddress>> {
    let node = NodeDevices::new(view, "node-0").unwrap();
    let mut state = AllocatedState::new();
    let mut all = Vec::new();
    loop {
        let claim = Claim::from_spec(ClaimName::new("default", "a"), spec).unwrap();
        let limits = Limits::steps(Policy::default().max_steps);
        let (inventory, settings) = (view.inventory(), view.settings());
        let claims = slice::from_ref(&claim);
        let attempt = allocate(inventory, "node-0", claims, &state, settings, limits);
        let Outcome::Allocated(allocations) = attempt.outcome else { return all };
        let ids: BTreeSet<_> = allocations
            .iter()
            .flat_map(|allocation| &allocation.results)
            .map(|result| result.device.clone())
            .collect();
        let devices = node.gpus.iter().chain(&node.nics);
        let got = devices.filter(|(_, device)| ids.contains(device.id()));
        all.push(got.map(|(address, _)| *address).collect());
        for id in ids {
            state.insert(id);
        }
    }
}

fn rate(nic: &Device) -> Option<i64> {
    match nic.attribute(attribute::RATE_GBPS)? {
        AttributeValue::Int(rate) => Some(*rate),
        _ => None,
    }
}

/// The claim of a pod; `None` if it is denied.
fn planned(
    view: &ClusterView,
    resource: &str,
    gpus: u32,
    annotations: &[(&str, &str)],
) -> Option<ResourceClaimSpec> {
    match admit(&pod(resource, gpus, annotations), view, &Policy::default()) {
        Ok(verdict) => verdict.planned.map(|planned| planned.plan.claim),
        Err(AdmitError::Denied(_)) => None,
        Err(error) => unreachable!("{error:?}"),
    }
}

#[test]
fn pods_get_compute_nics_only() {
    for (machine, resource, expected) in MACHINES {
        let view = cluster(&[machine]);
        let node = NodeDevices::new(&view, "node-0").unwrap();
        let mut served = 0;
        for (gpus, annotations) in PODS {
            for policy in ["required", "preferred"] {
                let annotations = [annotations, &[("alignment-policy", policy)]].concat();
                let what = format!("{} {gpus} {annotations:?}", machine.fixture);
                let Some(claim) = planned(&view, resource, gpus, &annotations) else { continue };
                for devices in fill(&view, &claim) {
                    let nics: Vec<_> =
                        devices.iter().filter_map(|device| node.nics.get(device)).collect();
                    assert!(!nics.is_empty(), "{what}");
                    for nic in nics {
                        assert_eq!(text(nic, attribute::ROLE), Some("compute"), "{what}");
                        assert_eq!(rate(nic), Some(expected), "{what}");
                    }
                    served += 1;
                }
            }
        }
        assert!(served > 10, "{}: {served}", machine.fixture);
    }
}

/// The pods that the issue names.
#[test]
fn each_gpu_gets_its_own_nic() {
    for (machine, pods) in [(DGX_B200, 2), (DGX_H100, 2), (DGX_H100_ROCE, 2)] {
        let view = cluster(&[machine]);
        let group = [("aligned-nics", "4"), ("pairing", "group")];
        let claim = planned(&view, NVIDIA, 4, &group).unwrap();
        assert_eq!(fill(&view, &claim).len(), pods, "{}", machine.fixture);
    }
    for machine in [NVL72, NVL72_ROCE] {
        let view = cluster(&[machine]);
        let claim = planned(&view, NVIDIA, 1, &[("aligned-nics", "1")]).unwrap();
        assert_eq!(fill(&view, &claim).len(), 4, "{}", machine.fixture);
    }
}

#[test]
fn pods_can_ask_for_storage_nics() {
    for (machine, pods, expected) in [(DGX_H100, 4, 200), (DGX_B200, 4, 200), (LENOVO, 1, 400)] {
        let view = cluster(&[machine]);
        let node = NodeDevices::new(&view, "node-0").unwrap();
        let annotations = [("aligned-nics", "1"), ("nic-role", "storage")];
        let claim = planned(&view, NVIDIA, 1, &annotations).unwrap();
        let all = fill(&view, &claim);
        assert_eq!(all.len(), pods, "{}", machine.fixture);
        for nic in all.iter().flatten().filter_map(|device| node.nics.get(device)) {
            assert_eq!(text(nic, attribute::ROLE), Some("storage"), "{}", machine.fixture);
            assert_eq!(rate(nic), Some(expected), "{}", machine.fixture);
        }
    }
    let view = cluster(&[DGX_B200]);
    let management = [("aligned-nics", "1"), ("nic-role", "management")];
    assert!(planned(&view, NVIDIA, 1, &management).is_none());
}

/// A claim written by hand gets any other NIC, but none that manages NVLink switches.
#[test]
fn no_claim_by_hand_gets_a_nic_that_manages_switches() {
    let view = cluster(&[DGX_B200]);
    let node = NodeDevices::new(&view, "node-0").unwrap();
    let spec = json!({"devices": {"requests": [
        {"name": "nic", "exactly": {"deviceClassName": "dranet.net"}},
    ]}});
    let all = fill(&view, &serde_json::from_value(spec).unwrap());
    let managers =
        node.nics.values().filter(|nic| text(nic, attribute::ROLE) == Some("management")).count();
    assert_eq!((managers, all.len()), (4, node.nics.len() - managers));
    // Compute NICs are given first.
    let mut first = all.iter().flatten().filter_map(|device| node.nics.get(device)).take(8);
    assert!(first.all(|nic| text(nic, attribute::ROLE) == Some("compute")));
}

/// Nodes whose driver publishes no roles serve pods beside others.
#[test]
fn nodes_of_older_drivers_serve_pods_during_an_update() {
    let view = cluster(&[DGX_H100]);
    let claim = planned(&view, NVIDIA, 1, &[("aligned-nics", "1")]).unwrap();
    let mut older = cluster(&[]);
    add_without_roles(&mut older, "node-0", DGX_H100);
    assert_eq!(fill(&older, &claim).len(), 8, "claims of today serve nodes of yesterday");
    let claim = planned(&older, NVIDIA, 1, &[("aligned-nics", "1")]).unwrap();
    assert_eq!(fill(&older, &claim).len(), 8);
    assert_eq!(fill(&view, &claim).len(), 8);
    assert!(
        planned(&older, NVIDIA, 1, &[("aligned-nics", "1"), ("nic-role", "storage")]).is_none()
    );
}
