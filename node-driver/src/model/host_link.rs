//! State of a network interface on the host before a pod gets it, to be restored later.

use cluster_model::network_config::{
    EthtoolConfig, IpPrefix, MacAddress, NeighborConfig, RouteConfig,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One interface of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostLink {
    /// Its name.
    pub name: String,
    /// PCI address or other bus name of its device.
    pub parent: Option<String>,
    /// Name of the host's interface below it, without which it reaches nothing: that of a VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<String>,
    /// Link-layer address.
    pub hardware_addr: Option<MacAddress>,
    /// Maximum transmission unit.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Segment sizes, if the kernel reports them.
    pub sizes: SegmentSizes,
    /// Its configured addresses. A pod may use those with a lifetime, but they are not
    /// restored, because their lifetime goes on.
    pub addresses: Vec<HostAddress>,
    /// Its routes, without those that the kernel adds by itself.
    pub routes: Vec<HostRoute>,
    /// The properties that identify it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub identity: LinkIdentity,
    /// Permanent neighbours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbors: Vec<NeighborConfig>,
    /// How the kernel asks for neighbours on it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub neighbor_settings: NeighborSettings,
    /// Rules that select tables in which it has routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<HostRule>,
    /// What belongs to it and a pod's configuration cannot say: no pod gets it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The API servers when it was read. Pods reach them by their own network.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub servers: BTreeSet<IpAddr>,
    /// The kernel's settings for it.
    #[serde(default)]
    pub settings: LinkSettings,
    /// The IPv6 gateway of its default route, no matter who added the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<IpAddr>,
    /// Former values of the features and private flags that the pod's configuration
    /// changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ethtool: Option<EthtoolConfig>,
    /// Kinds of the queueing disciplines that an administrator set on it. The kernel drops them with
    /// their filters when it moves.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub disciplines: BTreeSet<String>,
    /// Properties that it takes into the pod and back.
    #[serde(default, skip_serializing_if = "is_default")]
    pub carried: Carried,
    /// How the kernel polls it for packets. It takes that into the pod and back, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi: Option<Napi>,
    /// Settings of its driver. It takes them into the pod and back, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
}

/// Values of settings by their numbers, `NDTPA_…`, as the kernel has them in messages; by the names of tables.
pub type NeighborSettings = BTreeMap<String, BTreeMap<u16, Vec<u8>>>;

/// Settings of an interface's driver, as far as it has them (`ethtool -K`, `-L`, `-C`). Numbers are by
/// their names in `Documentation/netlink/specs/ethtool.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tuning {
    /// The features that can be changed and were requested to be on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<BTreeSet<String>>,
    /// Numbers of channels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, u32>,
    /// Sizes of rings.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rings: BTreeMap<String, u32>,
    /// Coalescing of interrupts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub coalescing: BTreeMap<String, u32>,
}

/// How the kernel polls an interface for packets (`Documentation/networking/napi.rst`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Napi {
    /// Settings of the interface by their files in sysfs. Times are in nanoseconds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub interface: BTreeMap<String, u64>,
    /// The NAPI instances that have other settings than their interface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<NapiInstance>,
}

/// Settings of one NAPI instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NapiInstance {
    /// Its place among the instances of the interface, from 0: the kernel gives them new numbers.
    pub queue: usize,
    /// By their names in `netdev.yaml`.
    pub settings: BTreeMap<String, u64>,
}

/// Properties that an interface keeps when it changes its namespace. A pod may change them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Carried {
    /// Its alternative names (`ip link property`).
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub alternative_names: BTreeSet<String>,
    /// Its alias.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Length of its transmit queue, in packets.
    pub queue_length: u32,
    /// Its group.
    pub group: u32,
    /// Whether an administrator made it receive all packets.
    pub promiscuous: bool,
    /// Whether an administrator made it receive all multicast packets.
    pub all_multicast: bool,
    /// How it is used.
    pub modes: LinkModes,
    /// IDs of its eBPF programs (XDP, TCX); unknown if the kernel did not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<BTreeSet<u32>>,
    /// Those of XDP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xdp: Vec<XdpProgram>,
}

/// How the kernel uses an interface. With some of them nothing reaches it any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinkModes {
    /// Whether the kernel asks for hardware addresses on it.
    pub arp: bool,
    /// Whether it sends multicast packets.
    pub multicast: bool,
    /// `IF_LINK_MODE_…`: when it is operational.
    pub link_mode: u8,
    /// The hardware address that means all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<MacAddress>,
    /// The most segments that it gets in one packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<u32>,
}

/// An XDP program of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpProgram {
    /// Its ID.
    pub id: u32,
    /// How it is attached, a flag of `XDP_FLAGS_…`.
    pub mode: u32,
}

