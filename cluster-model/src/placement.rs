//! The nodes that a pod's own selectors allow: `spec.nodeSelector` and the required node affinity.

use crate::view::ClusterView;
use dra_allocator::NodeSelector;
use dra_allocator::node::{NodeSelectorTerm, Requirement};
use k8s_openapi::api::core::v1::{self as core, Pod};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// The node selectors of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    /// `spec.nodeSelector`.
    pub labels: BTreeMap<String, String>,
    /// The required node affinity.
    pub affinity: Option<Affinity>,
}

/// A required node affinity: alternatives of requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity(pub NodeSelector);

// The selector's parts are not hashable; its text serves instead.
impl Hash for Affinity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        format!("{:?}", self.0).hash(state);
    }
}

impl Placement {
    /// Reads the selectors of a pod.
    pub fn new(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity
            .and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        Self {
            labels: spec.node_selector.clone().unwrap_or_default(),
            affinity: required.map(selector).map(Affinity),
        }
    }

    /// The nodes of the view that the selectors match, with remembered machines.
    pub fn nodes<'v>(&self, view: &'v ClusterView) -> impl Iterator<Item = &'v str> {
        let nodes = view.inventory().node_names().map(|name| &**name);
        nodes.filter(|node| self.allows(view, node))
    }

    /// Returns true if the selectors match a node of the view.
    pub fn allows(&self, view: &ClusterView, node: &str) -> bool {
        let Some(node) = view.inventory().node(node) else { return false };
        self.labels.iter().all(|(key, value)| {
            node.labels.get(key.as_str()).is_some_and(|label| **label == **value)
        }) && self.affinity.as_ref().is_none_or(|Affinity(it)| it.matches(node).unwrap_or(true))
    }
}

impl Affinity {
    /// Whether every alternative names nodes, but none this one. Then the scheduler asks no other plugin
    /// about the node (`PreFilter` of `plugins/nodeaffinity`).
    pub(crate) fn names_others(&self, node: &str) -> bool {
        let Self(NodeSelector { terms }) = self;
        !terms.is_empty()
            && terms.iter().all(|term| term.match_fields.iter().any(|it| excludes(it, node)))
    }
}

/// Whether a requirement names nodes, but not this one.
fn excludes(field: &Requirement, node: &str) -> bool {
    *field.key == *"metadata.name"
        && *field.operator == *"In"
        && field.values.iter().all(|name| **name != *node)
}

/// A node selector in the allocator's form.
pub(crate) fn selector(wire: &core::NodeSelector) -> NodeSelector {
    let terms = wire.node_selector_terms.iter().map(|term| NodeSelectorTerm {
        match_fields: term.match_fields.iter().flatten().map(requirement).collect(),
        match_expressions: term.match_expressions.iter().flatten().map(requirement).collect(),
    });
    NodeSelector { terms: terms.collect() }
}

fn requirement(wire: &core::NodeSelectorRequirement) -> Requirement {
    Requirement {
        key: wire.key.as_str().into(),
        operator: wire.operator.as_str().into(),
        values: wire.values.iter().flatten().map(|value| value.as_str().into()).collect(),
    }
}
