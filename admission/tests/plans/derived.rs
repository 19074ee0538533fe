//! What cells would cost as derived attributes (KEP-6080, feature `DRADerivedAttributes`, alpha in 1.37): a request
//! computes the cell of a device from its bus ID, and a constraint compares that, without alternatives.
//!
//! The table is why admission writes no such claims yet; `docs/develop/joins.md` has the reasons.

use crate::cluster::*;
use admission::admit::admit;
use admission::plan::{Plan, Policy};
use cluster_model::view::ClusterView;
use dra_allocator::{
    AllocatedState, Claim, ClaimName, DeviceId, FeatureGates, Limits, MinorVersion, Outcome,
    Settings, allocate,
};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use serde_json::{Value, json};
use std::fmt::Write as _;

const NODE: &str = "node-0";
const BUS_ID: &str = r#"device.attributes["resource.kubernetes.io"].?pciBusID.orValue("")"#;
const CELL: &str = "derived.dranet.io/cell";
/// The most steps of a search here.
const STEPS_MAX: u64 = 100_000;

/// The bus IDs of each alternative of a request, and what else its selectors ask for.
fn cells(alternatives: &[Value]) -> (Vec<Vec<String>>, String) {
    let mut all = Vec::new();
    let mut rest = String::new();
    for alternative in alternatives {
        let text = alternative["selectors"][0]["cel"]["expression"].as_str().unwrap();
        let (others, list) = text.split_once(BUS_ID).unwrap();
        all.push(list.split('"').skip(1).step_by(2).map(str::to_owned).collect());
        others.trim_end().trim_end_matches("&&").trim_end().clone_into(&mut rest);
    }
    (all, rest)
}

/// The request with the number of the cell as a derived attribute.
fn derived_request(request: &Value) -> Value {
    let alternatives = request["firstAvailable"].as_array().unwrap();
    let (cells, others) = cells(alternatives);
    let number = cells.iter().enumerate().rev().fold("-1".to_owned(), |rest, (number, cell)| {
        format!("({BUS_ID} in {} ? {number} : {rest})", json!(cell))
    });
    let listed: Vec<_> = cells.iter().flatten().collect();
    let selector = format!("{others} && {BUS_ID} in {}", json!(listed));
    json!({"name": request["name"], "exactly": {
        "deviceClassName": alternatives[0]["deviceClassName"],
        "allocationMode": "ExactCount",
        "count": alternatives[0]["count"],
        "selectors": [{"cel": {"expression": selector}}],
        "derivedAttributes": [{"name": CELL, "expression": number}],
    }})
}

/// The claim with derived cells in place of alternatives.
fn derived(claim: &ResourceClaimSpec) -> ResourceClaimSpec {
    let mut claim = serde_json::to_value(claim).unwrap();
    let requests = claim["devices"]["requests"].as_array().unwrap();
    let names = requests.iter().map(|request| request["name"].as_str().unwrap());
    let nics = names.filter(|name| name.starts_with("nic"));
    let pairs = nics.map(|nic| json!([nic, nic.replace("nic", "gpu")]));
    let pairs: Vec<_> =
        pairs.map(|pair| json!({"matchAttribute": CELL, "requests": pair})).collect();
    let requests: Vec<_> = requests.iter().map(derived_request).collect();
    claim["devices"]["requests"] = requests.into();
    let constraints = claim["devices"]["constraints"].as_array_mut().unwrap();
    constraints.retain(|constraint| {
        let requests = constraint["requests"].as_array();
        requests.into_iter().flatten().all(|name| !name.as_str().unwrap().contains('/'))
    });
    constraints.extend(pairs);
    serde_json::from_value(claim).unwrap()
}

