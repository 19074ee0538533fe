//! What the scheduler would do with a pod's claims on a node, by replaying its
//! allocator on the view.

use crate::names::{alternative, label};
use crate::view::{ClusterView, KnownClaim, ObjectKey};
use dra_allocator::{
    AllocatedState, Attempt, Claim, ClaimAllocation, ClaimName, Limits, Outcome, allocate, survey,
};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::collections::HashMap;
use std::sync::Arc;

/// Search steps after which a prediction is given up: the most that a claim
/// made by admission may cost on a node.
pub const STEPS_MAX: u64 = 10_000;

/// What is known of a claim's future on a node.
#[derive(Clone, Debug)]
pub enum Prediction {
    /// It fits.
    Fits {
        /// The devices that would be taken, claim by claim.
        allocations: Vec<ClaimAllocation>,
        /// Whether it will be these and no others, with all else unchanged. Before 1.36 the
        /// scheduler takes pools in random order, and this is one of its choices.
        is_exact: bool,
    },
    /// It does not fit, for this reason.
    NoFit(String),
    /// Nothing can be said, for this reason.
    Unknown(String),
}

/// What a pod's claims still ask for, and what they have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodClaims {
    /// Without an allocation, in the order in which the scheduler takes them.
    pub open: Vec<OpenClaim>,
    /// With one.
    pub allocated: Vec<ObjectKey>,
}

/// A claim without an allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenClaim {
    /// The claim, or its template where the claim is not known yet.
    pub key: ObjectKey,
    /// Whether the claim itself is known.
    pub is_made: bool,
    /// Whether admission wrote it, so that its alternatives differ in nearness only.
    pub is_ours: bool,
    /// What it asks for.
    pub spec: Arc<ResourceClaimSpec>,
}

/// The pod's claims as the scheduler will see them.
///
/// # Errors
/// The reason why a claim is not known well enough.
pub fn pod_claims(pod: &Pod, view: &ClusterView) -> Result<PodClaims, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let entries = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref());
    let mut claims = PodClaims::default();
    for entry in entries.unwrap_or_default() {
        let key = match reference(pod, entry) {
            Reference::Claim(name) => ObjectKey { namespace: namespace.to_owned(), name },
            Reference::NotMade => {
                claims.open.push(template(view, namespace, entry)?);
                continue;
            }
            Reference::NotNeeded => continue,
        };
        // Two entries may name one claim.
        let is_known = claims.allocated.contains(&key)
            || claims.open.iter().any(|open| open.is_made && open.key == key);
        match view.claim(&key) {
            _ if is_known => {}
            Some(claim) if claim.is_allocated => claims.allocated.push(key),
            Some(claim) => claims.open.push(made(key, claim)?),
            // The watch may lag behind the scheduler's.
            None => claims.open.push(template(view, namespace, entry)?),
        }
    }
    Ok(claims)
}

impl OpenClaim {
    /// The claim as the allocator takes it.
    ///
    /// # Errors
    /// What the allocator does not understand of it.
    pub fn parse(&self) -> Result<Claim, String> {
        let name = ClaimName::new(self.key.namespace.as_str(), self.key.name.as_str());
        Claim::from_spec(name, &self.spec).map_err(|error| error.to_string())
    }

    /// How good the alternative of a result is, 0 for the best; the place of the chosen
    /// subrequest in its `firstAvailable`, as the scheduler counts.
    ///
    /// Alternatives that admission wrote are ways to be near, in an order that says
    /// nothing: they are equally good, but for the last resort of any devices.
    pub fn alternative(&self, request: &str) -> u32 {
        let Some((request, chosen)) = request.split_once('/') else { return 0 };
        if self.is_ours {
            return u32::from(chosen == alternative::ANY);
        }
        let requests = self.spec.devices.iter().flat_map(|devices| &devices.requests);
        let found = requests.flatten().find(|known| known.name == request);
        let ways = found.and_then(|known| known.first_available.as_deref()).unwrap_or_default();
        let place = ways.iter().position(|way| way.name == chosen).unwrap_or_default();
        u32::try_from(place).unwrap_or(u32::MAX)
    }
}

