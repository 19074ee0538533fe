//! A node's fabric as a label: copied from its NodeTopology, so that no driver needs
//! permission to write nodes, otherwise the NVLink domain of its GPUs. A label that an
//! operator has set stays.

use cluster_model::names::label::{NODE_FABRIC, NODE_FABRIC_FROM, NVLINK_CLIQUE};
use cluster_model::view::ClusterView;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// Longest label value.
const LABEL_MAX: usize = 63;

/// Hex digits of the hash of a fabric whose name is not a valid label value.
const DIGITS: usize = 16;

/// The source of the label. It distinguishes the controller's labels from an operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FabricSource {
    /// The topology that the driver publishes.
    NodeTopology,
    /// The label of NVIDIA's GPU feature discovery.
    NvlinkClique,
}

impl FabricSource {
    /// Its name as a label value.
    const fn name(self) -> &'static str {
        match self {
            Self::NodeTopology => "NodeTopology",
            Self::NvlinkClique => "gpu.clique",
        }
    }
}

/// The nodes whose fabric labels differ from the known fabric, and the labels to merge
/// into each.
pub fn due(view: &ClusterView) -> Vec<(String, Value)> {
    let due = view.present_nodes().filter_map(|name| {
        let node = view.inventory().node(name)?;
        let wanted = wanted(view.fabric(name), node.label(NVLINK_CLIQUE));
        let from = node.label(NODE_FABRIC_FROM);
        Some((name.to_owned(), labels_for(wanted, node.label(NODE_FABRIC), from)?))
    });
    due.collect()
}

/// The known fabric as a label value, and its source.
fn wanted(published: Option<&str>, clique: Option<&str>) -> Option<(String, FabricSource)> {
    let published = published.map(|fabric| (label_value(fabric), FabricSource::NodeTopology));
    let clique = clique.filter(|clique| !clique.is_empty());
    published.or_else(|| clique.map(|clique| (label_value(clique), FabricSource::NvlinkClique)))
}

/// The changes to a node's labels.
fn labels_for(
    wanted: Option<(String, FabricSource)>,
    label: Option<&str>,
    from: Option<&str>,
) -> Option<Value> {
    let is_ours = [FabricSource::NodeTopology, FabricSource::NvlinkClique]
        .iter()
        .any(|source| from == Some(source.name()));
    match (wanted, label) {
        (Some((wanted, _)), Some(label)) if wanted == label => None,
        (_, Some(_)) if !is_ours => None,
        (Some((wanted, source)), _) => {
            Some(json!({NODE_FABRIC: wanted, NODE_FABRIC_FROM: source.name()}))
        }
        (None, _) if is_ours => Some(json!({NODE_FABRIC: null, NODE_FABRIC_FROM: null})),
        (None, _) => None,
    }
}

/// The fabric as a label value: its name, or a hash if the name is not a valid value.
pub fn label_value(fabric: &str) -> String {
    let is_label = fabric.len() <= LABEL_MAX
        && fabric.starts_with(|c: char| c.is_ascii_alphanumeric())
        && fabric.ends_with(|c: char| c.is_ascii_alphanumeric())
        && fabric.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if is_label { fabric.to_owned() } else { hash(fabric) }
}

fn hash(fabric: &str) -> String {
    let mut text = String::with_capacity(DIGITS);
    for byte in Sha256::digest(format!("fabric\0{fabric}")).iter().take(DIGITS / 2) {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_the_fabric_and_operator_labels_stay() {
        let set = |to: &str, from: &str| Some(json!({NODE_FABRIC: to, NODE_FABRIC_FROM: from}));
        let gone = Some(json!({NODE_FABRIC: null, NODE_FABRIC_FROM: null}));
        let topology = Some("NodeTopology");
        for (fabric, clique, label, from, expected) in [
            (None, None, None, None, None),
            (Some("a"), None, None, None, set("a", "NodeTopology")),
            (Some("a"), None, Some("a"), topology, None),
            (Some("b"), None, Some("a"), topology, set("b", "NodeTopology")),
            (Some("b"), None, Some("a"), None, None),
            (Some("b"), None, Some("a"), Some("an operator"), None),
            (None, None, Some("a"), topology, gone.clone()),
            (None, None, Some("a"), None, None),
            (Some("a"), None, None, topology, set("a", "NodeTopology")),
            (None, None, None, topology, gone),
            // The NVLink domain if nothing else is known.
            (None, Some("c.1"), None, None, set("c.1", "gpu.clique")),
            (None, Some(""), None, None, None),
            (Some("a"), Some("c.1"), None, None, set("a", "NodeTopology")),
            (Some("a"), Some("c.1"), Some("c.1"), Some("gpu.clique"), set("a", "NodeTopology")),
            (None, Some("c.1"), Some("c.1"), Some("gpu.clique"), None),
            (None, Some("c.1"), Some("mine"), None, None),
        ] {
            let change = labels_for(wanted(fabric, clique), label, from);
            assert_eq!(change, expected, "{fabric:?} {clique:?} {label:?} {from:?}");
        }
    }

    #[test]
    fn a_fabric_that_is_not_a_valid_label_is_hashed() {
        for (fabric, is_kept) in [
            ("c6c749e8-a38b-470e-8c94-2a7d00001bf0", true),
            ("rack_7.row-2", true),
            ("a/b", false),
            ("-a", false),
            ("", false),
            (&*"x".repeat(63), true),
            (&*"x".repeat(64), false),
        ] {
            let label = label_value(fabric);
            assert_eq!(label == fabric, is_kept, "{fabric}");
            assert!(is_kept || label.len() == DIGITS, "{label}");
        }
        assert_ne!(label_value("a/b"), label_value("a/c"));
    }
}
