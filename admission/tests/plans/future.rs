//! What others do with our claims: autoscalers try them on templates of nodes that do not exist yet, and
//! quotas count their alternatives.

use crate::cluster::*;
use admission::admit::{Planned, admit};
use admission::plan::Policy;
use cluster_model::node_devices::published;
use cluster_model::view::ClusterView;
use dra_allocator::{AllocatedState, Claim, ClaimName, Limits, Outcome, allocate};
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::test_runner::{Config, TestRunner};
use publication::sharing::SharingArgs;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::slice;

/// Number of random fleets.
const FLEETS: u32 = 60;

/// Machines of NVIDIA's GPUs.
const MACHINES: [Machine; 7] = [GB300, GB200, H100, A100, P4D, HGX, DGX_B200];

/// A fleet, the NICs that are in trouble, and a pod.
type Case = (Vec<Machine>, u16, (u32, &'static str, &'static str));

fn cases() -> impl Strategy<Value = Case> {
    let gpus = 1_u32..=8;
    let nics = prop::sample::select(vec!["1", "2", "4", "8", "per-gpu"]);
    let policy = prop::sample::select(vec!["required", "preferred"]);
    (subsequence(MACHINES.to_vec(), 1..=3), any::<u16>(), (gpus, nics, policy))
}

/// A pod's plan on a fleet of which some NICs are in trouble; `None` if it is denied.
fn planned((machines, sick, (gpus, nics, policy)): &Case) -> Option<(ClusterView, Planned)> {
    let mut view = cluster(&[]);
    for (index, machine) in machines.iter().enumerate() {
        let turn = u32::try_from(7 * index).unwrap();
        let built = Built::new(*machine, &[], &SharingArgs::default());
        let built = built.with_nics(|nic, device| trouble(sick.rotate_left(turn), nic, device));
        built.put(&mut view, &format!("node-{index}"), index);
    }
    let annotations = [("aligned-nics", *nics), ("alignment-policy", *policy)];
    let pod = pod("nvidia.com/gpu", *gpus, &annotations);
    let planned = admit(&pod, &view, &Policy::default()).ok()?.planned?;
    Some((view, planned))
}

/// Lets the port of a NIC be down, its link degraded, or taints it, as the bits say.
fn trouble(sick: u16, nic: usize, device: &mut Value) {
    if sick >> (nic % 16) & 1 == 0 {
        return;
    }
    match nic % 3 {
        0 => device["attributes"]["dranet.io/portState"] = json!({ "string": "Down" }),
        1 => device["attributes"]["dranet.io/degraded"] = json!({ "bool": true }),
        _ => {
            let taint = json!({ "key": "dranet.io/port-down", "effect": "NoSchedule" });
            device["taints"] = json!([taint]);
        }
    }
}

/// What keeps a claim from fitting on a node.
fn misfit(view: &ClusterView, node: &str, planned: &Planned) -> Option<String> {
    let claim = Claim::from_spec(ClaimName::new("default", "a"), &planned.plan.claim).unwrap();
    let limits = Limits::steps(Policy::default().max_steps);
    let state = AllocatedState::new();
    let (inventory, settings) = (view.inventory(), view.settings());
    let attempt = allocate(inventory, node, slice::from_ref(&claim), &state, settings, limits);
    match attempt.outcome {
        Outcome::Allocated(_) => None,
        other => Some(format!("{other:?}")),
    }
}

/// The same cluster when the devices of a node have recovered.
fn recovered(view: &ClusterView, node: &str) -> ClusterView {
    let mut recovered = view.clone();
    for (_, device) in published(view, node) {
        recovered.suppose_recovered(device.id());
    }
    recovered
}

fn run(law: impl Fn(Case) -> Result<(), TestCaseError>) {
    if let Err(error) = TestRunner::new(Config::with_cases(FLEETS)).run(&cases(), law) {
        panic!("{error}");
    }
}

/// A claim is for machines, not for their state: whatever is down where it is planned, a healthy template
/// of each machine that the plan serves has devices for it, and so has the node once it recovers.
#[test]
fn what_passes_keeps_no_template_from_matching() {
    run(|case| {
        let Some((view, planned)) = planned(&case) else { return Ok(()) };
        let served = planned.plan.machines.iter().filter(|machine| machine.is_served);
        for node in served.flat_map(|machine| &machine.nodes) {
            let index: usize = node.strip_prefix("node-").unwrap().parse().unwrap();
            let template = recovered(&cluster(&[case.0[index]]), "node-0");
            let why = misfit(&template, "node-0", &planned);
            prop_assert_eq!(why, None, "{:?}: a template of {}", &case, node);
            let why = misfit(&recovered(&view, node), node, &planned);
            prop_assert_eq!(why, None, "{:?}: {} when it recovers", &case, node);
        }
        Ok(())
    });
}

/// Kueue charges the largest count of the alternatives of a request, which must be of one class.
#[test]
fn alternatives_of_a_request_have_one_class() {
    run(|case| {
        let Some((_, planned)) = planned(&case) else { return Ok(()) };
        let devices = planned.plan.claim.devices.unwrap_or_default();
        for request in devices.requests.iter().flatten() {
            let alternatives = request.first_available.iter().flatten();
            let classes: BTreeSet<&str> =
                alternatives.map(|alternative| alternative.device_class_name.as_str()).collect();
            prop_assert!(classes.len() <= 1, "{case:?}: {} of {classes:?}", request.name);
        }
        Ok(())
    });
}
