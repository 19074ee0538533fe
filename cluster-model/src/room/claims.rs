//! The claims of a pod, as kube-scheduler will see them.

use crate::names::{alternative, label};
use crate::view::{ClusterView, KnownClaim, ObjectKey};
use dra_allocator::Claim;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::sync::Arc;

/// An entry of a pod's `spec.resourceClaims`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClaimSource {
    /// The entry's name.
    entry: Box<str>,
    /// The claim, if it is named or was created from the template.
    claim: Option<Box<str>>,
    template: Option<Box<str>>,
}

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

/// What the view has of a claim without an allocation.
struct OpenSpec<'v> {
    key: ObjectKey,
    is_made: bool,
    is_ours: bool,
    spec: &'v ResourceClaimSpec,
    /// The same spec, if the view shares it.
    shared: Option<&'v Arc<ResourceClaimSpec>>,
}

/// The pod's claims as the scheduler will see them.
///
/// # Errors
///
/// Returns a reason if a claim is unknown.
pub fn pod_claims(pod: &Pod, view: &ClusterView) -> Result<PodClaims, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let sources: Vec<_> = sources(pod).collect();
    let (open, allocated) = found(&sources, namespace, view)?;
    let open = open.into_iter().map(OpenClaim::from).collect();
    Ok(PodClaims { open, allocated })
}

/// The claims of these sources that have no devices yet, in the allocator's form, and the others.
///
/// # Errors
/// Returns a reason if a claim is unknown, or if the allocator does not support it.
pub(super) fn parsed(
    sources: &[ClaimSource],
    namespace: &str,
    view: &ClusterView,
) -> Result<(Vec<Claim>, Vec<ObjectKey>), String> {
    let (open, allocated) = found(sources, namespace, view)?;
    let claims = open.iter().map(|open| parse(&open.key, open.spec)).collect::<Result<_, _>>()?;
    Ok((claims, allocated))
}

/// What the view has of these sources. Two entries may refer to the same claim.
fn found<'v>(
    sources: &[ClaimSource],
    namespace: &str,
    view: &'v ClusterView,
) -> Result<(Vec<OpenSpec<'v>>, Vec<ObjectKey>), String> {
    let (mut open, mut allocated): (Vec<OpenSpec<'v>>, Vec<ObjectKey>) = Default::default();
    for source in sources {
        let made = source.claim.as_deref().map(|name| key_in(namespace, name));
        if let Some(made) = &made
            && (allocated.contains(made) || open.iter().any(|it| it.is_made && it.key == *made))
        {
            continue;
        }
        match made.as_ref().and_then(|made| view.claim(made)).zip(made.clone()) {
            Some((KnownClaim { closed: Some(why), .. }, key)) => {
                return Err(format!("claim `{key}` {why}"));
            }
            Some((claim, key)) if claim.is_allocated => allocated.push(key),
            Some((claim, key)) => open.push(OpenSpec::of_claim(key, claim)?),
            // The watch may lag behind the scheduler's.
            None => {
                let template = source.template.as_deref().map(|name| key_in(namespace, name));
                open.push(source.of_template(template, made, view)?);
            }
        }
    }
    Ok((open, allocated))
}

fn key_in(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn parse(key: &ObjectKey, spec: &ResourceClaimSpec) -> Result<Claim, String> {
    Claim::from_spec(key.into(), spec).map_err(|error| error.to_string())
}

/// The entries of a pod that need a claim. Only the pod's status names a claim that is created from
/// a template.
pub(super) fn sources(pod: &Pod) -> impl Iterator<Item = ClaimSource> {
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
    entries(pod).filter_map(move |entry| {
        let source = ClaimSource::new(entry);
        if source.claim.is_some() {
            return Some(source);
        }
        let status = statuses.into_iter().flatten().find(|status| status.name == entry.name);
        match status.map(|status| &status.resource_claim_name) {
            Some(Some(made)) => Some(ClaimSource { claim: Some(made.as_str().into()), ..source }),
            // The resource claim controller decided that no claim is needed.
            Some(None) => None,
            None => Some(source),
        }
    })
}

/// The entries of a pod without the claims that were created from templates: those of pods of one
/// job are equal.
pub(super) fn sources_of_kind(pod: &Pod) -> impl Iterator<Item = ClaimSource> {
    entries(pod).map(ClaimSource::new)
}

fn entries(pod: &Pod) -> impl Iterator<Item = &PodResourceClaim> {
    pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten())
}

/// Names of the claims that were created from the pod's templates.
pub fn made_claims(pod: &Pod) -> Vec<String> {
    let status = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
    status.into_iter().flatten().filter_map(|it| it.resource_claim_name.clone()).collect()
}

/// Whether there are claims, and all of them are allocated.
pub fn are_allocated(claims: &[String], namespace: &str, view: &ClusterView) -> bool {
    !claims.is_empty()
        && claims.iter().all(|name| {
            let key = ObjectKey { namespace: namespace.to_owned(), name: name.clone() };
            view.claim(&key).is_some_and(|claim| claim.is_allocated)
        })
}

impl ClaimSource {
    fn new(entry: &PodResourceClaim) -> Self {
        let claim = entry.resource_claim_name.as_deref();
        let template = entry.resource_claim_template_name.as_deref();
        Self {
            entry: entry.name.as_str().into(),
            claim: claim.map(Into::into),
            template: template.map(Into::into),
        }
    }

    /// The claim, if the pod names one.
    pub(super) fn named(&self) -> Option<&str> {
        self.claim.as_deref().filter(|_| self.template.is_none())
    }

    /// The claim that the template will produce; templates are immutable.
    fn of_template<'v>(
        &self,
        template: Option<ObjectKey>,
        made: Option<ObjectKey>,
        view: &'v ClusterView,
    ) -> Result<OpenSpec<'v>, String> {
        let entry = &self.entry;
        let unknown = || format!("claim `{entry}` of the pod is unknown");
        let template = template.ok_or_else(unknown)?;
        let spec = view.template(&template).ok_or_else(unknown)?;
        let labels = spec.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        let is_ours = labels.is_some_and(|labels| labels.contains_key(label::TEMPLATE));
        let spec = spec.spec.as_ref();
        let spec = spec.ok_or_else(|| format!("claim `{entry}` of the pod has no requests"))?;
        let is_made = made.is_some();
        Ok(OpenSpec { key: made.unwrap_or(template), is_made, is_ours, spec, shared: None })
    }
}

