//! The operator's choice of NICs for the host and for pods.

use super::Interface;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Which NICs stay with the host, and which pods may get although the node's own traffic uses them.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostNics {
    /// NIC that stays with the host, by interface name (`*` for any text) or PCI address; repeatable
    #[arg(long = "host-nic", value_name = "NIC")]
    pub host: Vec<NicPattern>,
    /// NIC that pods may get although a default route leads through it, by interface name (`*` for
    /// any text) or PCI address; repeatable. What leads to the API server stays with the host
    #[arg(long = "pod-nic", value_name = "NIC")]
    pub pods: Vec<NicPattern>,
}

/// An interface name with `*` for any text, or a PCI address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NicPattern(String);

impl HostNics {
    pub(super) fn is_for_host(&self, interface: &Interface) -> bool {
        self.host.iter().any(|pattern| pattern.selects(interface))
    }

    pub(super) fn is_for_pods(&self, interface: &Interface) -> bool {
        self.pods.iter().any(|pattern| pattern.selects(interface))
    }

    /// Whether a PCI function stays with the host, by its address.
    pub(super) fn keeps(&self, address: &str) -> bool {
        self.host.iter().any(|pattern| pattern.0 == address)
    }
}

impl NicPattern {
    fn selects(&self, interface: &Interface) -> bool {
        matches(&self.0, &interface.name) || interface.parent.as_ref() == Some(&self.0)
    }
}

impl FromStr for NicPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains([' ', '/', ',']) {
            return Err("must be an interface name, in which `*` stands for any text, or a PCI \
                        address such as 0000:3b:00.0"
                .to_owned());
        }
        Ok(Self(
            text.to_lowercase()
                .parse::<topology_graph::PciAddress>()
                .map_or_else(|_| text.to_owned(), |address| address.to_string()),
        ))
    }
}

/// Whether a name matches a pattern with `*` for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_select_by_name_or_address() {
        let interface = Interface {
            name: "enp59s0f1np1".to_owned(),
            parent: Some("0000:3b:00.1".to_owned()),
            ..Interface::default()
        };
        for (pattern, expected) in [
            ("enp59s0f1np1", true),
            ("enp59s0f1", false),
            ("enp59s0f1*", true),
            ("*np1", true),
            ("en*f1*1", true),
            ("en*f2*1", false),
            ("*", true),
            ("0000:3b:00.1", true),
            ("0000:3B:00.1", true),
            ("0000:3b:00.0", false),
        ] {
            let pattern: NicPattern = pattern.parse().unwrap();
            assert_eq!(pattern.selects(&interface), expected, "{pattern:?}");
        }
        for text in ["", "eth0,eth1", "a/b", "a b"] {
            assert!(text.parse::<NicPattern>().is_err(), "{text}");
        }
    }
}
