//! The network configuration that a claim passes to the driver as opaque parameters. It is upstream
//! DRANET's JSON, field by field, with the same strictness.
//!
//! Parsing checks only the text. [`NetworkConfig::check_rdma_only`] checks what a device supports
//! (an InfiniBand-only NIC has no interface). What the kernel supports shows when the configuration
//! is applied.

mod check;
mod guard;
mod prefix;
mod shape;
mod values;

pub use guard::{ALL_NAMESPACES, PermissionError, permission};
pub use prefix::{address, number};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use topology_graph::Level;
pub use values::{Guid, IpPrefix, LinkName, LinkNamePattern, MacAddress, PartitionKey, ValueError};

/// Configuration of one network device in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// The name of a profile. Upstream gets its fields from a service of the site; this driver does
    /// not use one and rejects the field with an explanation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The interface itself.
    pub interface: InterfaceConfig,
    /// Routes that go through it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteConfig>,
    /// Policy rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleConfig>,
    /// Permanent neighbours.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub neighbors: Vec<NeighborConfig>,
    /// Driver features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethtool: Option<EthtoolConfig>,
    /// Settings for applications on the NIC's RDMA ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaConfig>,
    /// Settings of a virtual function at its physical function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_function: Option<VirtualFunctionConfig>,
    /// What a NIC must be near that is chosen when the pod starts. NICs that the claim names ignore it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_binding: Option<LateBindingConfig>,
}

/// How NICs are chosen on a node that binds them late (`--bind-nics=late`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LateBindingConfig {
    /// The number of GPUs that a device plugin must have given the pod; otherwise its NICs would be
    /// chosen for the wrong ones. Absent: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// How near each NIC must be to its GPU: the pod does not start otherwise. Absent: the nearest free
    /// NICs, at any distance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<Level>,
}

/// What a physical function allows a virtual function while the claim holds it. The kernel applies
/// these settings at the physical function's interface, which stays on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VirtualFunctionConfig {
    /// The VLAN of its packets; 0 means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// The VLAN priority of its packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_qos: Option<u8>,
    /// The protocol of the VLAN's tags; default: 802.1Q.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_proto: Option<VlanProto>,
    /// Whether it may change its hardware address and receive packets for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<bool>,
    /// Whether packets with another source address than its own are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spoof_check: Option<bool>,
    /// The guaranteed transmit rate in Mbit/s; 0 guarantees none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tx_rate: Option<u32>,
    /// The maximum transmit rate in Mbit/s; 0 means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tx_rate: Option<u32>,
    /// The state of its link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_state: Option<LinkState>,
    /// The GUID of its InfiniBand port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_guid: Option<Guid>,
}

/// The protocol of a VLAN's tags, with the names of the SR-IOV CNI plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VlanProto {
    /// IEEE 802.1Q.
    #[serde(rename = "802.1q", alias = "802.1Q")]
    Customer,
    /// IEEE 802.1ad: the outer tag of a provider's network, so that pods can have VLANs of their own
    /// in it.
    #[serde(rename = "802.1ad", alias = "802.1AD")]
    Service,
}

/// The link of a virtual function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// The state of the physical port.
    Auto,
    /// Always up, so that virtual functions reach each other without a cable.
    Enable,
    /// Always down.
    Disable,
}

/// Settings for applications on a NIC's RDMA ports. They apply to connections, not devices, so the
/// kernel cannot store them: NCCL and UCX read them from the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RdmaConfig {
    /// The index in the port's GID table; with RoCE it selects the address and the RoCE version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid_index: Option<u8>,
    /// The RoCE version, 1 or 2, for applications that look up the index themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roce_version: Option<u8>,
    /// The traffic class; with RoCE v2 the byte of DSCP and ECN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_class: Option<u8>,
    /// The InfiniBand service level, 0 to 15.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_level: Option<u8>,
}

/// The interface itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InterfaceConfig {
    /// How the pod gets the interface. Default: the NIC's own interface if the claim has the whole
    /// NIC, a macvlan interface if it has a share.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<InterfaceKind>,
    /// Whether a macvlan interface reaches the others on its NIC; default: `bridge`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macvlan_mode: Option<MacvlanMode>,
    /// Details of an ipvlan interface, as upstream has them since its pull request 241.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipvlan: Option<IpvlanConfig>,
    /// Where addresses come from, as upstream says it since its pull request 241. The fields
    /// `addresses` and `dhcp` have the same meaning without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addressing: Option<Addressing>,
    /// The same as [`Addressing::Unnumbered`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unnumbered: Option<bool>,
    /// The partition of an IP over InfiniBand interface created for the pod; default: that of the
    /// NIC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pkey: Option<PartitionKey>,
    /// The name in the pod, or a pattern for the names of several interfaces; default: the name on
    /// the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<LinkNamePattern>,
    /// The addresses; default: those on the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpPrefix>,
    /// A range from which to take one address that no other claim has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_range: Option<IpPrefix>,
    /// The `NicPool` that provides addresses, routes and the type of interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Whether to get the address and routes from a DHCP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<bool>,
    /// The maximum transmission unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The link-layer address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_addr: Option<MacAddress>,
    /// The largest segment for generic segmentation offload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gso_max_size: Option<u32>,
    /// The largest segment for generic receive offload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gro_max_size: Option<u32>,
    /// The largest segment for generic segmentation offload with IPv4.
    #[serde(rename = "gsoIPv4MaxSize", skip_serializing_if = "Option::is_none")]
    pub gso_ipv4_max_size: Option<u32>,
    /// The largest segment for generic receive offload with IPv4.
    #[serde(rename = "groIPv4MaxSize", skip_serializing_if = "Option::is_none")]
    pub gro_ipv4_max_size: Option<u32>,
    /// Whether to detach the host's eBPF programs from the interface, permanently: their owner must
    /// attach them again when the interface is back on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_ebpf_programs: Option<bool>,
    /// Whether to forward packets that arrive here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<bool>,
    /// Whether routers on the NIC's network may give the pod IPv6 addresses and routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_router_advertisements: Option<bool>,
    /// `arp_ignore` of the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arp_ignore: Option<u8>,
    /// `arp_announce` of the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arp_announce: Option<u8>,
    /// The virtual routing domain of the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<VrfConfig>,
}

