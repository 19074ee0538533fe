//! NICs without RDMA, such as those of virtual machines with GPUDirect-TCPX: for pods that name a
//! class of such NICs, and for no others.

use crate::cluster::*;
use admission::admit::{AdmitError, admit};
use admission::plan::Policy;
use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index};
use dra_allocator::{AllocatedState, Claim, ClaimName, Limits, Outcome, allocate};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimSpec};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::slice;

const CLASS: &str = "ethernet.example.com";
const NAMED: &[(&str, &str)] = &[("aligned-nics", "1"), ("nic-class", CLASS)];
/// NICs of our driver that can do no RDMA.
const WITHOUT_RDMA: &str =
    r#"device.driver == "dra.net" && !device.attributes["dra.net"].?rdma.orValue(false)"#;

fn with_class(machines: &[Machine], selector: &str) -> ClusterView {
    let mut view = cluster(machines);
    let class = json!({ "metadata": { "name": CLASS }, "spec": { "selectors": [
        { "cel": { "expression": selector } },
    ] } });
    view.apply(serde_json::from_value::<DeviceClass>(class).unwrap()).unwrap();
    view
}

fn claim(view: &ClusterView, annotations: &[(&str, &str)]) -> Result<ResourceClaimSpec, String> {
    let has_gpu = annotations.iter().all(|(name, _)| *name != "gpus");
    let resource = if has_gpu { "nvidia.com/gpu" } else { "cpu" };
    let verdict = admit(&pod(resource, 1, annotations), view, &Policy::default());
    match verdict {
        Ok(verdict) => Ok(verdict.planned.unwrap().plan.claim),
        Err(AdmitError::Denied(denial)) => Err(denial.to_string()),
        Err(error) => panic!("{error}"),
    }
}

/// The names of the devices that the scheduler gives on the node.
fn given(view: &ClusterView, spec: &ResourceClaimSpec, node: &str) -> BTreeSet<String> {
    let claim = Claim::from_spec(ClaimName::new("default", "a"), spec).unwrap();
    let limits = Limits::steps(Policy::default().max_steps);
    let state = AllocatedState::new();
    let (inventory, settings) = (view.inventory(), view.settings());
    match allocate(inventory, node, slice::from_ref(&claim), &state, settings, limits).outcome {
        Outcome::Allocated(allocations) => allocations
            .iter()
            .flat_map(|allocation| &allocation.results)
            .map(|result| result.device.device.to_string())
            .collect(),
        _ => BTreeSet::new(),
    }
}

fn pair() -> BTreeSet<String> {
    ["gpu-0", "pci-0000-00-03-0"].map(str::to_owned).into()
}

#[test]
fn a_pod_that_names_their_class_gets_one_beside_its_gpu() {
    let view = with_class(&[H200_VM], WITHOUT_RDMA);
    let spec = claim(&view, NAMED).unwrap();
    assert_eq!(given(&view, &spec, "node-0"), pair());
}

#[test]
fn other_pods_do_not_get_them() {
    let view = with_class(&[H200_VM], WITHOUT_RDMA);
    insta::assert_snapshot!(claim(&view, &[("aligned-nics", "1")]).unwrap_err());
}

/// What the class says decides, and not what there is.
#[test]
fn a_class_that_would_select_rdma_nics_means_these() {
    for class in [
        r#"device.driver == "dra.net""#,
        r#"device.attributes["dra.net"].pciVendor == "Red Hat, Inc.""#,
    ] {
        let view = with_class(&[H200_VM], class);
        let denied = claim(&view, NAMED).unwrap_err();
        assert!(denied.contains("0 with such NICs; 1 node has NICs without RDMA"), "{denied}");
    }
    let view = with_class(&[H200_VM, DGX_H100], r#"device.driver == "dra.net""#);
    let spec = claim(&view, NAMED).unwrap();
    assert!(given(&view, &spec, "node-0").is_empty());
    assert_eq!(given(&view, &spec, "node-1").len(), 2);
}

#[test]
fn a_pod_without_gpus_gets_one_too() {
    let view = with_class(&[H200_VM], WITHOUT_RDMA);
    let asked: &[_] = &[("gpus", "0"), ("aligned-nics", "1"), ("nic-class", CLASS)];
    let spec = claim(&view, asked).unwrap();
    assert_eq!(given(&view, &spec, "node-0"), ["pci-0000-00-03-0".to_owned()].into());
    let denied = claim(&view, &asked[..2]).unwrap_err();
    assert!(denied.contains("`dranet.net`; 1 node has NICs without RDMA"), "{denied}");
}

/// The claim fits on the machine that then comes.
#[test]
fn they_can_be_asked_for_before_any_is_known() {
    let policy = Policy { admit_unknown: true, ..Policy::default() };
    let nobody = with_class(&[], WITHOUT_RDMA);
    let verdict = admit(&pod("nvidia.com/gpu", 1, NAMED), &nobody, &policy).unwrap();
    let spec = verdict.planned.unwrap().plan.claim;
    assert_eq!(given(&with_class(&[H200_VM], WITHOUT_RDMA), &spec, "node-0"), pair());
    assert!(given(&with_class(&[H100], WITHOUT_RDMA), &spec, "node-0").is_empty());
}

#[test]
fn machines_with_rdma_are_not_in_the_way() {
    let view = with_class(&[DGX_H100, H200_VM], WITHOUT_RDMA);
    let spec = claim(&view, NAMED).unwrap();
    assert!(given(&view, &spec, "node-0").is_empty());
    assert_eq!(given(&view, &spec, "node-1"), pair());
}

/// A node as drivers published it on a real machine, and the claim that the scheduler allocated there
/// (`tests/fixtures/nvidia-h200/SOURCE.md`).
#[test]
fn the_plan_for_a_recorded_machine_is_the_claim_that_was_allocated() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/nvidia-h200");
    let view = snapshot::load(&Path::new(folder).join("cluster.yaml")).unwrap().0;
    let annotations = &[("aligned-nics", "1"), ("nic-class", "ethernet")];
    let spec = claim(&view, annotations).unwrap();
    let [recorded] = &snapshot::objects(&Path::new(folder).join("claim.yaml")).unwrap()[..] else {
        panic!("one claim");
    };
    let of_recorded: ResourceClaim = serde_json::from_value(recorded.clone()).unwrap();
    assert_eq!(without_defaults(&spec), without_defaults(&of_recorded.spec.unwrap()));
    let results = of_recorded.status.unwrap().allocation.unwrap().devices.unwrap().results.unwrap();
    let allocated: BTreeSet<String> = results.into_iter().map(|result| result.device).collect();
    assert_eq!(given(&view, &spec, "gpu-node"), allocated);
}

/// The requests' classes and selectors, and the constraints: the API server adds defaults.
fn without_defaults(spec: &ResourceClaimSpec) -> String {
    let devices = spec.devices.clone().unwrap_or_default();
    let exactly = devices.requests.into_iter().flatten().map(|it| (it.name, it.exactly.unwrap()));
    let requests: Vec<_> =
        exactly.map(|(name, it)| (name, it.device_class_name, it.count, it.selectors)).collect();
    format!("{requests:?} {:?}", devices.constraints)
}
