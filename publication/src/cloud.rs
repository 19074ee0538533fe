//! What a cloud says about a virtual machine: its size and its fabric. Facts only; which NIC has which
//! attribute is decided elsewhere.

use crate::attribute::Text;
use cluster_model::names::attribute;
use cluster_model::network_config::{IpPrefix, MacAddress};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;

/// The most attributes that any cloud gives a machine. The attribute tables of NICs leave
/// room for that many.
pub const MAX_ATTRIBUTES: usize = 5;

/// Attributes that name the fabric of the machine, widest group first.
const FABRICS: [&str; 5] = [
    attribute::AZURE_INTERCONNECT_GROUP,
    attribute::AZURE_PLACEMENT_GROUP,
    attribute::AWS_PLACEMENT_GROUP,
    attribute::GCE_BLOCK,
    attribute::OKE_HPC_ISLAND,
];

/// A cloud's metadata about a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudMetadata {
    /// Attributes of the whole machine by fully qualified name.
    #[serde(flatten)]
    attributes: BTreeMap<String, Text>,
    /// Its network interfaces, in the cloud's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    nics: Vec<CloudNic>,
}

/// A cloud's metadata about a network interface, for clouds that route by source address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudNic {
    /// Its hardware address.
    pub hardware_addr: MacAddress,
    /// Its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<IpPrefix>,
    /// Its IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Addr>,
}

impl CloudMetadata {
    /// Builds metadata from names and values; drops empty values.
    pub fn new<const N: usize>(said: [(&str, Option<String>); N]) -> Self {
        let said = said.into_iter();
        said.filter_map(|(name, text)| Some((name.to_owned(), Text::new(&text?)?))).collect()
    }

    /// Adds the machine's network interfaces.
    #[must_use]
    pub fn with_nics(mut self, nics: Vec<CloudNic>) -> Self {
        self.nics = nics;
        self
    }

    /// One attribute's value.
    pub fn get(&self, name: &str) -> Option<&Text> {
        self.attributes.get(name)
    }

    /// The machine's network interfaces, if the cloud says how to route them.
    pub fn nics(&self) -> &[CloudNic] {
        &self.nics
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Text)> {
        self.attributes.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The fabric of the machine according to the cloud: the widest group that it
    /// reports.
    pub fn fabric(&self) -> Option<&Text> {
        FABRICS.iter().find_map(|name| self.get(name))
    }

    /// The machine type, from which the topology that the hypervisor hides is known.
    pub fn machine_type(&self) -> Option<&str> {
        attribute::MACHINE_TYPES.iter().find_map(|name| self.get(name)).map(Text::as_str)
    }
}

impl FromIterator<(String, Text)> for CloudMetadata {
    fn from_iter<I: IntoIterator<Item = (String, Text)>>(attributes: I) -> Self {
        Self { attributes: attributes.into_iter().collect(), nics: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fabric_is_the_widest_group() {
        let of = |names: &[&str]| -> CloudMetadata {
            let text = |name: &str| (name.to_owned(), Text::new(name).unwrap());
            names.iter().map(|name| text(name)).collect()
        };
        let (group, placement) =
            (attribute::AZURE_INTERCONNECT_GROUP, attribute::AZURE_PLACEMENT_GROUP);
        for (names, expected) in [
            (&[placement, group][..], Some(group)),
            (&[placement], Some(placement)),
            (&[attribute::AZURE_VM_SIZE], None),
            (&[], None),
        ] {
            assert_eq!(of(names).fabric().map(Text::as_str), expected);
        }
    }
}
