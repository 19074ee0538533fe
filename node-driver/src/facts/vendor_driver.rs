//! Whether the driver of the node's NICs comes in a container, and how far that is.

use crate::vendor_driver::state::VendorDriverState;
use std::collections::BTreeMap;
use std::str::FromStr;

/// What is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VendorDriverFacts {
    /// What the vendor's container recorded in this boot.
    pub(crate) state: Option<VendorDriverState>,
    /// Whether the node's labels say that there will be such a container.
    pub(crate) is_selected: bool,
    /// Whether claims have NICs of this node.
    pub(crate) has_claims: bool,
    /// Whether this node is the one of the cluster that may be drained.
    pub(crate) has_turn: bool,
}

/// Labels that a node must have, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLabels(BTreeMap<String, String>);

impl NodeLabels {
    /// Whether a node with these labels has them.
    pub(crate) fn select(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

impl FromStr for NodeLabels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let labels: Option<BTreeMap<_, _>> = text
            .split(',')
            .map(|part| {
                let (key, value) = part.split_once('=').filter(|(key, _)| !key.is_empty())?;
                Some((key.to_owned(), value.to_owned()))
            })
            .collect();
        labels.map(Self).ok_or_else(|| "must be KEY=VALUE, separated by commas".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_must_have_all_labels() {
        let labels: NodeLabels = "os=ubuntu,version=22.04".parse().unwrap();
        let node = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert!(labels.select(&node(&[("os", "ubuntu"), ("version", "22.04"), ("a", "b")])));
        assert!(!labels.select(&node(&[("os", "ubuntu"), ("version", "24.04")])));
        assert!(!labels.select(&node(&[("os", "ubuntu")])));
        for wrong in ["", "os", "=ubuntu", "os=ubuntu,"] {
            assert!(wrong.parse::<NodeLabels>().is_err(), "{wrong}");
        }
    }
}
