//! Predicts what the scheduler would do with a pod's claims on a node, by replaying its allocator
//! on the view.

use crate::names::{alternative, label};
use crate::view::{ClusterView, KnownClaim, ObjectKey};
use dra_allocator::{
    AllocatedState, Attempt, Budget, Claim, ClaimAllocation, ClaimName, Limits, Outcome, allocate,
    survey,
};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::collections::HashMap;
use std::sync::Arc;

/// The number of search steps after which a prediction is given up: the most that a claim from
/// admission may cost on a node.
pub const STEPS_MAX: u64 = 10_000;

/// The work that the expressions of a pod's claims may take here, on a cluster with this many nodes.
///
/// Tenants write expressions. Usual ones take some hundred units on a node, about ten nanoseconds
/// each; kube-apiserver accepts ones that take millions.
pub fn work_max(nodes: usize) -> u64 {
    4_000_000 + 16_000 * u64::try_from(nodes).unwrap_or(u64::MAX / 16_000 - 250)
}

/// The budget for the claims of one pod on this cluster.
pub fn budget(view: &ClusterView) -> Budget<'static> {
    Budget::of_work(work_max(view.inventory().node_names().count()))
}

/// The predicted result of claims on a node.
#[derive(Clone, Debug)]
pub enum Prediction {
    /// The claims fit.
    Fits {
        /// The devices that the scheduler would allocate, claim by claim.
        allocations: Vec<ClaimAllocation>,
        /// True if the scheduler allocates exactly these, with all else unchanged. Before 1.36 the
        /// scheduler takes pools in random order, and this is one of its choices.
        is_exact: bool,
    },
    /// The claims do not fit, for this reason.
    NoFit(String),
    /// The result is unknown, for this reason.
    Unknown(String),
}

/// The reason of [`Prediction::Unknown`] if the expressions of the claims take too much work.
pub const EXPENSIVE: &str = "the CEL expressions of the claims take too long to evaluate here";

/// A pod's claims, allocated or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodClaims {
    /// Claims without an allocation, in the scheduler's order.
    pub open: Vec<OpenClaim>,
    /// Claims with an allocation.
    pub allocated: Vec<ObjectKey>,
}

/// A claim without an allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenClaim {
    /// The claim, or its template if the pod does not name the claim yet.
    pub key: ObjectKey,
    /// True if the key is the claim's. The view may not have the claim yet, since watches are not
    /// synchronized.
    pub is_made: bool,
    /// True if admission wrote it. Its alternatives then differ only in nearness.
    pub is_ours: bool,
    /// The spec of the claim.
    pub spec: Arc<ResourceClaimSpec>,
}

/// The pod's claims as the scheduler will see them.
///
/// # Errors
///
/// Returns a reason if a claim is unknown.
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
        // Two entries may refer to the same claim.
        let is_known = claims.allocated.contains(&key)
            || claims.open.iter().any(|open| open.is_made && open.key == key);
        match view.claim(&key) {
            _ if is_known => {}
            Some(claim) if claim.is_allocated => claims.allocated.push(key),
            Some(claim) => claims.open.push(made(key, claim)?),
            // The watch may lag behind the scheduler's.
            None => {
                let template = template(view, namespace, entry)?;
                claims.open.push(OpenClaim { key, is_made: true, ..template });
            }
        }
    }
    Ok(claims)
}

impl OpenClaim {
    /// The claim in the allocator's form.
    ///
    /// # Errors
    ///
    /// Returns a reason if the allocator does not support the claim.
    pub fn parse(&self) -> Result<Claim, String> {
        let name = ClaimName::new(self.key.namespace.as_str(), self.key.name.as_str());
        Claim::from_spec(name, &self.spec).map_err(|error| error.to_string())
    }

