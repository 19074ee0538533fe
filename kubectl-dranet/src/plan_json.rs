//! `plan -o json`: a single object for programs.

use crate::answer::{
    Denial, Denied, ExpectedAtStart, Pair, PlanAnswer, PlanDomain, PlanFabric, PlanNode,
    PlannedPod, RequestedDevice, Unchanged,
};
use crate::plan::now::Now;
use crate::text;
use admission::admit::{self, Verdict};
use admission::denial;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::node_devices::NodeDevices;
use cluster_model::predict::{Fit, Prediction};
use cluster_model::published_device::PublishedDevice as _;
use cluster_model::view::ClusterView;
use dra_allocator::{Device, DeviceResult};
use fabric_controller::preview::Preview;
use serde_json::Value;

/// The plan, and what each node would allocate for it now.
pub(crate) fn planned(
    (view, now): (&ClusterView, &Now<'_>),
    verdict: &Verdict,
    planned: &admit::Planned,
    template: &Value,
    fabric: Option<&Preview>,
) -> anyhow::Result<String> {
    let decided = &planned.plan;
    let own = planned.template.metadata.name.as_deref();
    let nodes = view.present_nodes().map(|name| node((view, name), now, own)).collect();
    text::answer(
        &PlanAnswer::Planned(Box::new(PlannedPod {
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
    text::answer(&PlanAnswer::Unchanged(Unchanged { pod, template: (), warnings }), false)
}

/// A denied pod.
pub(crate) fn denied(denial: &denial::Denial) -> anyhow::Result<String> {
    let denied = Denial {
        annotation: denial.annotation().to_owned(),
        value: denial.value().to_owned(),
        allowed: denial.what_is_allowed().map(str::to_owned),
        message: denial.to_string(),
    };
    text::answer(&PlanAnswer::Denied(Denied { denied }), false)
}

/// A pod that the API server refuses, whatever its annotations are.
pub(crate) fn refused(message: &str) -> anyhow::Result<String> {
    let (annotation, value) = Default::default();
    let denied = Denial { annotation, value, allowed: None, message: message.to_owned() };
    text::answer(&PlanAnswer::Denied(Denied { denied }), false)
}

/// Where the group of the pod would be placed.
fn of_group(preview: &Preview) -> PlanFabric {
    let Preview { size, is_one_by_one, places, answer, domains } = preview;
    let domains = domains.iter().map(|(LevelDomain { level, name }, pods)| PlanDomain {
        level: level.name().to_owned(),
        name: name.clone(),
        pods: *pods,
    });
    PlanFabric {
        size: *size,
        is_one_by_one: *is_one_by_one,
        places: places.iter().cloned().collect(),
        chosen: answer.clone().ok(),
        domains: answer.is_ok().then(|| domains.collect()),
        waits: answer.clone().err(),
    }
}

/// What a node would allocate. `template` is the name of admission's.
fn node((view, name): (&ClusterView, &str), now: &Now<'_>, template: Option<&str>) -> PlanNode {
    let nothing = Vec::new();
    let (fits, exact, reason, allocations) = match now.results.get(name) {
        Some(Prediction::Fits(Fit { allocations, is_exact })) => {
            (Some(true), Some(*is_exact), None, allocations)
        }
        Some(Prediction::No(why)) if why.is_unknown() => {
            (None, None, Some(why.to_string()), &nothing)
        }
        Some(Prediction::No(why)) => (Some(false), None, Some(why.to_string()), &nothing),
        None => (Some(false), None, now.unknown.clone(), &nothing),
    };
    // The devices of the pod's other claims are not the plan's.
    let open = now.claims.open.iter().zip(allocations);
    let own = open.filter(|(open, _)| Some(&*open.key.name) == template);
    let results: Vec<_> = own.flat_map(|(_, allocation)| &allocation.results).collect();
    let specs = now.claims.open.iter().map(|open| &*open.spec);
    PlanNode {
        name: name.to_owned(),
        fits,
        exact,
        reason,
        devices: results.iter().map(|result| device(result)).collect(),
        pairs: pairs(view, name, &results),
        at_start: ExpectedAtStart::new(view, name, specs, allocations),
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