/// Replays the allocator for these claims on a node with what is in use now.
pub fn predict(view: &ClusterView, node: &str, claims: &[Claim]) -> Prediction {
    let inventory = view.inventory();
    let limits = Limits::steps(STEPS_MAX);
    let attempt = allocate(inventory, node, claims, inventory.state(), view.settings(), limits);
    prediction(attempt)
}

/// What [`predict`] says of each of these nodes where `in_use` is in use; nodes that are
/// alike are asked once. `stop` ends it early: nodes that were not reached are left out.
pub fn predict_each<'n>(
    view: &ClusterView,
    nodes: impl IntoIterator<Item = &'n str>,
    claims: &[Claim],
    in_use: &AllocatedState,
    stop: &dyn Fn() -> bool,
) -> HashMap<&'n str, Prediction> {
    let inventory = view.inventory();
    let limits = Limits { max_steps: Some(STEPS_MAX), stop: Some(stop) };
    let nodes = nodes.into_iter().take_while(|_| !stop());
    let answers = survey(inventory, nodes, claims, in_use, view.settings(), limits);
    answers.attempts().map(|(node, attempt)| (node, prediction(attempt))).collect()
}

/// Marks the devices of allocations as in use.
pub fn hold(state: &mut AllocatedState, allocations: &[ClaimAllocation]) {
    let results = allocations.iter().flat_map(|allocation| &allocation.results);
    for result in results.filter(|result| !result.admin_access) {
        if result.is_share {
            state.insert_share(result.device.clone(), &result.consumed_capacity);
        } else {
            state.insert(result.device.clone());
        }
    }
}

fn prediction(attempt: Attempt) -> Prediction {
    let is_exact = attempt.is_exact;
    match attempt.outcome {
        Outcome::Allocated(allocations) => Prediction::Fits { allocations, is_exact },
        Outcome::NoFit(reason) => Prediction::NoFit(reason.to_string()),
        Outcome::Failed(error) => Prediction::Unknown(error.to_string()),
        Outcome::OverBudget => Prediction::Unknown(format!("over {STEPS_MAX} search steps")),
    }
}

/// The claim behind an entry of a pod's `spec.resourceClaims`.
enum Reference {
    /// A claim of this name.
    Claim(String),
    /// Not made from its template yet.
    NotMade,
    /// The resource claim controller found that none is needed.
    NotNeeded,
}

/// A claim made from a template is named in the pod's status only.
fn reference(pod: &Pod, entry: &PodResourceClaim) -> Reference {
    if let Some(name) = &entry.resource_claim_name {
        return Reference::Claim(name.clone());
    }
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref());
    let status = statuses.unwrap_or_default().iter().find(|status| status.name == entry.name);
    match status.map(|status| &status.resource_claim_name) {
        Some(Some(name)) => Reference::Claim(name.clone()),
        Some(None) => Reference::NotNeeded,
        None => Reference::NotMade,
    }
}

fn made(key: ObjectKey, claim: &KnownClaim) -> Result<OpenClaim, String> {
    let nothing = || format!("claim `{key}` asks for nothing");
    let spec = claim.spec.clone().ok_or_else(nothing)?;
    let is_ours = claim.labels.contains_key(label::TEMPLATE);
    Ok(OpenClaim { key, is_made: true, is_ours, spec })
}

/// The claim as its template says; templates cannot change.
fn template(
    view: &ClusterView,
    namespace: &str,
    entry: &PodResourceClaim,
) -> Result<OpenClaim, String> {
    let unknown = || format!("claim `{}` of the pod is not known", entry.name);
    let name = entry.resource_claim_template_name.clone().ok_or_else(unknown)?;
    let key = ObjectKey { namespace: namespace.to_owned(), name };
    let template = view.template(&key).ok_or_else(unknown)?;
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let is_ours = labels.is_some_and(|labels| labels.contains_key(label::TEMPLATE));
    let nothing = || format!("claim `{}` of the pod asks for nothing", entry.name);
    let spec = template.spec.clone().ok_or_else(nothing)?;
    Ok(OpenClaim { key, is_made: false, is_ours, spec: Arc::new(spec) })
}
