//! A network interface as the host has it before a pod gets it: what must be
//! there again afterwards.

use cluster_model::network_config::{EthtoolConfig, IpPrefix, MacAddress, NeighborConfig};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
    /// Its addresses, without those that the kernel makes by itself. Those that somebody
    /// gave it for a while are a pod's, and are not restored: their time goes on.
    pub addresses: Vec<HostAddress>,
    /// Routes through it, without those that the kernel makes by itself.
    pub routes: Vec<HostRoute>,
    /// What tells it from other interfaces; absent in plans of drivers that did not
    /// record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<LinkIdentity>,
    /// Permanent neighbours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbors: Vec<NeighborConfig>,
    /// Rules that lead to tables in which it has routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<HostRule>,
    /// The kernel's settings of it.
    #[serde(default)]
    pub settings: LinkSettings,
    /// The IPv6 router of its default route, whoever set that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<IpAddr>,
    /// Of its features and private flags those that the pod's configuration changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ethtool: Option<EthtoolConfig>,
}

/// What an interface is, whatever its name. The kernel gives device and permanent address;
/// nobody in a pod can change them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkIdentity {
    /// Its index in the host's network namespace.
    pub index: u32,
    /// Its kind, `veth`; none for the interface of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The device behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The address that its hardware has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent: Option<MacAddress>,
    /// Which port of the device it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

impl LinkIdentity {
    /// Whether an interface that is elsewhere, or was found again, may be this one.
    pub fn is(&self, other: &Self) -> bool {
        let Self { index: _, kind, parent, permanent, port } = self;
        (kind, parent, permanent, port)
            == (&other.kind, &other.parent, &other.permanent, &other.port)
    }

    /// Whether hardware tells it from all others.
    pub fn is_of_hardware(&self) -> bool {
        self.parent.is_some()
    }
}

/// The kernel's settings of an interface, which it forgets when the interface leaves its
/// namespace (`Documentation/networking/ip-sysctl.rst`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinkSettings {
    /// Those of IPv4 in the order of `IPV4_DEVCONF_…`, from 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv4: Vec<i32>,
    /// Those of IPv6 by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ipv6: BTreeMap<String, String>,
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
    /// Whether the next hop is taken to be on the link, whatever the addresses say
    /// (`RTNH_F_ONLINK`).
    #[serde(default)]
    pub onlink: bool,
    /// The kernel's whole message (`RTM_NEWROUTE`) in hexadecimal, for what has no field
    /// here: next hops, flags, metrics, encapsulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One routing rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRule {
    /// Its priority.
    pub priority: u32,
    /// Packets from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpPrefix>,
    /// Packets to there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpPrefix>,
    /// The routing table that they use.
    pub table: u32,
}

/// `RT_TABLE_MAIN`.
pub const TABLE_MAIN: u32 = 254;

impl HostRoute {
    /// Whether it leads everywhere, for all that has no other way.
    pub fn is_default(&self) -> bool {
        self.destination.prefix_len == 0 && self.table == TABLE_MAIN
    }

    /// Whether it needs no other route: it has no next hop, or the next hop is taken to be
    /// on the link.
    pub fn is_direct(&self) -> bool {
        self.gateway.is_none() || self.onlink
    }
}

impl HostAddress {
    /// An address of global scope with its network's broadcast address, for good.
    pub fn of(prefix: IpPrefix) -> Self {
        let (first, last) = prefix.bounds();
        let broadcast = match prefix.numbered(last) {
            Some(IpAddr::V4(address)) if last - first > 1 => Some(address),
            _ => None,
        };
        Self { prefix, scope: 0, peer: None, broadcast, label: None, flags: 0, seconds: None }
    }

    /// Whether it is of use beyond the link itself (`RT_SCOPE_UNIVERSE`).
    pub fn is_global(&self) -> bool {
        self.scope == 0
    }
}
