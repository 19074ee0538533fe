//! Machines with several virtual functions on each port: the functions of a port share its link, so
//! they are one NIC for a pod that asks for several.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "plans/cluster.rs"]
mod cluster;

use admission::admit::admit;
use admission::plan::{Plan, Policy};
use cluster::{DGX_H100, DGX_H100_VFS, HGX_VFS, Machine, cluster, pod};
use cluster_model::node_devices::NodeDevices;
use cluster_model::predict::hold;
use cluster_model::view::ClusterView;
use dra_allocator::{
    AllocatedState, Claim, ClaimName, Limits, MinorVersion, Outcome, Settings, allocate,
};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use topology_graph::PciAddress;

const INTENTS: &[(u32, &[(&str, &str)])] = &[
    (1, &[("aligned-nics", "1")]),
    (1, &[("aligned-nics", "2")]),
    (1, &[("aligned-nics", "2"), ("alignment", "switch")]),
    (2, &[("aligned-nics", "2")]),
    (2, &[("aligned-nics", "per-gpu")]),
    (4, &[("aligned-nics", "4")]),
    (8, &[("aligned-nics", "8")]),
    (8, &[("aligned-nics", "16")]),
    (1, &[("aligned-nics", "9"), ("alignment-policy", "preferred")]),
    (1, &[("aligned-nics", "2"), ("alignment-policy", "preferred")]),
    (0, &[("aligned-nics", "2"), ("gpus", "0")]),
    (0, &[("aligned-nics", "2"), ("gpus", "0"), ("nic-role", "storage")]),
    (0, &[("aligned-nics", "9"), ("gpus", "0"), ("alignment-policy", "preferred")]),
];

fn planned(
    view: &ClusterView,
    gpus: u32,
    annotations: &[(&str, &str)],
) -> Result<(Plan, Vec<String>), String> {
    let pod = if gpus == 0 {
        pod("cpu", 4, annotations)
    } else {
        pod("nvidia.com/gpu", gpus, annotations)
    };
    let verdict = admit(&pod, view, &Policy::default()).map_err(|error| error.to_string())?;
    Ok((verdict.planned.unwrap().plan, verdict.warnings))
}

/// The ports of the NICs that the scheduler allocates on a node, one for each NIC.
fn ports(view: &ClusterView, plan: &Plan, state: &mut AllocatedState) -> Option<Vec<PciAddress>> {
    let claim = Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap();
    let claims = [claim];
    let (inventory, steps) = (view.inventory(), Limits::steps(10_000));
    let found = allocate(inventory, "node-0", &claims, state, view.settings(), steps);
    let Outcome::Allocated(claims) = found.outcome else { return None };
    let devices = NodeDevices::new(view, "node-0")?;
    let given = devices
        .nics
        .iter()
        .filter(|(_, nic)| claims[0].results.iter().any(|result| result.device == *nic.id()));
    let ports = given.map(|(address, _)| devices.topology.port_of(*address)).collect();
    hold(state, &claims);
    Some(ports)
}

#[test]
fn plans_on_machines_with_virtual_functions() {
    let mut text = String::new();
    for machines in [&[DGX_H100_VFS][..], &[HGX_VFS], &[DGX_H100, DGX_H100_VFS]] {
        let names: Vec<_> = machines.iter().map(|machine| machine.fixture).collect();
        writeln!(text, "{names:?}").unwrap();
        let view = cluster(machines);
        for (gpus, annotations) in INTENTS {
            let answer = match planned(&view, *gpus, annotations) {
                Ok((plan, warnings)) => {
                    let note = plan.note("…");
                    [vec![note.split("; template").next().unwrap().to_owned()], warnings].concat()
                }
                Err(error) => vec![format!("denied: {error}")],
            };
            writeln!(text, "{gpus} GPU {annotations:?}\n    {}", answer.join("\n    ")).unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

/// As many pods as fit: none gets two functions of one port, unless it only prefers alignment and
/// no machine has enough ports.
#[test]
fn no_pod_gets_two_functions_of_one_port() {
    let machines: [&[Machine]; 3] = [&[DGX_H100_VFS], &[HGX_VFS], &[DGX_H100_VFS, DGX_H100]];
    let mut pods = 0;
    for machines in machines {
        let view = cluster(machines);
        for (gpus, annotations) in INTENTS {
            let Ok((plan, _)) = planned(&view, *gpus, annotations) else { continue };
            let mut state = view.inventory().state().clone();
            while let Some(ports) = ports(&view, &plan, &mut state) {
                let distinct: BTreeSet<_> = ports.iter().collect();
                let enough = ports.len() <= 8;
                assert_eq!(distinct.len() == ports.len(), enough, "{annotations:?}: {ports:?}");
                pods += 1;
            }
        }
    }
    assert!(pods > 60, "{pods} pods were scheduled");
}

/// What a scheduler cannot do is said.
#[test]
fn what_the_scheduler_cannot_keep_apart_is_said() {
    let mut view = cluster(&[DGX_H100_VFS]);
    let mut warnings = |version, nics| {
        view.set_settings(Settings::defaults_of(version));
        let (plan, warnings) = planned(&view, 2, &[("aligned-nics", nics)]).unwrap();
        let constraints = plan.claim.devices.unwrap().constraints.unwrap_or_default();
        let is_distinct = constraints.iter().any(|it| it.distinct_attribute.is_some());
        (is_distinct, warnings.into_iter().find(|it| it.contains("one port")))
    };
    assert_eq!(warnings(MinorVersion::V1_37, "4"), (true, None));
    assert_eq!(warnings(MinorVersion::V1_36, "2"), (true, None));
    let (is_distinct, warning) = warnings(MinorVersion::V1_34, "4");
    assert!(!is_distinct, "the API server would drop the constraint");
    assert!(warning.unwrap().contains("DRAConsumableCapacity"));
}

/// Preferred alignment is not denied on a machine with one port, and the plan says what it gives.
#[test]
fn preferred_nics_of_one_port_are_given_with_a_warning() {
    let view = cluster(&[DGX_H100_VFS]);
    let (plan, warnings) =
        planned(&view, 1, &[("aligned-nics", "9"), ("alignment-policy", "preferred")]).unwrap();
    let given = ports(&view, &plan, &mut view.inventory().state().clone()).unwrap();
    assert_eq!(given.len(), 9);
    assert!(warnings.iter().any(|it| it.contains("fewer ports")), "{warnings:?}");
}
