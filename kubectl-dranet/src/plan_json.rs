//! `plan -o json`: a single object for programs.

use crate::answer::{
    Denial, Denied, ExpectedAtStart, Pair, Plan, PlanDomain, PlanFabric, PlanNode, Planned,
    RequestedDevice, Unchanged,
};
use crate::predicted::nodes;
use crate::text;
use admission::admit::{self, Verdict};
use admission::denial;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::node_devices::NodeDevices;
use cluster_model::predict::{Prediction, predict};
use cluster_model::published_device::PublishedDevice as _;
use cluster_model::view::ClusterView;
use dra_allocator::{Claim, Device, DeviceResult};
use fabric_controller::preview::Preview;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use serde_json::Value;
use std::collections::BTreeMap;

/// The plan, and what each node would allocate for it now. `claims` are those of the pod that have no devices
/// yet, admission's first; `kept_off` are the nodes on which the pod
/// cannot start now, with the reason.
pub(crate) fn planned(
    (view, claims, kept_off): (&ClusterView, &[Claim], &BTreeMap<&str, String>),
    verdict: &Verdict,
    planned: &admit::Planned,
    template: &Value,
    fabric: Option<&Preview>,
) -> anyhow::Result<String> {
    let decided = &planned.plan;
    let nodes = nodes(view)
        .map(|name| node((view, name), kept_off.get(name), (claims, &decided.claim)))
        .collect();
    text::answer(
        &Plan::Planned(Box::new(Planned {
            pod: verdict.pod.clone(),
            template: template.clone(),
            join: decided.join.to_owned(),
            level: decided.nearness.to_string(),
            why: decided.why.clone(),
            steps: decided.steps,
            warnings: verdict.warnings.clone(),
            nodes,
            fabric: fabric.map(of_group),
        })),
        false,
    )
}

/// A pod that is admitted without a new plan.
pub(crate) fn unchanged(verdict: &Verdict) -> anyhow::Result<String> {
    let (pod, warnings) = (verdict.pod.clone(), verdict.warnings.clone());
    text::answer(&Plan::Unchanged(Unchanged { pod, template: (), warnings }), false)
}

/// A denied pod.
pub(crate) fn denied(denial: &denial::Denial) -> anyhow::Result<String> {
    let denied = Denial {
        annotation: denial.annotation().to_owned(),
        value: denial.value().to_owned(),
        allowed: denial.what_is_allowed().map(str::to_owned),
        message: denial.to_string(),
    };
    text::answer(&Plan::Denied(Denied { denied }), false)
}

/// Where the group of the pod would be placed.
fn of_group(Preview { size, places, answer, domains }: &Preview) -> PlanFabric {
    let domains = domains.iter().map(|(LevelDomain { level, name }, pods)| PlanDomain {
        level: level.name().to_owned(),
        name: name.clone(),
        pods: *pods,
    });
    PlanFabric {
        size: *size,
        places: places.iter().cloned().collect(),
        chosen: answer.clone().ok(),
        domains: answer.is_ok().then(|| domains.collect()),
        waits: answer.clone().err(),
    }
}

fn node(
    (view, name): (&ClusterView, &str),
    kept_off: Option<&String>,
    (claims, spec): (&[Claim], &ResourceClaimSpec),
) -> PlanNode {
    let prediction = match kept_off {
        Some(reason) => Prediction::NoFit(reason.clone()),
        None => predict(view, name, claims),
    };
    let (fits, exact, reason, allocations) = match prediction {
        Prediction::Fits { allocations, is_exact } => {
            (Some(true), Some(is_exact), None, allocations)
        }
        Prediction::NoFit(reason) => (Some(false), None, Some(reason), Vec::new()),
        Prediction::Unknown(reason) => (None, None, Some(reason), Vec::new()),
    };
    // The first claim is admission's; the devices of the pod's other claims are not the plan's.
    let results: Vec<_> = allocations.iter().take(1).flat_map(|claim| &claim.results).collect();
    PlanNode {
        name: name.to_owned(),
        fits,
        exact,
        reason,
        devices: results.iter().map(|result| device(result)).collect(),
        pairs: pairs(view, name, &results),
        at_start: ExpectedAtStart::new(view, name, [spec].into_iter(), &allocations),
    }
}

fn device(DeviceResult { request, device, .. }: &DeviceResult) -> RequestedDevice {
    RequestedDevice {
        request: request.to_string(),
        driver: device.driver.to_string(),
        pool: device.pool.to_string(),
        device: device.device.to_string(),
    }
}

/// All combinations of an allocated GPU and an allocated NIC, and the path between them.
fn pairs(view: &ClusterView, node: &str, results: &[&DeviceResult]) -> Vec<Pair> {
    let Some(devices) = NodeDevices::new(view, node) else { return Vec::new() };
    let is_given = |device: &Device| results.iter().any(|it| it.device == *device.id());
    let gpus = devices.gpus.iter().filter(|(_, gpu)| is_given(gpu));
    let pairs = gpus.flat_map(|gpu| devices.nics.iter().map(move |nic| (gpu, nic)));
    pairs
        .filter(|(_, (_, nic))| is_given(nic))
        .map(|((gpu_at, gpu), (nic_at, nic))| Pair {
            gpu: gpu.name().to_owned(),
            nic: nic.name().to_owned(),
            path: devices.topology.path(*gpu_at, *nic_at),
        })
        .collect()
}
