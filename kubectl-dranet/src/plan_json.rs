//! `plan -o json`: a single object for programs.

use crate::predicted::nodes;
use admission::admit::{Planned, Verdict};
use admission::denial::Denial;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::names::attribute;
use cluster_model::node_devices::{NodeDevices, text};
use cluster_model::predict::{Prediction, predict};
use cluster_model::view::ClusterView;
use dra_allocator::{Claim, ClaimAllocation, ClaimName, Device, DeviceResult};
use fabric_controller::preview::Preview;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use topology_graph::PciAddress;

/// The plan, and what each node would allocate for it now. `kept_off` are the nodes on which the pod
/// cannot start now, with the reason.
pub(crate) fn planned(
    (view, kept_off): (&ClusterView, &BTreeMap<&str, String>),
    verdict: &Verdict,
    planned: &Planned,
    template: &Value,
    fabric: Option<&Preview>,
) -> anyhow::Result<String> {
    let decided = &planned.plan;
    let claim = Claim::from_spec(ClaimName::new("", "plan"), &decided.claim)?;
    let nodes: Vec<_> =
        nodes(view).map(|name| node(view, name, kept_off.get(name), &claim)).collect();
    let mut answer = json!({
        "pod": verdict.pod,
        "template": template,
        "join": decided.join,
        "level": decided.nearness.to_string(),
        "why": decided.why,
        "steps": decided.steps,
        "warnings": verdict.warnings,
        "nodes": nodes,
    });
    if let Some(Preview { size, places, answer: chosen, domains }) = fabric {
        let domains: Vec<_> = domains.iter().map(domain).collect();
        let places: BTreeMap<_, _> = places.iter().cloned().collect();
        answer["fabric"] = match chosen {
            Ok(fabric) => {
                json!({ "size": size, "places": places, "chosen": fabric, "domains": domains })
            }
            Err(why) => json!({ "size": size, "places": places, "waits": why }),
        };
    }
    pretty(&answer)
}

/// A pod that is admitted without a new plan.
pub(crate) fn unchanged(verdict: &Verdict) -> anyhow::Result<String> {
    pretty(&json!({ "pod": verdict.pod, "template": null, "warnings": verdict.warnings }))
}

/// A denied pod.
pub(crate) fn denied(denial: &Denial) -> anyhow::Result<String> {
    pretty(&json!({ "denied": {
        "annotation": denial.annotation(),
        "value": denial.value(),
        "allowed": denial.what_is_allowed(),
        "message": denial.to_string(),
    } }))
}

fn domain((domain, pods): (&LevelDomain, &usize)) -> Value {
    json!({ "level": domain.level.name(), "name": domain.name, "pods": pods })
}

fn node(view: &ClusterView, name: &str, kept_off: Option<&String>, claim: &Claim) -> Value {
    let prediction = match kept_off {
        Some(reason) => Prediction::NoFit(reason.clone()),
        None => predict(view, name, std::slice::from_ref(claim)),
    };
    let (fits, exact, reason, allocations) = match prediction {
        Prediction::Fits { allocations, is_exact } => {
            (Some(true), Some(is_exact), None, allocations)
        }
        Prediction::NoFit(reason) => (Some(false), None, Some(reason), Vec::new()),
        Prediction::Unknown(reason) => (None, None, Some(reason), Vec::new()),
    };
    let results: Vec<_> =
        allocations.iter().flat_map(|ClaimAllocation { results, .. }| results).collect();
    json!({
        "name": name,
        "fits": fits,
        "exact": exact,
        "reason": reason,
        "devices": results.iter().map(|result| device(result)).collect::<Vec<_>>(),
        "pairs": pairs(view, name, &results),
    })
}

fn device(result: &DeviceResult) -> Value {
    let DeviceResult { request, device, .. } = result;
    json!({
        "request": request.to_string(),
        "driver": device.driver.to_string(),
        "pool": device.pool.to_string(),
        "device": device.device.to_string(),
    })
}

/// All combinations of an allocated GPU and an allocated NIC, and the path between them.
fn pairs(view: &ClusterView, node: &str, results: &[&DeviceResult]) -> Vec<Value> {
    let Some(devices) = NodeDevices::of(view, node) else { return Vec::new() };
    let given = |all: Vec<&&Device>| -> Vec<(PciAddress, String)> {
        let given =
            all.into_iter().filter(|it| results.iter().any(|result| result.device == *it.id()));
        given
            .filter_map(|device| {
                let address = text(device, attribute::PCI_BUS_ID)?.parse().ok()?;
                Some((address, device.id().device.to_string()))
            })
            .collect()
    };
    let gpus = given(devices.gpus.values().collect());
    let nics = given(devices.nics.values().collect());
    let pairs = gpus.iter().flat_map(|gpu| nics.iter().map(move |nic| (gpu, nic)));
    pairs
        .map(|((gpu, gpu_name), (nic, nic_name))| {
            let path = devices.topology.path(*gpu, *nic).to_string();
            json!({ "gpu": gpu_name, "nic": nic_name, "path": path })
        })
        .collect()
}

fn pretty(value: &Value) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}
