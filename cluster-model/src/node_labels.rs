//! Labels by which a flag selects nodes.

use std::collections::BTreeMap;
use std::str::FromStr;

/// Labels that a node must have, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLabels(BTreeMap<String, String>);

impl NodeLabels {
    /// Whether a node with these labels has them.
    pub fn select(&self, labels: &BTreeMap<String, String>) -> bool {
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
