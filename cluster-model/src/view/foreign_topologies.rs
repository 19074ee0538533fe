//! Objects in which other schedulers describe the network: Kueue's `Topology`, reduced to its labels,
//! and Volcano's `HyperNode`, reduced to the nodes that are its own members.

use super::{ClusterView, Index, ObjectKey, ViewError, name};
use crate::hyper_node::{HyperNode, MemberSelector};
use crate::kueue_topology::Topology;
use dra_allocator::cel::matches_pattern;
use dra_allocator::node::{NodeSelectorTerm, Requirement};
use dra_allocator::{Budget, Node, NodeSelector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::{BTreeMap, BTreeSet};

/// The type of members that are nodes.
const NODE: &str = "Node";
/// The work for a pattern and a name: some milliseconds. A pattern that needs more matches nothing.
const PATTERN_WORK: u64 = 1_000_000;

/// A tier, and the name of a `HyperNode`. The nearest one comes first.
type Place = (i64, String);

/// What other schedulers say of the network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForeignTopologies {
    /// The labels of each `Topology`, widest level first.
    topologies: BTreeMap<String, Vec<String>>,
    /// The `HyperNode`s that name a node, by node.
    named: BTreeMap<String, BTreeSet<Place>>,
    /// The `HyperNode`s that select nodes otherwise.
    selecting: BTreeMap<Place, Vec<Selection>>,
}

/// How a `HyperNode` selects nodes, other than by one name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Selection {
    Pattern(String),
    Labels(NodeSelector),
}

/// A `HyperNode` that has a node as a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeHome<'v> {
    /// Its name.
    pub name: &'v str,
    /// The labels by which it selects its nodes, if it does.
    pub labels: Vec<&'v str>,
}

impl ForeignTopologies {
    /// The labels of each `Topology`, widest level first, by name of the object.
    pub fn topologies(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.topologies.iter().map(|(name, labels)| (name.as_str(), labels.as_slice()))
    }

    /// The `HyperNode` of the lowest tier that has a node as a member; of several, the first by name.
    pub fn hyper_node_of(&self, node: &Node) -> Option<NodeHome<'_>> {
        let named = self.named.get(&*node.name).and_then(BTreeSet::first);
        let mut selecting = self.selecting.iter();
        let selected = selecting.find_map(|(place, ways)| {
            let way = ways.iter().find(|way| way.has(node))?;
            Some((place, way.labels()))
        });
        let (place, labels) = match (named, selected) {
            (Some(named), Some((place, _))) if named < place => (named, Vec::new()),
            (_, Some(selected)) => selected,
            (Some(named), None) => (named, Vec::new()),
            (None, None) => return None,
        };
        Some(NodeHome { name: &place.1, labels })
    }

    fn forget_hyper_node(&mut self, hyper_node: &str) {
        self.selecting.retain(|(_, name), _| name != hyper_node);
        self.named.retain(|_, places| {
            places.retain(|(_, name)| name != hyper_node);
            !places.is_empty()
        });
    }
}

impl Selection {
    fn new(selector: MemberSelector) -> Option<Self> {
        let pattern = selector.regex_match.map(|it| Self::Pattern(it.pattern));
        pattern.or_else(|| selector.label_match.map(|it| Self::Labels(node_selector(it))))
    }

    /// As `GetMembers` of Volcano (`pkg/util/hypernode/member_selector.go`): what cannot be evaluated
    /// selects nothing.
    fn has(&self, node: &Node) -> bool {
        match self {
            Self::Pattern(pattern) => {
                matches_pattern(pattern, &node.name, &Budget::of_work(PATTERN_WORK)) == Some(true)
            }
            Self::Labels(selector) => selector.matches(node).unwrap_or(false),
        }
    }

    fn labels(&self) -> Vec<&str> {
        let Self::Labels(selector) = self else { return Vec::new() };
        let requirements = selector.terms.iter().flat_map(|term| &term.match_expressions);
        requirements.map(|requirement| &*requirement.key).collect()
    }
}