    /// The rank of the chosen alternative, 0 for the best: the index of the subrequest in its
    /// `firstAvailable`, as the scheduler ranks it.
    ///
    /// Alternatives written by admission are equivalent ways to be near, in arbitrary order. They
    /// all rank as best, except for [`alternative::ANY`]. [`alternative::ANY_PAIRS`] ranks as best
    /// too: only the path says how near its pairs are.
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

/// Replays the allocator for these claims on a node with the current use of devices.
pub fn predict(view: &ClusterView, node: &str, claims: &[Claim]) -> Prediction {
    let inventory = view.inventory();
    let budget = budget(view);
    let limits = Limits::within(STEPS_MAX, &budget);
    let attempt = allocate(inventory, node, claims, inventory.state(), view.settings(), limits);
    prediction(attempt, &budget)
}

/// Runs [`predict`] for each of these nodes with the devices in `in_use`; equivalent nodes share a
/// search. `stop` ends it early, also within an expression; nodes not reached by then are left out.
pub fn predict_each<'n>(
    view: &ClusterView,
    nodes: impl IntoIterator<Item = &'n str>,
    claims: &[Claim],
    in_use: &AllocatedState,
    stop: &dyn Fn() -> bool,
) -> HashMap<&'n str, Prediction> {
    let inventory = view.inventory();
    let budget = Budget::new(work_max(inventory.node_names().count()), stop);
    let limits = Limits::within(STEPS_MAX, &budget);
    let nodes = nodes.into_iter().take_while(|_| !stop());
    let answers = survey(inventory, nodes, claims, in_use, view.settings(), limits);
    let known = answers.attempts().filter(|(_, attempt)| {
        !(budget.is_stopped() && matches!(attempt.outcome, Outcome::OverBudget))
    });
    known.map(|(node, attempt)| (node, prediction(attempt, &budget))).collect()
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

fn prediction(attempt: Attempt, budget: &Budget<'_>) -> Prediction {
    let is_exact = attempt.is_exact;
    match attempt.outcome {
        Outcome::Allocated(allocations) => Prediction::Fits { allocations, is_exact },
        Outcome::NoFit(reason) => Prediction::NoFit(reason.to_string()),
        Outcome::Failed(error) => Prediction::Unknown(error.in_full()),
        Outcome::OverBudget if budget.left() == 0 => Prediction::Unknown(EXPENSIVE.to_owned()),
        Outcome::OverBudget => Prediction::Unknown(format!("over {STEPS_MAX} search steps")),
    }
}

/// The claim that an entry of a pod's `spec.resourceClaims` refers to.
enum Reference {
    /// The claim with this name.
    Claim(String),
    /// The claim is not created from its template yet.
    NotMade,
    /// The resource claim controller decided that no claim is needed.
    NotNeeded,
}

/// Only the pod's status names a claim that is created from a template.
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
    let spec = claim.spec.clone().ok_or_else(|| format!("claim `{key}` has no requests"))?;
    let is_ours = claim.labels.contains_key(label::TEMPLATE);
    Ok(OpenClaim { key, is_made: true, is_ours, spec })
}

/// The claim that the template will produce; templates are immutable.
fn template(
    view: &ClusterView,
    namespace: &str,
    entry: &PodResourceClaim,
) -> Result<OpenClaim, String> {
    let unknown = || format!("claim `{}` of the pod is unknown", entry.name);
    let name = entry.resource_claim_template_name.clone().ok_or_else(unknown)?;
    let key = ObjectKey { namespace: namespace.to_owned(), name };
    let template = view.template(&key).ok_or_else(unknown)?;
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let is_ours = labels.is_some_and(|labels| labels.contains_key(label::TEMPLATE));
    let spec = template
        .spec
        .clone()
        .ok_or_else(|| format!("claim `{}` of the pod has no requests", entry.name))?;
    Ok(OpenClaim { key, is_made: false, is_ours, spec: Arc::new(spec) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn alternatives_rank_by_who_wrote_them() {
        let ways = ["near", "any", "any-pairs"].map(|name| json!({ "name": name, "count": 1 }));
        let spec =
            json!({ "devices": { "requests": [{ "name": "nics", "firstAvailable": ways }] } });
        let claim = |is_ours| OpenClaim {
            key: ObjectKey::cluster_wide("a"),
            is_made: true,
            is_ours,
            spec: Arc::new(serde_json::from_value(spec.clone()).unwrap()),
        };
        let ranks = |is_ours| {
            let of = |way| claim(is_ours).alternative(&format!("nics/{way}"));
            ["near", "any", "any-pairs"].map(of)
        };
        assert_eq!(ranks(false), [0, 1, 2]);
        assert_eq!(ranks(true), [0, 1, 0]);
    }
}