/// Whether a pod fits and the steps of the search, in each state: all sets of cells in use.
fn searches(
    view: &ClusterView,
    claim: &ResourceClaimSpec,
    settings: &Settings,
    in_use: &[Vec<DeviceId>],
) -> Vec<(bool, u64)> {
    let claims = [Claim::from_spec(ClaimName::new("default", "a"), claim).unwrap()];
    let search = |cells: usize| {
        let mut state = AllocatedState::new();
        let used = in_use.iter().enumerate().filter(|(number, _)| cells & (1 << number) != 0);
        for device in used.flat_map(|(_, devices)| devices) {
            state.insert(device.clone());
        }
        let limits = Limits::steps(STEPS_MAX);
        let attempt = allocate(view.inventory(), NODE, &claims, &state, settings, limits);
        match attempt.outcome {
            Outcome::Allocated(_) => (true, attempt.steps),
            Outcome::NoFit(_) => (false, attempt.steps),
            other => panic!("{other:?}"),
        }
    };
    (0..1 << in_use.len()).map(search).collect()
}

fn plan(view: &ClusterView, resource: &str, gpus: u32, alignment: &str) -> Plan {
    let pod = pod(resource, gpus, &[("aligned-nics", "per-gpu"), ("alignment", alignment)]);
    let plan = admit(&pod, view, &Policy::default()).unwrap().planned.unwrap().plan;
    assert_eq!(plan.join, "cells");
    plan
}

#[test]
fn derived_cells_serve_the_same_pods_in_fewer_steps() {
    let mut gates = FeatureGates::defaults_of(MinorVersion::V1_37);
    assert!(gates.set("DRADerivedAttributes", true));
    let with_gate = Settings::with_gates(MinorVersion::V1_37, gates);
    let mut table = String::new();
    let of_nodes = [(GB300, "nvidia.com/gpu", "numa", 1), (GB300, "nvidia.com/gpu", "numa", 2)];
    let of_switches = [1, 2, 4].map(|gpus| (A100, "nvidia.com/gpu", "switch", gpus));
    for (machine, resource, alignment, gpus) in of_nodes.into_iter().chain(of_switches) {
        let view = cluster(&[machine]);
        let plan = plan(&view, resource, gpus, alignment);
        let claim = serde_json::to_value(&plan.claim).unwrap();
        let (listed, _) =
            cells(claim["devices"]["requests"][0]["firstAvailable"].as_array().unwrap());
        let in_use = devices_by_cell(&view, &claim);
        let ours = searches(&view, &plan.claim, view.settings(), &in_use);
        let other = searches(&view, &derived(&plan.claim), &with_gate, &in_use);
        let fits = |all: &[(bool, u64)]| all.iter().map(|(fits, _)| *fits).collect::<Vec<_>>();
        assert_eq!(fits(&ours), fits(&other), "{}: {gpus}", machine.fixture);
        let most = |all: &[(bool, u64)]| all.iter().map(|(_, steps)| *steps).max().unwrap();
        writeln!(
            table,
            "{:18} {gpus} GPU  {} alternatives, {:3} steps, at most {:4}; derived {:3} steps, at most {:4}",
            machine.fixture,
            listed.len(),
            ours[0].1,
            most(&ours),
            other[0].1,
            most(&other),
        )
        .unwrap();
    }
    insta::assert_snapshot!(table);
}

/// The devices of the cells that a claim lists.
fn devices_by_cell(view: &ClusterView, claim: &Value) -> Vec<Vec<DeviceId>> {
    let requests = claim["devices"]["requests"].as_array().unwrap();
    let listed =
        requests.iter().map(|request| cells(request["firstAvailable"].as_array().unwrap()).0);
    let listed: Vec<_> = listed.collect();
    let devices = crate::laws::usable(view, NODE);
    let gpus = devices.gpus.iter().map(|(at, it)| (at.to_string(), it.id().clone()));
    let nics = devices.nics.iter().map(|(at, it)| (at.to_string(), it.id().clone()));
    let all: Vec<_> = gpus.chain(nics).collect();
    (0..listed[0].len())
        .map(|cell| {
            let of_cell =
                all.iter().filter(|(at, _)| listed.iter().any(|it| it[cell].contains(at)));
            of_cell.map(|(_, id)| id.clone()).collect()
        })
        .collect()
}
