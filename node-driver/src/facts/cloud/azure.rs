//! Azure's Instance Metadata Service.
//!
//! Follows "Azure Instance Metadata Service" of the Microsoft documentation: every
//! request needs `Metadata: true`. The fabric of a virtual machine is its placement group
//! and, on rack-scale sizes, its interconnect groups.

use crate::facts::cloud::http::{MetadataError, MetadataService, header};
use cluster_model::names::attribute;
use cluster_model::network_config::MacAddress;
use process::chain::Chain;
use publication::cloud::{CloudMetadata, CloudNic};
use serde::Deserialize;
use std::net::Ipv6Addr;

/// The first API version with interconnect groups.
const COMPUTE: &str = "/metadata/instance/compute?api-version=2025-11-11&format=json";

/// The network interfaces, in the same API version.
const NETWORK: &str = "/metadata/instance/network?api-version=2025-11-11&format=json";

/// The part of the instance's `compute` metadata that locates the machine.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Compute {
    placement_group_id: Option<String>,
    vm_size: Option<String>,
    interconnect_group_id: Option<String>,
    interconnect_subgroup_id: Option<String>,
}

/// The part of the instance's `network` metadata that routes depend on.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Network {
    interface: Vec<Interface>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Interface {
    mac_address: String,
    ipv4: Ipv4,
    ipv6: Ipv6,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ipv4 {
    subnet: Vec<Subnet>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subnet {
    address: String,
    prefix: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ipv6 {
    ip_address: Vec<Ipv6Address>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ipv6Address {
    private_ip_address: String,
}

/// Reads the metadata. Empty values are dropped; network interfaces are absent if the
/// service does not report them.
pub(super) async fn read(service: &MetadataService) -> Result<CloudMetadata, MetadataError> {
    let headers = [header("metadata", "true")];
    let compute: Compute = service.json(COMPUTE, &headers).await?;
    let network: Network = match service.json(NETWORK, &headers).await {
        Err(error) if !error.is_passing() => {
            tracing::warn!(error = %Chain(&error), "No network interfaces in the metadata");
            Network::default()
        }
        answer => answer?,
    };
    let nics = network.interface.iter().filter_map(Interface::nic).collect();
    Ok(CloudMetadata::from(compute).with_nics(nics))
}

impl Interface {
    fn nic(&self) -> Option<CloudNic> {
        let subnet = self.ipv4.subnet.first();
        let subnet = subnet.and_then(|it| format!("{}/{}", it.address, it.prefix).parse().ok());
        let ipv6 = self.ipv6.ip_address.first();
        let ipv6 = ipv6.and_then(|it| it.private_ip_address.parse().ok());
        let ipv6 = ipv6.filter(|address: &Ipv6Addr| !address.is_unicast_link_local());
        Some(CloudNic { hardware_addr: mac(&self.mac_address)?, subnet, ipv6 })
    }
}

/// Parses a hardware address without separators, `000D3AF806EC`.
fn mac(text: &str) -> Option<MacAddress> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs: Vec<_> = digits.chunks(2).map(String::from_utf8_lossy).collect();
    pairs.join(":").parse().ok()
}

impl From<Compute> for CloudMetadata {
    fn from(compute: Compute) -> Self {
        let Compute {
            placement_group_id,
            vm_size,
            interconnect_group_id,
            interconnect_subgroup_id,
        } = compute;
        Self::new([
            (attribute::AZURE_PLACEMENT_GROUP, placement_group_id),
            (attribute::AZURE_VM_SIZE, vm_size),
            (attribute::AZURE_INTERCONNECT_GROUP, interconnect_group_id),
            (attribute::AZURE_INTERCONNECT_SUBGROUP, interconnect_subgroup_id),
        ])
    }
}
