//! The labels of nodes with their domains of the levels below the fabric, copied from labels that
//! others set, or from objects of other schedulers (`foreign_levels.rs`). The first source that a
//! node has wins; the built-in ones are in `level_sources.rs`. A label that an operator has set stays:
//! it has no label with its source beside it.

use crate::foreign_levels;
use crate::level_sources::{BLOCK, HYPER_NODE, NVLINK, TOPOLOGY};
use crate::node_label::label_value;
use cluster_model::fabric_level::FabricLevel;
use cluster_model::view::ClusterView;
use dra_allocator::Node;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::str::FromStr;

/// The labels of nodes, or the kinds of objects, from which the domains of one level are copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelSource {
    level: FabricLevel,
    labels: Vec<String>,
}

/// A setting of the sources of a level is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not of the form LEVEL=LABEL,LABEL with the level nvlink or block")]
pub struct BadLevelSource(String);

impl FromStr for LevelSource {
    type Err = BadLevelSource;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).ok_or_else(|| BadLevelSource(text.to_owned()))
    }
}

impl LevelSource {
    fn parse(text: &str) -> Option<Self> {
        let (level, labels) = text.split_once('=')?;
        let level = FabricLevel::named(level)?;
        let labels: Vec<_> = labels.split(',').map(str::to_owned).collect();
        labels.iter().all(|label| is_key(label)).then_some(Self { level, labels })
    }
}

/// Roughly a label's key: what no key can contain is a typing error.
fn is_key(label: &str) -> bool {
    !label.is_empty()
        && label.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
        && label.matches('/').count() < 2
}

/// The sources of every level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelSources(BTreeMap<FabricLevel, Vec<String>>);

impl LevelSources {
    /// The built-in sources, with those that an operator has set instead.
    pub fn with(own: Vec<LevelSource>) -> Self {
        let mut sources = BTreeMap::from([
            (FabricLevel::Nvlink, owned(&NVLINK)),
            (FabricLevel::Block, owned(&BLOCK)),
        ]);
        sources.extend(own.into_iter().map(|source| (source.level, source.labels)));
        Self(sources)
    }

    /// The sources of each level, the first that a node has wins.
    pub fn levels(&self) -> impl Iterator<Item = (FabricLevel, &[String])> {
        self.0.iter().map(|(level, labels)| (*level, labels.as_slice()))
    }
}

fn owned(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

impl Default for LevelSources {
    fn default() -> Self {
        Self::with(Vec::new())
    }
}

/// The nodes whose labels differ from their sources, and the labels to merge into each.
pub fn due(view: &ClusterView, sources: &LevelSources) -> Vec<(String, Value)> {
    let due = view.present_nodes().filter_map(|name| {
        let node = view.inventory().node(name)?;
        let mut change = Map::new();
        for (level, sources) in &sources.0 {
            change.extend(of_level(view, node, *level, sources));
        }
        (!change.is_empty()).then(|| (name.to_owned(), change.into()))
    });
    due.collect()
}

/// What a source says of the domain of a node, as a label value.
pub(crate) fn said(view: &ClusterView, node: &Node, source: &str) -> Option<String> {
    let value = match source {
        TOPOLOGY => foreign_levels::of_topologies(view, node)?,
        HYPER_NODE => foreign_levels::of_hyper_nodes(view, node)?,
        label => node.labels.get(label).filter(|value| !value.is_empty())?.to_string(),
    };
    Some(label_value(&value))
}

/// The changes to the labels of one level of a node.
fn of_level(
    view: &ClusterView,
    node: &Node,
    level: FabricLevel,
    sources: &[String],
) -> Map<String, Value> {
    let (own, from) = (node.label(level.label()), node.label(level.source_label()));
    let found = sources
        .iter()
        .find_map(|key| Some((said(view, node, key)?, label_value(&key.replace('/', "_")))));
    match (found, own) {
        (_, Some(_)) if from.is_none() => Map::new(),
        (Some((value, source)), _) if own != Some(&value) || from != Some(&source) => {
            change(level, Some(&value), Some(&source))
        }
        (None, _) if from.is_some() => change(level, None, None),
        _ => Map::new(),
    }
}

fn change(level: FabricLevel, value: Option<&str>, source: Option<&str>) -> Map<String, Value> {
    Map::from_iter([
        (level.label().to_owned(), Value::from(value)),
        (level.source_label().to_owned(), Value::from(source)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::names::label::{NODE_BLOCK, NODE_BLOCK_FROM, NODE_NVLINK, NODE_NVLINK_FROM};
    use cluster_model::view::Index as _;
    use k8s_openapi::api::core::v1 as wire;
    use serde_json::json;

    fn changes(labels: &Value, sources: &LevelSources) -> Option<Value> {
        let mut view = ClusterView::default();
        let node: wire::Node =
            serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).unwrap();
        view.apply(node).unwrap();
        due(&view, sources).pop().map(|(_, labels)| labels)
    }

    #[test]
    fn domains_follow_the_first_source_and_labels_of_operators_stay() {
        let built_in = LevelSources::default();
        let rack: LevelSource = "block=example.com/rack,rack".parse().unwrap();
        let own = LevelSources::with(vec![rack]);
        let clique = json!({NODE_NVLINK: "u.1", NODE_NVLINK_FROM: "nvidia.com_gpu.clique"});
        let leaf = json!({NODE_BLOCK: "s2", NODE_BLOCK_FROM: "fabric.topograph.run_tier-0"});
        let mut settled = clique.clone();
        settled["nvidia.com/gpu.clique"] = "u.1".into();
        let mut moved = settled.clone();
        moved["nvidia.com/gpu.clique"] = "u.2".into();
        for (labels, sources, expected) in [
            (json!({}), &built_in, None),
            (
                json!({"nvidia.com/gpu.clique": "u.1", "accelerator.topograph.run/domain": "d"}),
                &built_in,
                Some(clique.clone()),
            ),
            (settled, &built_in, None),
            (
                moved,
                &built_in,
                Some(json!({NODE_NVLINK: "u.2", NODE_NVLINK_FROM: "nvidia.com_gpu.clique"})),
            ),
            (
                json!({"fabric.topograph.run/tier-0": "s2", "fabric.topograph.run/tier-1": "s1"}),
                &built_in,
                Some(leaf.clone()),
            ),
            (leaf, &built_in, Some(json!({NODE_BLOCK: null, NODE_BLOCK_FROM: null}))),
            (json!({NODE_BLOCK: "mine", "fabric.topograph.run/tier-0": "s2"}), &built_in, None),
            (
                json!({
                    "topology.k8s.aws/network-node-layer-1": "nn-1",
                    "topology.k8s.aws/network-node-layer-3": "nn-3",
                }),
                &built_in,
                Some(json!({
                    NODE_BLOCK: "nn-3", NODE_BLOCK_FROM: "topology.k8s.aws_network-node-layer-3",
                })),
            ),
            (
                json!({"ib/torset": "torset-03"}),
                &built_in,
                Some(json!({NODE_BLOCK: "torset-03", NODE_BLOCK_FROM: "ib_torset"})),
            ),
            (
                json!({"rack": "7", "fabric.topograph.run/tier-0": "s2"}),
                &own,
                Some(json!({NODE_BLOCK: "7", NODE_BLOCK_FROM: "rack"})),
            ),
        ] {
            assert_eq!(changes(&labels, sources), expected, "{labels}");
        }
        for bad in ["", "block", "spine=a", "block=", "block=a,,b", "block=a b", "block=a/b/c"] {
            assert!(bad.parse::<LevelSource>().is_err(), "{bad}");
        }
    }
}
