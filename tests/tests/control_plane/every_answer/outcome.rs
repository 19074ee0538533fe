//! What kube-scheduler and the controllers do with the pods of a case.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{DeviceRequestAllocationResult, ResourceClaim},
};
use kube::{ResourceExt, api::ListParams};
use tests::{
    Check, Scope, eventually,
    random_case::{Case, NAME, node_of_pool},
};

/// The longest wait for what was predicted.
const PATIENCE: Duration = Duration::from_secs(10);

/// What happened.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Why nothing was created.
    pub(super) denied: Option<String>,
    pub(super) bound: Vec<Bound>,
    /// For each other pod, what the scheduler or the fabric controller says.
    pub(super) waiting: Vec<String>,
}

/// A pod with a node.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) node: String,
    /// `driver/pool/device` of all its claims.
    pub(super) devices: BTreeSet<String>,
    /// Whether it has its devices and waits for their binding conditions.
    pub(super) is_held: bool,
}

impl Outcome {
    pub(super) fn denied(why: &str) -> Self {
        Self { denied: Some(why.to_owned()), ..Self::default() }
    }

    /// How it ended, in a word.
    pub(super) fn end(&self) -> &'static str {
        match self {
            Self { denied: Some(_), .. } => "denied",
            Self { bound, .. } if bound.is_empty() => "waiting",
            Self { waiting, .. } if waiting.is_empty() => "bound",
            _ => "bound in part",
        }
    }

    /// Whether pods wait, each on a node from which others were evicted for it.
    pub(super) fn has_made_room(&self) -> bool {
        !self.waiting.is_empty()
            && self.waiting.iter().all(|said| said.contains("found a potential placement"))
    }

    /// Whether pods wait, each on a node for others to end that are being deleted.
    pub(super) fn waits_for_ending_pods(&self) -> bool {
        let ending = "a terminating pod on the nominated node";
        self.has_made_room()
            || !self.waiting.is_empty() && self.waiting.iter().all(|said| said.contains(ending))
    }

    /// Waits until as many pods are bound as predicted, and the others were tried. What is not so in time
    /// differs.
    pub(super) async fn wait(scope: &Scope, case: &Case, predicted: usize) -> anyhow::Result<Self> {
        let (mut last, mut claims) = (Vec::new(), Vec::new());
        let waited = eventually(PATIENCE, async || {
            let pods = scope.api::<Pod>().list(&ListParams::default()).await?;
            claims = scope.api::<ResourceClaim>().list(&ListParams::default()).await?.items;
            last = pods.items.into_iter().filter(is_asked).collect();
            let bound = last.iter().filter(|pod| node_or_held(pod, &claims).is_some()).count();
            let tried = last.iter().filter(|pod| said(pod).is_some()).count();
            let is_over = bound == predicted && last.len() == case.group.unwrap_or(1);
            Ok(Check::that(is_over && bound + tried >= last.len(), String::new))
        })
        .await;
        drop(waited);
        if last.is_empty() {
            return Ok(Self::denied("no pod of the Job is created"));
        }
        let mut outcome = Self::default();
        for pod in &last {
            match node_or_held(pod, &claims) {
                Some(found) => outcome.bound.push(Bound {
                    node: found.to_owned(),
                    devices: devices(pod, &claims),
                    is_held: node(pod).is_none(),
                }),
                None => outcome.waiting.push(said(pod).unwrap_or_default()),
            }
        }
        Ok(outcome)
    }
}

/// Whether a pod is the one that is asked about, or one of its Job.
fn is_asked(pod: &Pod) -> bool {
    let name = pod.name_any();
    name == NAME || name.starts_with(&format!("{NAME}-"))
}

pub(super) fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Whether others are evicted for a pod.
pub(super) fn is_nominated(pod: &Pod) -> bool {
    let nominated = pod.status.as_ref().and_then(|status| status.nominated_node_name.as_ref());
    nominated.is_some_and(|node| !node.is_empty())
}

/// What the scheduler says of a pod without a node.
pub(super) fn scheduler_said(pod: &Pod) -> Option<String> {
    condition(pod, "PodScheduled")
}

/// What the fabric controller says of a pod without a node, or else the scheduler.
fn said(pod: &Pod) -> Option<String> {
    if node(pod).is_some() {
        return None;
    }
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    let is_held = gates.into_iter().any(|gate| gate.name == "dranet.io/fabric");
    if is_held { condition(pod, "dranet.io/FabricChosen") } else { scheduler_said(pod) }
}

/// The message of a condition that is false; its reason, if there is no message.
fn condition(pod: &Pod, name: &str) -> Option<String> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let found = conditions.find(|it| it.type_ == name && it.status == "False")?;
    found.message.clone().or_else(|| found.reason.clone())
}

/// The node of a pod, or the one for which it waits while its devices have binding conditions.
pub(super) fn node_or_held<'a>(pod: &'a Pod, claims: &'a [ResourceClaim]) -> Option<&'a str> {
    let mut held = results(pod, claims)
        .filter(|result| result.binding_conditions.as_ref().is_some_and(|all| !all.is_empty()));
    node(pod).or_else(|| node_of_pool(&held.next()?.pool))
}

/// The devices of the claims that are reserved for a pod.
fn devices(pod: &Pod, claims: &[ResourceClaim]) -> BTreeSet<String> {
    results(pod, claims).map(device).collect()
}

fn results<'a>(
    pod: &'a Pod,
    claims: &'a [ResourceClaim],
) -> impl Iterator<Item = &'a DeviceRequestAllocationResult> {
    let own = claims.iter().filter_map(|claim| claim.status.as_ref()).filter(|status| {
        status.reserved_for.iter().flatten().any(|user| user.name == pod.name_any())
    });
    let results = own.filter_map(|status| status.allocation.as_ref()?.devices.as_ref());
    results.flat_map(|devices| devices.results.iter().flatten())
}

fn device(result: &DeviceRequestAllocationResult) -> String {
    format!("{}/{}/{}", result.driver, result.pool, result.device)
}
