//! A network interface as the host has it before a pod gets it: what must be
//! there again afterwards.

use cluster_model::network_config::{EthtoolConfig, IpPrefix, MacAddress};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};

/// One interface of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostLink {
    /// Its name.
    pub name: String,
    /// PCI address or like name of the device behind it.
    pub parent: Option<String>,
    /// Link-layer address.
    pub hardware_addr: Option<MacAddress>,
    /// Maximum transmission unit.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Segment sizes, where the kernel tells them.
    pub sizes: SegmentSizes,
    /// Its addresses, without those that the kernel makes by itself.
    pub addresses: Vec<HostAddress>,
    /// Routes through it, without those that the kernel makes by itself.
    pub routes: Vec<HostRoute>,
    /// Of its features and private flags those that the pod's configuration changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ethtool: Option<EthtoolConfig>,
}

/// Largest segments of generic offloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentSizes {
    /// Sending.
    pub gso: Option<u32>,
    /// Receiving.
    pub gro: Option<u32>,
    /// Sending, IPv4.
    pub gso_ipv4: Option<u32>,
    /// Receiving, IPv4.
    pub gro_ipv4: Option<u32>,
}

/// One address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostAddress {
    /// The address and its network.
    pub prefix: IpPrefix,
    /// `RT_SCOPE_…`.
    pub scope: u8,
    /// Other end of a point-to-point link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
    /// IPv4 broadcast address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<Ipv4Addr>,
    /// IPv4 label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// `IFA_F_…`, of those the ones that a person sets.
    #[serde(default)]
    pub flags: u32,
    /// For how many seconds, where somebody gives it for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRoute {
    /// Where to.
    pub destination: IpPrefix,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Preferred source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Routing table.
    pub table: u32,
    /// `RT_SCOPE_…`.
    pub scope: u8,
    /// `RTPROT_…`.
    pub protocol: u8,
}

/// `RT_TABLE_MAIN`.
pub const TABLE_MAIN: u32 = 254;

impl HostLink {
    /// Whether the node's own traffic leaves by it.
    pub fn is_uplink(&self) -> bool {
        let is_default =
            |route: &HostRoute| route.destination.prefix_len == 0 && route.table == TABLE_MAIN;
        self.routes.iter().any(is_default)
    }
}

impl HostAddress {
    /// Whether it is of use beyond the link itself (`RT_SCOPE_UNIVERSE`).
    pub fn is_global(&self) -> bool {
        self.scope == 0
    }
}