/// How a pod gets an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum InterfaceKind {
    /// The NIC's own interface, moved into the pod.
    Passthrough,
    /// A new interface on top of the NIC's, with its own hardware address.
    MacVlan,
    /// A new interface on top of the NIC's, with the NIC's hardware address.
    IpVlan,
    /// A new interface on top of an InfiniBand NIC's, in its own partition if one is named.
    IpoIb,
}

/// Where the addresses of an interface come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Addressing {
    /// From `addresses`, `addressRange` or `pool`.
    Static,
    /// From a DHCP server.
    Dhcp,
    /// The driver sets none.
    Unnumbered,
}

/// Details of an ipvlan interface. The driver and upstream create it in one way only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IpvlanConfig {
    /// `l2` (`IPVLAN_MODE_L2` of `linux/if_link.h`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// `bridge`: the interfaces of a NIC reach each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
}

/// How a macvlan interface reaches others on its NIC (`enum macvlan_mode` of `linux/if_link.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MacvlanMode {
    /// Reaches the others on its NIC directly.
    Bridge,
    /// Does not reach the others on its NIC.
    Private,
    /// Reaches the others on its NIC through the external switch, which sends frames back.
    Vepa,
    /// Is the only one on its NIC, and receives all of the NIC's frames.
    Passthru,
}

/// A virtual routing domain in the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VrfConfig {
    /// The name of its device.
    pub name: LinkName,
    /// Its routing table; see [`VrfConfig::table_id`] for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteConfig {
    /// The destination network.
    pub destination: IpPrefix,
    /// The next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The preferred source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The scope: 0 universe, 253 link.
    #[serde(default)]
    pub scope: u8,
    /// The routing table; 0 means the main table.
    #[serde(default)]
    pub table: u32,
}

/// One policy rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleConfig {
    /// Its priority; if absent or 0, the kernel chooses one.
    #[serde(default)]
    pub priority: u32,
    /// The source network of matching packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpPrefix>,
    /// The destination network of matching packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpPrefix>,
    /// The routing table for matching packets.
    #[serde(default)]
    pub table: u32,
}

/// One permanent neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NeighborConfig {
    /// The IP address.
    pub destination: IpAddr,
    /// The link-layer address.
    pub hardware_addr: MacAddress,
}

/// Features and private flags of the interface's driver. They are restored on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EthtoolConfig {
    /// Features to switch on or off, with the names of `ethtool -k`: the kernel's (`rx-gro`) or
    /// group names (`tso`, `tcp-segmentation-offload`).
    pub features: BTreeMap<String, bool>,
    /// Private flags of the driver to switch on or off, with the names of
    /// `ethtool --show-priv-flags`.
    pub private_flags: BTreeMap<String, bool>,
}

/// The text is not a valid network configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text is not JSON of this form.
    #[error("malformed network configuration")]
    Form {
        /// The error of the parser.
        #[from]
        source: serde_json::Error,
    },
    /// A value is outside its range, or two values exclude each other.
    #[error("network configuration: `{field}` {problem}")]
    Value {
        /// The path of the field, `interface.mtu`.
        field: String,
        /// The problem, and the allowed values.
        problem: String,
    },
}

impl NetworkConfig {
    /// Parses the parameters of a claim.
    pub fn parse(parameters: &serde_json::Value) -> Result<Self, ConfigError> {
        let config = Self::deserialize(parameters)?;
        shape::check(parameters, &config)?;
        config.checked()
    }

    /// Parses JSON text.
    pub fn from_json(text: &[u8]) -> Result<Self, ConfigError> {
        let config: Self = serde_json::from_slice(text)?;
        shape::check(&serde_json::from_slice(text)?, &config)?;
        config.checked()
    }

    /// The same if its values are allowed, without fields that only repeat others.
    fn checked(mut self) -> Result<Self, ConfigError> {
        if self.interface.addressing == Some(Addressing::Dhcp) {
            self.interface.dhcp.get_or_insert(true);
        }
        self.check()?;
        let interface = &mut self.interface;
        (interface.addressing, interface.unnumbered, interface.ipvlan) = (None, None, None);
        Ok(self)
    }
}

impl RouteConfig {
    /// The routing table; the main table by default.
    pub fn table_id(&self) -> u32 {
        if self.table == 0 { TABLE_MAIN } else { self.table }
    }

    /// Whether it is in the main table.
    pub fn is_in_main(&self) -> bool {
        self.table_id() == TABLE_MAIN
    }
}

/// `RT_TABLE_MAIN`.
const TABLE_MAIN: u32 = 254;

impl VrfConfig {
    /// The routing table: the given one, or else one derived from the name as upstream does (1000 +
    /// FNV-1a of the name modulo 1000).
    pub fn table_id(&self) -> u32 {
        self.table.unwrap_or_else(|| 1000 + fnv32a(self.name.as_str()) % 1000)
    }
}

fn fnv32a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
