//! The network configuration that a claim gives to the driver as its opaque
//! parameters: upstream DRANET's JSON, field by field, and as strict as there.
//!
//! Parsing judges the text alone. What a device can take (an InfiniBand-only
//! NIC has no interface) is [`NetworkConfig::check_rdma_only`]; what the kernel
//! can take shows when it is applied.

mod check;
mod guard;
mod prefix;
mod values;

pub use guard::{ALL_NAMESPACES, may_set_guarded};
pub use prefix::{address, number};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
pub use values::{IpPrefix, LinkName, MacAddress, PartitionKey, ValueError};

/// Configuration of one network device in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// Name of a profile, where upstream asks a service of the site's own for the fields.
    /// Refused, in words: this driver asks none.
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
    /// What applications are told to use on its RDMA ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaConfig>,
    /// What its physical function lets it do, where it is a virtual function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_function: Option<VirtualFunctionConfig>,
}

/// What a physical function lets a virtual one do while the claim has it. The kernel knows these
/// settings at the physical function's interface, which stays with the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VirtualFunctionConfig {
    /// The VLAN that its packets are put in; 0 is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Their priority in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_qos: Option<u8>,
    /// Let it change its hardware address, and hear what is for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<bool>,
    /// Drop what it sends with another address than its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spoof_check: Option<bool>,
    /// What it can send at least, in Mbit/s; 0 is nothing for sure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tx_rate: Option<u32>,
    /// What it can send at most, in Mbit/s; 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tx_rate: Option<u32>,
    /// Whether its link is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_state: Option<LinkState>,
}

/// The link of a virtual function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// As the port's.
    Auto,
    /// Always up, so that virtual functions reach each other without a cable.
    Enable,
    /// Always down.
    Disable,
}

/// What applications are told to use on a NIC's RDMA ports. A connection has these values, not a
/// device, so the kernel has no place for them: NCCL and UCX read them from the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RdmaConfig {
    /// Index in the port's table of GIDs: on RoCE, the address and version of RoCE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid_index: Option<u8>,
    /// Version of RoCE, 1 or 2, for applications that look up the index themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roce_version: Option<u8>,
    /// Traffic class: on RoCE v2 the byte of DSCP and ECN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_class: Option<u8>,
    /// InfiniBand service level, 0 to 15.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_level: Option<u8>,
}

/// The interface itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InterfaceConfig {
    /// How the pod gets it. Absent: the NIC's own where the claim has all of the NIC,
    /// a macvlan where it has a share.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<InterfaceKind>,
    /// Of an IP over InfiniBand interface that is made for the pod: the partition that it is
    /// in; the NIC's where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pkey: Option<PartitionKey>,
    /// Name in the pod; the host's where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<LinkName>,
    /// Addresses; the host's where absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpPrefix>,
    /// A range to take one address from that no other claim has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_range: Option<IpPrefix>,
    /// The `NicPool` to take addresses from, and the routes and the type of interface beside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Ask a DHCP server for the address, and for routes beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<bool>,
    /// Maximum transmission unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Link-layer address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_addr: Option<MacAddress>,
    /// Largest segment for generic segmentation offload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gso_max_size: Option<u32>,
    /// Largest segment for generic receive offload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gro_max_size: Option<u32>,
    /// The same for IPv4 alone.
    #[serde(rename = "gsoIPv4MaxSize", skip_serializing_if = "Option::is_none")]
    pub gso_ipv4_max_size: Option<u32>,
    /// The same for IPv4 alone.
    #[serde(rename = "groIPv4MaxSize", skip_serializing_if = "Option::is_none")]
    pub gro_ipv4_max_size: Option<u32>,
    /// Detach the eBPF programs of the host from the interface, for good: who attached
    /// them attaches them again when the host has it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_ebpf_programs: Option<bool>,
    /// Forward packets that arrive here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<bool>,
    /// `arp_ignore` of the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arp_ignore: Option<u8>,
    /// `arp_announce` of the interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arp_announce: Option<u8>,
    /// Virtual routing domain to put the interface in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<VrfConfig>,
}

/// How a pod gets an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum InterfaceKind {
    /// The NIC's own, moved into the pod.
    Passthrough,
    /// One made on the NIC's, with a hardware address of its own.
    MacVlan,
    /// One made on the NIC's, with the NIC's hardware address.
    IpVlan,
    /// One made on an InfiniBand NIC's, in a partition of its own where one is named.
    IpoIb,
}

/// A virtual routing domain in the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VrfConfig {
    /// Name of its device.
    pub name: LinkName,
    /// Its routing table; see [`VrfConfig::table_id`] where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteConfig {
    /// Where to.
    pub destination: IpPrefix,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Preferred source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// 0 universe, 253 link.
    #[serde(default)]
    pub scope: u8,
    /// Routing table; 0 is the main one.
    #[serde(default)]
    pub table: u32,
}

/// One policy rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleConfig {
    /// Its priority; the kernel chooses where absent or 0.
    #[serde(default)]
    pub priority: u32,
    /// Packets from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpPrefix>,
    /// Packets to there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpPrefix>,
    /// The routing table that they use.
    #[serde(default)]
    pub table: u32,
}

/// One permanent neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NeighborConfig {
    /// Its address.
    pub destination: IpAddr,
    /// Its link-layer address.
    pub hardware_addr: MacAddress,
}

/// Features and flags of the interface's driver. The host has them again as they were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EthtoolConfig {
    /// Features on or off, by the names that `ethtool -k` shows: the kernel's (`rx-gro`)
    /// or those for several of them (`tso`, `tcp-segmentation-offload`).
    pub features: BTreeMap<String, bool>,
    /// The driver's own flags on or off, as `ethtool --show-priv-flags` shows them.
    pub private_flags: BTreeMap<String, bool>,
}

/// The text is no network configuration, with the field that is to blame.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not JSON of this form.
    #[error("malformed network configuration")]
    Form {
        /// What the parser met.
        #[from]
        source: serde_json::Error,
    },
    /// A value is outside its range, or two exclude each other.
    #[error("network configuration: `{field}` {problem}")]
    Value {
        /// Path of the field, `interface.mtu`.
        field: String,
        /// What is wrong, and what is allowed.
        problem: String,
    },
}

impl NetworkConfig {
    /// Reads the parameters of a claim.
    pub fn parse(parameters: &serde_json::Value) -> Result<Self, ConfigError> {
        let config = Self::deserialize(parameters)?;
        config.check()?;
        Ok(config)
    }

    /// Reads them from a text.
    pub fn from_json(text: &[u8]) -> Result<Self, ConfigError> {
        let config: Self = serde_json::from_slice(text)?;
        config.check()?;
        Ok(config)
    }
}

impl RouteConfig {
    /// The routing table, the main one where none is given.
    pub fn table_id(&self) -> u32 {
        if self.table == 0 { TABLE_MAIN } else { self.table }
    }
}

/// `RT_TABLE_MAIN`.
const TABLE_MAIN: u32 = 254;

impl VrfConfig {
    /// The routing table: the one given, else one from the name as upstream
    /// makes it (1000 + FNV-1a of the name modulo 1000).
    pub fn table_id(&self) -> u32 {
        self.table.unwrap_or_else(|| 1000 + fnv32a(self.name.as_str()) % 1000)
    }
}

fn fnv32a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
