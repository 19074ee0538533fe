//! Nodes whose sources of fabrics and domains disagree.
//!
//! Sources name domains differently, so their values are not compared. What counts is which nodes are
//! together: a domain in use is in conflict with another source if that one says that its nodes are in
//! several domains. Pods that are placed together then may not reach each other as they expect. What
//! another source says is together, and the source in use apart, costs only choice, and is no conflict.
//! An NVLink domain that spans two fabrics is in conflict with the fabrics.

use crate::level_labels::{LevelSources, said};
use crate::node_label::label_value;
use cluster_model::fabric_level::FabricLevel;
use cluster_model::names::label::{NODE_FABRIC, NODE_FABRIC_FROM};
use cluster_model::view::ClusterView;
use dra_allocator::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The source of labels that were not copied.
const OPERATOR: &str = "a label of the operator";
/// The source of fabrics that the driver publishes.
const PUBLISHED: &str = "NodeTopology";
/// The layers of AWS are levels of their own: the farther one never is in conflict with the nearer.
const AWS_LAYER: &str = "topology.k8s.aws/network-node-layer-";
/// The most nodes that a text names.
const NAMED: usize = 3;

/// A domain, or a fabric, whose nodes another source divides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The level; `None` for the fabric.
    pub level: Option<FabricLevel>,
    /// The value of the label in use.
    pub domain: String,
    /// The source in use.
    pub source: String,
    /// The source that divides it.
    pub other: String,
    /// What that source calls its parts, with the nodes of each.
    pub parts: BTreeMap<String, BTreeSet<String>>,
}

impl Conflict {
    /// The name of the level.
    pub fn level_name(&self) -> &'static str {
        self.level.map_or("fabric", FabricLevel::name)
    }

    /// The nodes outside of the largest part; of parts that are equally large, the first is meant.
    pub fn outliers(&self) -> BTreeSet<&str> {
        let mut largest: Option<(&String, &BTreeSet<String>)> = None;
        for part in &self.parts {
            if largest.is_none_or(|(_, nodes)| part.1.len() > nodes.len()) {
                largest = Some(part);
            }
        }
        let others = self.parts.iter().filter(|(name, _)| Some(*name) != largest.map(|it| it.0));
        others.flat_map(|(_, nodes)| nodes.iter().map(String::as_str)).collect()
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, domain, source, other, parts } = self;
        let nodes: usize = parts.values().map(BTreeSet::len).sum();
        match level {
            Some(level) => write!(f, "{level} {domain}")?,
            None => write!(f, "fabric {domain}")?,
        }
        write!(f, " ({source}) has {nodes} nodes that {other} divides: ")?;
        for (index, (name, nodes)) in parts.iter().enumerate() {
            let named: Vec<&str> = nodes.iter().take(NAMED).map(String::as_str).collect();
            let more = nodes.len() - named.len();
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{name} on {}", named.join(" "))?;
            if more > 0 {
                write!(f, " and {more} more")?;
            }
        }
        Ok(())
    }
}

/// What sources say of a node, the one in use first.
type Said = Vec<(String, String)>;
/// What each other source says of the nodes of a domain: values with nodes.
type Others = BTreeMap<String, Vec<(String, String)>>;

/// The conflicts of a cluster.
pub fn conflicts(view: &ClusterView, sources: &LevelSources) -> Vec<Conflict> {
    let mut found = divided(view, None, |node| of_fabric(view, node));
    for (level, sources) in sources.levels() {
        found.extend(divided(view, Some(level), |node| of_level(view, node, level, sources)));
    }
    found.sort();
    found
}

/// The domains of a level that other sources divide.
fn divided(
    view: &ClusterView,
    level: Option<FabricLevel>,
    said: impl Fn(&str) -> Option<Said>,
) -> Vec<Conflict> {
    // By domain and its source, what each other source says of its nodes.
    let mut domains: BTreeMap<(String, String), Others> = BTreeMap::new();
    for node in view.present_nodes() {
        let Some(mut said) = said(node).map(Vec::into_iter) else { continue };
        let Some((source, domain)) = said.next() else { continue };
        let others = domains.entry((domain, source)).or_default();
        for (other, value) in said {
            others.entry(other).or_default().push((value, node.to_owned()));
        }
    }
    let mut found = Vec::new();
    for ((domain, source), others) in domains {
        for (other, values) in others {
            let mut parts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for (value, node) in values {
                parts.entry(value).or_default().insert(node);
            }
            if parts.len() > 1 {
                let (domain, source) = (domain.clone(), source.clone());
                found.push(Conflict { level, domain, source, other, parts });
            }
        }
    }
    found
}

/// What an operator and the driver say of the fabric of a node.
fn of_fabric(view: &ClusterView, node: &str) -> Option<Said> {
    let labels = &view.inventory().node(node)?.labels;
    let own = labels.get(NODE_FABRIC).filter(|_| !labels.contains_key(NODE_FABRIC_FROM));
    let own = own.map(|value| (OPERATOR.to_owned(), value.to_string()));
    let published = view.fabric(node).map(|it| (PUBLISHED.to_owned(), label_value(it)));
    Some(own.into_iter().chain(published).collect())
}