/// Identity of an interface, independent of its name. The kernel sets device and
/// permanent address; nobody in a pod can change them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkIdentity {
    /// Its index in the host's network namespace.
    pub index: u32,
    /// Its link kind, for example `veth`; none for the interface of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its permanent hardware address, if it keeps that when its driver is loaded again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent: Option<MacAddress>,
    /// Its port on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl LinkIdentity {
    /// Whether the other interface, found elsewhere or later, may be this one.
    pub fn is(&self, other: &Self) -> bool {
        let Self { index: _, kind, parent, permanent, port } = self;
        // Without an address that lasts, its device identifies it.
        let is_address = permanent.is_none() && parent.is_some() || *permanent == other.permanent;
        is_address && (kind, parent, port) == (&other.kind, &other.parent, &other.port)
    }

    /// Whether hardware properties identify it uniquely.
    pub fn is_of_hardware(&self) -> bool {
        self.parent.is_some()
    }
}

/// The kernel's settings of an interface, which it forgets when the interface leaves its
/// namespace (`Documentation/networking/ip-sysctl.rst`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinkSettings {
    /// IPv4 settings in the order of `IPV4_DEVCONF_…`, from 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv4: Vec<i32>,
    /// IPv6 settings by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ipv6: BTreeMap<String, String>,
    /// What the addresses that routers give it end with (`ip token`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Ipv6Addr>,
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
    /// `IFA_F_…` flags that an administrator sets.
    #[serde(default)]
    pub flags: u32,
    /// The metric of the route to its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// `IFAPROT_…`: who added it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Its lifetime in seconds, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// For how many seconds an address without a lifetime is used for new connections, if not for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<u32>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRoute {
    /// Its destination.
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
    /// Whether the next hop counts as on-link regardless of the addresses
    /// (`RTNH_F_ONLINK`).
    #[serde(default)]
    pub onlink: bool,
    /// The kernel's whole message (`RTM_NEWROUTE`) in hexadecimal, for properties that
    /// have no field here: next hops, flags, metrics, encapsulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One routing rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostRule {
    /// Its priority.
    pub priority: u32,
    /// Source of the packets that it matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpPrefix>,
    /// Destination of the packets that it matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpPrefix>,
    /// The routing table that it selects.
    pub table: u32,
}

/// `RT_TABLE_MAIN`.
pub const TABLE_MAIN: u32 = 254;

/// `RTPROT_STATIC`.
const PROTOCOL_STATIC: u8 = 4;

impl HostLink {
    /// The address with this prefix.
    pub fn address(&self, prefix: IpPrefix) -> Option<&HostAddress> {
        self.addresses.iter().find(|address| address.prefix == prefix)
    }

    /// The route of the host that a pod's route comes from. A configuration has no metric and no MTU of a
    /// route; an inherited one has the host's, in whatever table it is.
    pub fn former(&self, route: &RouteConfig) -> Option<&HostRoute> {
        let mut same = self.routes.iter().filter(|former| former.leads_as(route));
        same.clone().find(|former| former.table == route.table_id()).or_else(|| same.next())
    }

    /// Whether it has this route in the main table.
    pub fn has_in_main(&self, route: &RouteConfig) -> bool {
        self.routes.iter().any(|former| former.table == TABLE_MAIN && former.leads_as(route))
    }
}

impl HostRoute {
    /// A route to this destination without a next hop, in the main table.
    pub fn to(destination: IpPrefix) -> Self {
        Self {
            destination,
            gateway: None,
            source: None,
            priority: None,
            table: TABLE_MAIN,
            scope: 0,
            protocol: PROTOCOL_STATIC,
            onlink: false,
            message: None,
        }
    }

    fn leads_as(&self, route: &RouteConfig) -> bool {
        (self.destination, self.gateway) == (route.destination, route.gateway)
    }

    /// Whether it is a default route of the main table.
    pub fn is_default(&self) -> bool {
        self.destination.prefix_len == 0 && self.table == TABLE_MAIN
    }

    /// Whether it needs no other route: it has no next hop, or the next hop counts as
    /// on-link.
    pub fn is_direct(&self) -> bool {
        self.gateway.is_none() || self.onlink
    }
}

impl HostAddress {
    /// A permanent address of global scope, with its network's broadcast address.
    pub fn new(prefix: IpPrefix) -> Self {
        let (first, last) = prefix.bounds();
        let broadcast = match prefix.numbered(last) {
            Some(IpAddr::V4(address)) if last - first > 1 => Some(address),
            _ => None,
        };
        Self {
            prefix,
            scope: 0,
            peer: None,
            broadcast,
            label: None,
            flags: 0,
            metric: None,
            protocol: None,
            seconds: None,
            preferred: None,
        }
    }

    /// The address without its network.
    pub fn alone(&self) -> IpPrefix {
        let prefix_len = if self.prefix.address.is_ipv4() { 32 } else { 128 };
        IpPrefix { prefix_len, ..self.prefix }
    }

    /// Whether it is valid beyond the link (`RT_SCOPE_UNIVERSE`).
    pub fn is_global(&self) -> bool {
        self.scope == 0
    }
}
