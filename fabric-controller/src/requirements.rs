//! What a pod needs from a node. Pods of one job mostly have equal requirements.

use super::amounts::{Amounts, requests};
use super::interpod::{Labels, Term};
use super::nodes::Tolerated;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::names::label;
use cluster_model::placement::{Affinity, Placement};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::{Claim, ClaimName};
use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// A pod's requirements. Pods with equal requirements are equal for the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodRequirements {
    /// Its namespace.
    pub namespace: Box<str>,
    claims: Vec<ClaimSource>,
    /// CPU, memory and other resources.
    pub requests: Amounts,
    /// The node constraints of the pod's own selectors and affinity.
    pub placement: Placement,
    /// The taints that it tolerates.
    pub tolerations: Vec<Tolerated>,
    /// Pods that it must not share a domain with.
    pub apart: Vec<Term>,
    /// Pods that it must share a domain with.
    pub near: Vec<Term>,
    /// Its labels, if terms may select them.
    pub labels: Option<Labels>,
    /// Its priority, if it may take CPU, memory and other resources from pods of lower priority.
    priority: Option<i32>,
    /// Pods of a lower priority than this give way; `None` if none does.
    pub gives_way_below: Option<i32>,
}

/// The object that defines a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ClaimSource {
    Template(Box<str>),
    Claim(Box<str>),
}

impl PodRequirements {
    /// Reads a pod's requirements. The fabric that this controller added to a released pod is not
    /// one of them.
    pub fn new(pod: &Pod, fabric: Option<&str>) -> Self {
        Self::of_member(pod, fabric, &[])
    }

    /// The same for a pod that may also have got domains.
    pub(super) fn of_member(pod: &Pod, fabric: Option<&str>, domains: &[LevelDomain]) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let mut placement = Placement::new(pod);
        if let Some(fabric) = fabric {
            forget(&mut placement, label::NODE_FABRIC, fabric);
        }
        for LevelDomain { level, name } in domains {
            forget(&mut placement, level.label(), name);
        }
        let (apart, near) = Term::of(spec);
        let labels = (!apart.is_empty() || !near.is_empty()).then(|| labels(pod));
        let tolerations = spec.tolerations.iter().flatten();
        Self {
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            claims: claims(spec),
            requests: requests(spec),
            placement,
            tolerations: tolerations.filter_map(Tolerated::new).collect(),
            apart,
            near,
            labels,
            priority: priority(spec),
            gives_way_below: None,
        }
    }

    /// The priority with which it takes room from other pods; `None` if it takes none.
    pub fn preempting_priority(&self) -> Option<i32> {
        self.priority
    }

    /// The same where pods of lower priority give way, as kube-scheduler lets them; `None` if the
    /// pod preempts none.
    #[must_use]
    pub fn preempting(&self) -> Option<Self> {
        let priority = self.priority?;
        Some(Self { gives_way_below: Some(priority), ..self.clone() })
    }

    /// Whether it needs devices.
    pub fn has_claims(&self) -> bool {
        !self.claims.is_empty()
    }

    /// The same for a pod that already has its devices.
    #[must_use]
    pub fn without_claims(&self) -> Self {
        Self { claims: Vec::new(), ..self.clone() }
    }

    /// The claims in the allocator's form.
    ///
    /// # Errors
    /// Names the object that is unknown.
    pub fn claims(&self, view: &ClusterView) -> Result<Vec<Claim>, String> {
        self.claims.iter().filter_map(|claim| claim.read(&self.namespace, view)).collect()
    }
}

/// The priority of a pod whose policy allows preemption (`PodEligibleToPreemptOthers` in
/// `plugins/defaultpreemption`).
fn priority(spec: &PodSpec) -> Option<i32> {
    let never = spec.preemption_policy.as_deref() == Some("Never");
    (!never).then(|| spec.priority.unwrap_or_default())
}

impl ClaimSource {
    /// Reads the claim; `None` if it is already allocated.
    fn read(&self, namespace: &str, view: &ClusterView) -> Option<Result<Claim, String>> {
        let (Self::Template(name) | Self::Claim(name)) = self;
        let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_string() };
        let spec = match self {
            Self::Template(_) => view.template(&key).and_then(|template| template.spec.as_ref()),
            Self::Claim(_) => {
                let claim = view.claim(&key);
                if claim.is_some_and(|claim| claim.is_allocated) {
                    return None;
                }
                claim.and_then(|claim| claim.spec.as_deref())
            }
        };
        let Some(spec) = spec else { return Some(Err(format!("`{name}` is not known"))) };
        let claim = Claim::from_spec(ClaimName::new(namespace, &**name), spec);
        Some(claim.map_err(|error| error.to_string()))
    }
}

fn labels(pod: &Pod) -> Labels {
    let labels = pod.metadata.labels.iter().flatten();
    labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}

fn claims(spec: &PodSpec) -> Vec<ClaimSource> {
    let entries = spec.resource_claims.iter().flatten();
    let source = entries.filter_map(|entry| {
        match (&entry.resource_claim_name, &entry.resource_claim_template_name) {
            (Some(name), _) => Some(ClaimSource::Claim(name.as_str().into())),
            (None, Some(name)) => Some(ClaimSource::Template(name.as_str().into())),
            (None, None) => None,
        }
    });
    source.collect()
}

fn forget(placement: &mut Placement, key: &str, added: &str) {
    let Some(Affinity(selector)) = &mut placement.affinity else { return };
    for term in &mut selector.terms {
        term.match_expressions
            .retain(|it| *it.key != *key || it.values.iter().any(|value| **value != *added));
    }
    let is_empty = |term: &dra_allocator::node::NodeSelectorTerm| {
        term.match_expressions.is_empty() && term.match_fields.is_empty()
    };
    // The only term was created for what was chosen.
    if selector.terms.iter().all(is_empty) {
        placement.affinity = None;
    }
}