impl<'v> OpenSpec<'v> {
    fn of_claim(key: ObjectKey, claim: &'v KnownClaim) -> Result<Self, String> {
        let spec = claim.spec.as_ref();
        let spec = spec.ok_or_else(|| format!("claim `{key}` has no requests"))?;
        let is_ours = claim.labels.contains_key(label::TEMPLATE);
        Ok(Self { key, is_made: true, is_ours, spec, shared: Some(spec) })
    }
}

impl From<OpenSpec<'_>> for OpenClaim {
    fn from(OpenSpec { key, is_made, is_ours, spec, shared }: OpenSpec<'_>) -> Self {
        let spec = shared.map_or_else(|| Arc::new(spec.clone()), Arc::clone);
        Self { key, is_made, is_ours, spec }
    }
}

impl OpenClaim {
    /// The claim in the allocator's form.
    ///
    /// # Errors
    ///
    /// Returns a reason if the allocator does not support the claim.
    pub fn parse(&self) -> Result<Claim, String> {
        parse(&self.key, &self.spec)
    }

    /// The rank of the chosen alternative, 0 for the best: the index of the subrequest in its
    /// `firstAvailable`, as the scheduler ranks it.
    ///
    /// Alternatives written by admission are equivalent ways to be near, in arbitrary order. They
    /// all rank as best, except for those that are [far](alternative::is_far).
    /// [`alternative::ANY_PAIRS`] ranks as best too: only the path says how near its pairs are.
    pub fn alternative(&self, request: &str) -> u32 {
        let Some((request, chosen)) = request.split_once('/') else { return 0 };
        if self.is_ours {
            return u32::from(alternative::is_far(chosen));
        }
        let requests = self.spec.devices.iter().flat_map(|devices| &devices.requests);
        let found = requests.flatten().find(|known| known.name == request);
        let ways = found.and_then(|known| known.first_available.as_deref()).unwrap_or_default();
        let place = ways.iter().position(|way| way.name == chosen).unwrap_or_default();
        u32::try_from(place).unwrap_or(u32::MAX)
    }
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