/// What an operator, the labels of others and the fabrics say of the domain of a node.
fn of_level(
    view: &ClusterView,
    node: &str,
    level: FabricLevel,
    sources: &[String],
) -> Option<Said> {
    let node = view.inventory().node(node)?;
    let own = filled_label(node, level.label());
    let own = own.filter(|_| filled_label(node, level.source_label()).is_none());
    let own = own.map(|value| (OPERATOR.to_owned(), value.to_owned()));
    let mut has_layer = false;
    let others = sources.iter().filter_map(|key| {
        let value = said(view, node, key)?;
        let is_farther = key.starts_with(AWS_LAYER) && std::mem::replace(&mut has_layer, true);
        (!is_farther).then(|| (key.clone(), value))
    });
    let mut all: Said = own.into_iter().chain(others).collect();
    let fabric = filled_label(node, NODE_FABRIC);
    let fabric = fabric.filter(|_| level == FabricLevel::Nvlink && !all.is_empty());
    all.extend(fabric.map(|fabric| (NODE_FABRIC.to_owned(), fabric.to_owned())));
    Some(all)
}

fn filled_label<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    node.label(key).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::names::label::{NODE_BLOCK, NODE_NVLINK, NODE_NVLINK_FROM};
    use cluster_model::view::Index as _;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    const CLIQUE: &str = "nvidia.com/gpu.clique";
    const TOPOGRAPH: &str = "accelerator.topograph.run/domain";
    const TIER: &str = "fabric.topograph.run/tier-0";
    const SUBBLOCK: &str = "cloud.google.com/gce-topology-subblock";

    fn found(nodes: &[Value]) -> Vec<String> {
        let mut view = ClusterView::default();
        for (index, labels) in nodes.iter().enumerate() {
            let node = json!({"metadata": {"name": format!("n{index}"), "labels": labels}});
            view.apply(serde_json::from_value::<Node>(node).unwrap()).unwrap();
        }
        let conflicts = conflicts(&view, &LevelSources::default());
        let outliers = |it: &Conflict| it.outliers().into_iter().collect::<Vec<_>>().join(" ");
        conflicts.iter().map(|it| format!("{it}; {}", outliers(it))).collect()
    }

    #[test]
    fn sources_that_divide_a_domain_are_in_conflict() {
        let both = |clique: &str, other: &str| json!({CLIQUE: clique, TOPOGRAPH: other});
        let text = "NVLink domain u.1 (nvidia.com/gpu.clique) has 3 nodes that \
                    accelerator.topograph.run/domain divides: a on n0 n1, b on n2; n2";
        for (nodes, expected) in [
            (vec![both("u.1", "a"), both("u.1", "a"), both("u.2", "b")], vec![]),
            // Names do not matter, and a wider domain of the other source neither.
            (vec![both("u.1", "a"), both("u.2", "a")], vec![]),
            (vec![both("u.1", "a"), both("u.1", "a"), both("u.1", "b")], vec![text]),
            // Only where both say something.
            (vec![both("u.1", "a"), json!({CLIQUE: "u.1"}), json!({TOPOGRAPH: "b"})], vec![]),
            // What the controller has copied is no source.
            (
                vec![
                    json!({CLIQUE: "u.1", NODE_NVLINK: "u.1", NODE_NVLINK_FROM: "nvidia.com_gpu.clique"}),
                    json!({CLIQUE: "u.1", NODE_NVLINK: "old", NODE_NVLINK_FROM: "nvidia.com_gpu.clique"}),
                ],
                vec![],
            ),
            // A label of the operator wins, and the rest is compared with it.
            (
                vec![
                    json!({NODE_BLOCK: "mine", TIER: "s1"}),
                    json!({NODE_BLOCK: "mine", TIER: "s2", SUBBLOCK: "x"}),
                ],
                vec![
                    "block mine (a label of the operator) has 2 nodes that \
                     fabric.topograph.run/tier-0 divides: s1 on n0, s2 on n1; n1",
                ],
            ),
            // Layers of AWS are levels.
            (
                vec![
                    json!({
                        "topology.k8s.aws/network-node-layer-4": "l4",
                        "topology.k8s.aws/network-node-layer-3": "a",
                    }),
                    json!({
                        "topology.k8s.aws/network-node-layer-4": "l4",
                        "topology.k8s.aws/network-node-layer-3": "b",
                    }),
                ],
                vec![],
            ),
            (
                vec![
                    json!({CLIQUE: "u.1", NODE_FABRIC: "f1"}),
                    json!({CLIQUE: "u.1", NODE_FABRIC: "f2"}),
                ],
                vec![
                    "NVLink domain u.1 (nvidia.com/gpu.clique) has 2 nodes that \
                     topology.dranet.io/fabric divides: f1 on n0, f2 on n1; n1",
                ],
            ),
        ] {
            assert_eq!(found(&nodes), expected, "{nodes:?}");
        }
    }
}
