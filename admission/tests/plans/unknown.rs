//! `--unknown-shape=admit`: what is planned before any machine is known, for each kind of pod, on the
//! machines that then come.

use crate::cluster::*;
use admission::admit::{Verdict, admit};
use admission::plan::Policy;
use cluster_model::view::{ClusterView, Index as _};
use dra_allocator::{AllocatedState, Claim, ClaimName, Limits, Outcome, allocate};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::slice;

const NVIDIA: &str = "nvidia.com/gpu";

/// A kind of pod: the resource, the number of its units, and annotations.
type Kind = (&'static str, u32, &'static [(&'static str, &'static str)]);

const PODS: [Kind; 18] = [
    (NVIDIA, 1, &[("aligned-nics", "1")]),
    (NVIDIA, 1, &[("aligned-nics", "2"), ("alignment-policy", "preferred")]),
    (NVIDIA, 2, &[("aligned-nics", "2")]),
    (NVIDIA, 2, &[("aligned-nics", "2"), ("pairing", "group")]),
    (NVIDIA, 8, &[("aligned-nics", "per-gpu")]),
    (NVIDIA, 1, &[("aligned-nics", "1"), ("alignment", "root")]),
    (NVIDIA, 1, &[("aligned-nics", "1"), ("nic-role", "storage")]),
    (NVIDIA, 1, &[("aligned-nics", "1"), ("rail", "same")]),
    ("nvidia.com/mig-1g.10gb", 1, &[("aligned-nics", "1")]),
    ("nvidia.com/mig-1g.10gb", 2, &[("aligned-nics", "1")]),
    ("cpu", 4, &[("gpus", "1"), ("gpu-class", "mig.nvidia.com"), ("aligned-nics", "1")]),
    ("cpu", 4, &[("gpus", "1"), ("gpu-class", "gpu.amd.com"), ("aligned-nics", "1")]),
    ("amd.com/gpu", 1, &[("aligned-nics", "1")]),
    ("cpu", 4, &[("gpus", "0"), ("aligned-nics", "1")]),
    ("cpu", 4, &[("gpus", "0"), ("aligned-nics", "2")]),
    ("cpu", 4, &[("gpus", "0"), ("aligned-nics", "5"), ("alignment-policy", "preferred")]),
    ("cpu", 4, &[("gpus", "0"), ("aligned-nics", "2"), ("nic-role", "storage")]),
    ("cpu", 4, &[("gpus", "0"), ("aligned-nics", "1"), ("rail", "same")]),
];

const MACHINES: [(&str, Machine); 6] = [
    ("DGX H100", DGX_H100),
    ("ND H100 v5", H100),
    ("GB300", GB300),
    ("DGX B200", DGX_B200),
    ("MI300X", MI300X),
    ("P4d", P4D),
];

/// With the class of parts of GPUs that NVIDIA's driver installs.
fn with_parts(mut view: ClusterView) -> ClusterView {
    view.apply(mig_class()).unwrap();
    view
}

fn planned(pod: &Value, view: &ClusterView) -> Result<ResourceClaimSpec, String> {
    let policy = Policy { admit_unknown: true, ..Policy::default() };
    let verdict: Result<Verdict, _> = admit(pod, view, &policy);
    let verdict = verdict.map_err(|denial| denial.to_string())?;
    Ok(verdict.planned.unwrap().plan.claim)
}

fn fits(view: &ClusterView, spec: &ResourceClaimSpec) -> bool {
    let claim = Claim::from_spec(ClaimName::new("default", "a"), spec).unwrap();
    let limits = Limits::steps(Policy::default().max_steps);
    let state = AllocatedState::new();
    let (inventory, settings) = (view.inventory(), view.settings());
    let attempt = allocate(inventory, "node-0", slice::from_ref(&claim), &state, settings, limits);
    matches!(attempt.outcome, Outcome::Allocated(_))
}

/// A pod says for itself whether it waits.
#[test]
fn the_annotation_of_a_pod_decides_before_the_operator() {
    let nobody = with_parts(cluster(&[]));
    for (said, by_operator, waits) in [
        (None, false, false),
        (None, true, true),
        (Some("admit"), false, true),
        (Some("deny"), true, false),
    ] {
        let mut annotations = vec![("aligned-nics", "1")];
        annotations.extend(said.map(|said| ("unknown-shape", said)));
        let pod = pod("nvidia.com/gpu", 1, &annotations);
        let policy = Policy { admit_unknown: by_operator, ..Policy::default() };
        assert_eq!(admit(&pod, &nobody, &policy).is_ok(), waits, "{said:?}, {by_operator}");
    }
}

/// The machines on which a pod fits if it is planned before they are known, and those on which it fits
/// only if it is planned afterwards.
#[test]
fn what_is_planned_for_unknown_machines_fits_on_them() {
    let nobody = with_parts(cluster(&[]));
    let whole = MACHINES.map(|(name, machine)| (name, with_parts(cluster(&[machine]))));
    let all: Vec<_> = whole.into_iter().chain([("DGX H100 in parts", divided(DGX_H100))]).collect();
    let mut text = String::new();
    for (resource, units, annotations) in PODS {
        let mut pod = pod(resource, units, annotations);
        pod["metadata"]["ownerReferences"] = json!([
            { "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true },
        ]);
        writeln!(text, "{units} {resource} {annotations:?}").unwrap();
        let claim = match planned(&pod, &nobody) {
            Ok(claim) => claim,
            Err(denial) => {
                writeln!(text, "    {denial}").unwrap();
                continue;
            }
        };
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (name, known) in &all {
            let fits_anew = planned(&pod, known).is_ok_and(|claim| fits(known, &claim));
            if fits(known, &claim) {
                assert!(fits_anew, "{name}: {annotations:?}");
                before.push(*name);
            } else if fits_anew {
                after.push(*name);
            }
        }
        writeln!(text, "    fits on {before:?}, planned again also on {after:?}").unwrap();
    }
    insta::assert_snapshot!(text);
}
