//! What a pod asks of a node. Pods of one job mostly ask the same.

use super::amounts::{Amounts, NonZero, requests};
use super::claims::{self, ClaimSource};
use super::node_facts::Tolerated;
use super::ports::HostPort;
use super::spread_constraint::Spread;
use super::terms::{Labels, Term};
use super::volume_ask::VolumeAsk;
use crate::names::job_label;
use crate::placement::{Affinity, Placement};
use crate::view::{ClusterView, ObjectKey};
use dra_allocator::Claim;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// What a pod asks of a node. Pods that ask the same are equal for the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Its namespace.
    pub namespace: Box<str>,
    claims: Vec<ClaimSource>,
    /// Ports of the node.
    pub(super) ports: Vec<HostPort>,
    /// Its volumes that are bound to claims.
    pub(super) volumes: Vec<VolumeAsk>,
    /// The fabric that is chosen for its group, if the pod does not require it yet.
    fabric: Option<Box<str>>,
    /// CPU, memory and other resources.
    pub requests: Amounts,
    /// CPU and memory with which it counts for free nodes.
    pub(super) non_zero: NonZero,
    /// The node constraints of the pod's own selectors and affinity.
    pub placement: Placement,
    /// The taints that it tolerates.
    pub tolerations: Vec<Tolerated>,
    /// How it must be spread over domains.
    pub(super) spread: Vec<Spread>,
    /// Pods that it must not share a domain with.
    pub apart: Vec<Term>,
    /// Pods that it must share a domain with.
    pub near: Vec<Term>,
    /// Its labels, by which terms select it: those that only number the pods of a job are left out if
    /// the pod has no terms of its own.
    pub labels: Labels,
    /// Its priority.
    pub(super) priority: i32,
    /// Whether it may take CPU, memory and other resources from pods of lower priority.
    preempts: bool,
    /// Pods of a lower priority than this give way; `None` if none does.
    pub gives_way_below: Option<i32>,
}

impl Ask {
    /// Reads a pod, with the claims that were made for it.
    pub fn new(pod: &Pod) -> Self {
        Self::with(pod, claims::sources(pod).collect())
    }

    /// Reads a pod as one of its job: its claims are those that its templates will produce.
    pub fn of_kind(pod: &Pod) -> Self {
        Self::with(pod, claims::sources_of_kind(pod).collect())
    }

    fn with(pod: &Pod, claims: Vec<ClaimSource>) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let (apart, near) = Term::of(pod);
        let spread = Spread::of(pod);
        let has_terms = !apart.is_empty() || !near.is_empty() || !spread.is_empty();
        let labels = labels(pod, has_terms);
        let tolerations = spec.tolerations.iter().flatten();
        Self {
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            claims,
            ports: HostPort::of(spec),
            volumes: VolumeAsk::of(pod),
            fabric: None,
            requests: requests(pod),
            non_zero: NonZero::of(pod),
            placement: Placement::new(pod),
            tolerations: tolerations.filter_map(Tolerated::new).collect(),
            spread,
            apart,
            near,
            labels,
            priority: spec.priority.unwrap_or_default(),
            preempts: may_preempt(spec),
            gives_way_below: None,
        }
    }

    /// The same on the fabric that is chosen for its group.
    #[must_use]
    pub fn on_fabric(self, fabric: Option<&str>) -> Self {
        Self { fabric: fabric.map(Into::into), ..self }
    }

    /// The fabric that is chosen for its group, if the pod does not require it yet.
    pub fn fabric(&self) -> Option<&str> {
        self.fabric.as_deref()
    }

    /// The same without a label of its node affinity that was added when its gate was removed.
    #[must_use]
    pub fn without_label(mut self, key: &str, added: &str) -> Self {
        forget(&mut self.placement, key, added);
        self
    }

    /// The same for a pod that tolerates every taint of a node.
    #[must_use]
    pub fn tolerating_all(self) -> Self {
        Self { tolerations: vec![Tolerated::everything()], ..self }
    }

    /// What it uses of a node.
    pub(super) fn usage(&self) -> (&Amounts, NonZero) {
        (&self.requests, self.non_zero)
    }

    /// The priority with which it takes room from other pods; `None` if it takes none.
    pub fn preempting_priority(&self) -> Option<i32> {
        self.preempts.then_some(self.priority)
    }

    /// The same where pods of lower priority give way, as kube-scheduler lets them; `None` if the
    /// pod preempts none.
    #[must_use]
    pub fn preempting(&self) -> Option<Self> {
        let gives_way_below = Some(self.preempting_priority()?);
        Some(Self { gives_way_below, ..self.clone() })
    }

    /// The same without labels, if it has no terms of its own: what is left differs from another pod's
    /// only where terms of other pods select by labels.
    #[must_use]
    pub fn without_labels(&self) -> Self {
        let labels = if self.has_terms() { self.labels.clone() } else { Labels::default() };
        Self { labels, ..self.clone() }
    }

    /// Whether other pods decide where it may be.
    pub fn has_terms(&self) -> bool {
        !self.apart.is_empty() || !self.near.is_empty() || !self.spread.is_empty()
    }

    /// The claims that it names; those that are created for it are not among them.
    pub(super) fn named_claims(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().filter_map(ClaimSource::named)
    }

    /// Whether it has volumes of claims.
    pub fn has_volumes(&self) -> bool {
        !self.volumes.is_empty()
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

    /// The same for another pod of its workload: without the volumes that are made for the pod of this name
    /// alone, as by the templates of a StatefulSet (`<template>-<pod>`) or as ephemeral ones.
    #[must_use]
    pub fn without_volumes_of(&self, pod: &str) -> Self {
        let mut other = self.clone();
        other.volumes.retain(|asked| asked.made.is_none() && !asked.is_named_after(pod));
        other
    }

    /// The claims that have no devices yet, in the allocator's form.
    ///
    /// # Errors
    /// Names the object that is unknown.
    pub fn claims(&self, view: &ClusterView) -> Result<Vec<Claim>, String> {
        Ok(self.parsed(view)?.0)
    }

    /// The claims that have no devices yet, and the keys of the others.
    pub(super) fn parsed(
        &self,
        view: &ClusterView,
    ) -> Result<(Vec<Claim>, Vec<ObjectKey>), String> {
        claims::parsed(&self.claims, &self.namespace, view)
    }
}

/// Whether a pod's policy allows preemption (`PodEligibleToPreemptOthers` in `plugins/defaultpreemption`).
fn may_preempt(spec: &PodSpec) -> bool {
    spec.preemption_policy.as_deref() != Some("Never")
}

fn labels(pod: &Pod, with_numbers: bool) -> Labels {
    let labels = pod.metadata.labels.iter().flatten();
    let labels = labels.filter(|(key, _)| with_numbers || !job_label::NUMBERS.contains(&&***key));
    labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}

fn forget(placement: &mut Placement, key: &str, added: &str) {
    let Some(Affinity(selector)) = &mut placement.affinity else { return };
    for term in &mut selector.terms {
        term.match_expressions
            .retain(|it| *it.key != *key || it.values.iter().any(|value| **value != *added));
    }
    // The only term was created for what was chosen.
    let mut terms = selector.terms.iter();
    if terms.all(|term| term.match_expressions.is_empty() && term.match_fields.is_empty()) {
        placement.affinity = None;
    }
}
