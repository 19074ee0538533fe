//! The terms of required pod affinity and anti-affinity (`plugins/interpodaffinity`). Where labels of
//! namespaces are unknown, a term that selects namespaces by them counts pods of every namespace.

use crate::view::ClusterView;
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Labels of a pod. Pods share the strings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Arc<str>, Arc<str>)]>);

impl Labels {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| **known == *key).map(|(_, value)| &**value)
    }
}

impl FromIterator<(Arc<str>, Arc<str>)> for Labels {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Arc<str>)>>(labels: I) -> Self {
        Self(labels.into_iter().collect())
    }
}

/// A term: pods within one domain of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The node label whose values are the domains.
    pub topology_key: String,
    /// Empty means the pod's own namespace, if none is selected.
    namespaces: Vec<String>,
    /// Selects other namespaces by their labels; `None` selects none.
    namespaces_by_label: Option<Vec<Requirement>>,
    /// `None` selects no pod.
    requirements: Option<Vec<Requirement>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Requirement {
    pub(super) key: String,
    operator: String,
    values: Vec<String>,
}

impl Term {
    /// The required terms of a pod: anti-affinity, then affinity.
    pub fn of(pod: &Pod) -> (Vec<Self>, Vec<Self>) {
        let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
        let Some(affinity) = affinity else { return Default::default() };
        let apart = affinity.pod_anti_affinity.as_ref();
        let near = affinity.pod_affinity.as_ref();
        let apart =
            apart.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
        let near =
            near.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
        (read(apart, pod), read(near, pod))
    }

    /// Parses a term of a pod. Without a selector it matches no pod.
    pub(super) fn new(wire: &PodAffinityTerm, pod: &Pod) -> Self {
        let own = pod.metadata.labels.as_ref();
        let equal = with_values(wire.match_label_keys.as_ref(), "In", own);
        let others = with_values(wire.mismatch_label_keys.as_ref(), "NotIn", own);
        let selected = wire.label_selector.as_ref().map(requirements);
        Self {
            topology_key: wire.topology_key.clone(),
            namespaces: wire.namespaces.clone().unwrap_or_default(),
            namespaces_by_label: wire.namespace_selector.as_ref().map(requirements),
            requirements: selected.map(|it| it.into_iter().chain(equal).chain(others).collect()),
        }
    }

    /// The pods of its own namespace that have these labels.
    pub(super) fn of_labels(topology_key: &str, labels: &BTreeMap<String, String>) -> Self {
        Self {
            topology_key: topology_key.to_owned(),
            namespaces: Vec::new(),
            namespaces_by_label: None,
            requirements: Some(with_labels(Some(labels))),
        }
    }

    /// The pods of its own namespace that a selector selects, all if it is empty; none without one.
    pub fn of_namespace(selector: Option<&LabelSelector>) -> Self {
        Self {
            topology_key: String::new(),
            namespaces: Vec::new(),
            namespaces_by_label: None,
            requirements: selector.map(requirements),
        }
    }

    /// The pods of its own namespace that a spread constraint counts, of a pod with these labels: values
    /// of `matchLabelKeys` must be equal.
    pub(super) fn of_spread(
        wire: &TopologySpreadConstraint,
        own: Option<&BTreeMap<String, String>>,
    ) -> Self {
        let selected = wire.label_selector.as_ref().map(requirements);
        let equal = with_values(wire.match_label_keys.as_ref(), "In", own);
        Self {
            topology_key: wire.topology_key.clone(),
            namespaces: Vec::new(),
            namespaces_by_label: None,
            requirements: selected.map(|selected| selected.into_iter().chain(equal).collect()),
        }
    }

    /// Whether the term of a pod in namespace `own` selects another pod.
    pub fn matches(
        &self,
        own: &str,
        (namespace, labels): (&str, &Labels),
        view: &ClusterView,
    ) -> bool {
        let is_own = self.namespaces.is_empty() && self.namespaces_by_label.is_none();
        let is_named =
            (is_own && own == namespace) || self.namespaces.iter().any(|name| name == namespace);
        let mut requirements = self.requirements.iter().flatten();
        self.requirements.is_some()
            && (is_named || self.selects_namespace(namespace, view))
            && requirements.all(|it| it.matches(labels.get(&it.key)))
    }

    /// Whether it selects a namespace by labels. A namespace that is not known may have them.
    fn selects_namespace(&self, namespace: &str, view: &ClusterView) -> bool {
        let Some(selector) = &self.namespaces_by_label else { return false };
        let known = view.namespace_labels(namespace);
        known.is_none_or(|known| {
            selector.iter().all(|it| it.matches(known.get(&it.key).map(String::as_str)))
        })
    }
}

fn read(terms: Option<&Vec<PodAffinityTerm>>, pod: &Pod) -> Vec<Term> {
    terms.into_iter().flatten().map(|term| Term::new(term, pod)).collect()
}

/// Requirements on labels of which the pod itself has a value; the API server adds them to selectors
/// (`applyMatchLabelKeysAndMismatchLabelKeys` in `pkg/registry/core/pod/strategy.go`).
fn with_values(
    keys: Option<&Vec<String>>,
    operator: &str,
    own: Option<&BTreeMap<String, String>>,
) -> Vec<Requirement> {
    let requirements = keys.into_iter().flatten().filter_map(|key| {
        let value = own?.get(key)?.clone();
        Some(Requirement { key: key.clone(), operator: operator.to_owned(), values: vec![value] })
    });
    requirements.collect()
}

fn with_labels(labels: Option<&BTreeMap<String, String>>) -> Vec<Requirement> {
    let equal = labels.into_iter().flatten().map(|(key, value)| Requirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: vec![value.clone()],
    });
    equal.collect()
}

/// What a selector asks of labels.
pub(super) fn requirements(selector: &LabelSelector) -> Vec<Requirement> {
    let others = selector.match_expressions.iter().flatten().map(|wire| Requirement {
        key: wire.key.clone(),
        operator: wire.operator.clone(),
        values: wire.values.clone().unwrap_or_default(),
    });
    with_labels(selector.match_labels.as_ref()).into_iter().chain(others).collect()
}

impl Requirement {
    /// As `Requirement.Matches` in `k8s.io/apimachinery/pkg/labels`.
    pub(super) fn matches(&self, value: Option<&str>) -> bool {
        let is_in = value.is_some_and(|value| self.values.iter().any(|own| own == value));
        match self.operator.as_str() {
            "In" => is_in,
            "NotIn" => !is_in,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}
