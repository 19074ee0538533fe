//! What the scheduler would do with a pod's claims on a node, by replaying its
//! allocator on the view.

use crate::view::{ClusterView, ObjectKey};
use dra_allocator::{
    Attempt, Claim, ClaimAllocation, ClaimName, Limits, Outcome, allocate, survey,
};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::collections::HashMap;

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

/// The pod's claims that have no allocation yet, in the order in which the
/// scheduler takes them.
///
/// # Errors
/// The reason why a claim is not known well enough.
pub fn open_claims(pod: &Pod, view: &ClusterView) -> Result<Vec<Claim>, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let entries = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref());
    let mut claims = Vec::new();
    for entry in entries.unwrap_or_default() {
        match reference(pod, entry) {
            Reference::Claim(name) => claims.extend(open_claim(view, namespace, &name, entry)?),
            Reference::NotMade => claims.push(template(view, namespace, entry)?),
            Reference::NotNeeded => {}
        }
    }
    Ok(claims)
}

/// Replays the allocator for these claims on a node with what is in use now.
pub fn predict(view: &ClusterView, node: &str, claims: &[Claim]) -> Prediction {
    let inventory = view.inventory();
    let limits = Limits::steps(STEPS_MAX);
    let attempt = allocate(inventory, node, claims, inventory.state(), view.settings(), limits);
    prediction(attempt)
}

/// What [`predict`] says of each of these nodes; nodes that are alike are asked once.
pub fn predict_each<'n>(
    view: &ClusterView,
    nodes: impl IntoIterator<Item = &'n str>,
    claims: &[Claim],
) -> HashMap<&'n str, Prediction> {
    let inventory = view.inventory();
    let limits = Limits::steps(STEPS_MAX);
    let answers = survey(inventory, nodes, claims, inventory.state(), view.settings(), limits);
    answers.attempts().map(|(node, attempt)| (node, prediction(attempt))).collect()
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

/// The claim as the allocator takes it; `None` where it is allocated already.
fn open_claim(
    view: &ClusterView,
    namespace: &str,
    name: &str,
    entry: &PodResourceClaim,
) -> Result<Option<Claim>, String> {
    let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
    // The watch may lag behind the scheduler's.
    let Some(claim) = view.claim(&key) else { return template(view, namespace, entry).map(Some) };
    if claim.is_allocated {
        return Ok(None);
    }
    parse(&key, claim.spec.as_deref()).map(Some)
}

/// The claim as its template says; templates cannot change.
fn template(
    view: &ClusterView,
    namespace: &str,
    entry: &PodResourceClaim,
) -> Result<Claim, String> {
    let unknown = || format!("claim `{}` of the pod is not known", entry.name);
    let name = entry.resource_claim_template_name.clone().ok_or_else(unknown)?;
    let key = ObjectKey { namespace: namespace.to_owned(), name };
    let template = view.template(&key).ok_or_else(unknown)?;
    parse(&key, template.spec.as_ref())
}

fn parse(key: &ObjectKey, spec: Option<&ResourceClaimSpec>) -> Result<Claim, String> {
    let spec = spec.ok_or_else(|| format!("claim `{key}` asks for nothing"))?;
    let name = ClaimName::new(key.namespace.as_str(), key.name.as_str());
    Claim::from_spec(name, spec).map_err(|error| error.to_string())
}