/// A selector of labels as a node selector. Both match nothing if they are empty.
fn node_selector(selector: LabelSelector) -> NodeSelector {
    let equal = selector.match_labels.into_iter().flatten().map(|(key, value)| Requirement {
        key: key.into(),
        operator: "In".into(),
        values: vec![value.into()],
    });
    let others = selector.match_expressions.into_iter().flatten().map(|wire| Requirement {
        key: wire.key.into(),
        operator: wire.operator.into(),
        values: wire.values.into_iter().flatten().map(Into::into).collect(),
    });
    let match_expressions = equal.chain(others).collect();
    NodeSelector { terms: vec![NodeSelectorTerm { match_fields: Vec::new(), match_expressions }] }
}

impl ClusterView {
    /// What other schedulers say of the network.
    pub fn foreign_topologies(&self) -> &ForeignTopologies {
        &self.foreign_topologies
    }
}

impl Index<Topology> for ClusterView {
    fn apply(&mut self, object: Topology) -> Result<(), ViewError> {
        let labels = object.spec.levels.into_iter().map(|level| level.node_label).collect();
        let topologies = &mut self.foreign_topologies.topologies;
        topologies.insert(name(&object.metadata).to_owned(), labels);
        self.revision.levels += 1;
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        if self.foreign_topologies.topologies.remove(&key.name).is_some() {
            self.revision.levels += 1;
        }
    }
}

impl Index<HyperNode> for ClusterView {
    fn apply(&mut self, object: HyperNode) -> Result<(), ViewError> {
        let all = &mut self.foreign_topologies;
        let place = (object.spec.tier, name(&object.metadata).to_owned());
        all.forget_hyper_node(&place.1);
        for member in object.spec.members.into_iter().filter(|member| member.kind == NODE) {
            if let Some(exact) = member.selector.exact_match {
                all.named.entry(exact.name).or_default().insert(place.clone());
            } else if let Some(way) = Selection::new(member.selector) {
                all.selecting.entry(place.clone()).or_default().push(way);
            }
        }
        self.revision.levels += 1;
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.foreign_topologies.forget_hyper_node(&key.name);
        self.revision.levels += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn hyper_node(name: &str, tier: i64, members: &Value) -> HyperNode {
        let object =
            json!({"metadata": {"name": name}, "spec": {"tier": tier, "members": members}});
        serde_json::from_value(object).unwrap()
    }

    fn node(name: &str, rack: &str) -> Node {
        let labels = [("rack".into(), rack.into())].into();
        Node { labels, ..Node::named(name) }
    }

    fn home(view: &ClusterView, node: &Node) -> Option<(String, Vec<String>)> {
        let home = view.foreign_topologies().hyper_node_of(node)?;
        Some((home.name.to_owned(), home.labels.into_iter().map(str::to_owned).collect()))
    }

    #[test]
    fn a_node_is_in_the_hyper_node_of_the_lowest_tier() {
        let mut view = ClusterView::default();
        let by_name = json!([
            {"type": "Node", "selector": {"exactMatch": {"name": "a"}}},
            {"type": "HyperNode", "selector": {"exactMatch": {"name": "b"}}},
        ]);
        let by_pattern =
            json!([{"type": "Node", "selector": {"regexMatch": {"pattern": "^[ab]"}}}]);
        let by_label =
            json!([{"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "r"}}}}]);
        let nothing = json!([
            {"type": "Node", "selector": {"labelMatch": {}}},
            {"type": "Node", "selector": {"regexMatch": {"pattern": "("}}},
        ]);
        for object in [
            hyper_node("s1", 2, &by_name),
            hyper_node("s2", 3, &by_pattern),
            hyper_node("s3", 1, &by_label),
            hyper_node("s0", 0, &nothing),
        ] {
            view.apply(object).unwrap();
        }
        let named = |name: &str| Some((name.to_owned(), Vec::new()));
        let labelled = Some(("s3".to_owned(), vec!["rack".to_owned()]));
        for (node, expected) in [
            (node("a", "x"), named("s1")),
            (node("b", "x"), named("s2")),
            (node("a", "r"), labelled),
            (node("c", "x"), None),
        ] {
            assert_eq!(home(&view, &node), expected, "{node:?}");
        }
        let before = view.revision().levels;
        Index::<HyperNode>::delete(&mut view, &ObjectKey::cluster_wide("s1"));
        view.apply(hyper_node("s3", 4, &by_label)).unwrap();
        assert_eq!(home(&view, &node("a", "r")), named("s2"));
        assert!(view.revision().levels > before);
    }
}
