//! Which attributes a NIC of each link type has, as in `docs/reference/attributes.md`.
//!
//! InfiniBand NICs, and those with verbs over a fabric that is neither InfiniBand nor Ethernet (EFA, eRDMA),
//! have what upstream publishes for a function without a network interface. Upstream can publish 45
//! attributes for an Ethernet NIC in a cloud; the API allows 32. This table leaves out the alias (free text of
//! the administrator) and the eBPF programs (`ebpf`, `tcFilterNames`, `tcxProgramNames`), because no claim can
//! rely on them. Of our own attributes it leaves out the switch, the fabric, and the port's state, which
//! `state` already shows. A NIC that has all others nevertheless omits [`super::REDUNDANT`].

use super::values;
use crate::attribute::Value;
use crate::nic::{LinkType, NicState};
use cluster_model::names::attribute::{self, dranet};

/// An attribute: its name, and its value of a NIC that has one.
type Slot = (&'static str, fn(&NicState) -> Option<Value>);

/// Every function.
const FUNCTION: &[LinkType] = &[LinkType::InfiniBand, LinkType::Ethernet, LinkType::Verbs];
/// Those without a network interface, as far as is known.
const DEVICE: &[LinkType] = &[LinkType::InfiniBand, LinkType::Verbs];
/// Those that are known by their interface.
const INTERFACE: &[LinkType] = &[LinkType::Ethernet, LinkType::Virtual];
const ETHERNET: &[LinkType] = &[LinkType::Ethernet];
const VIRTUAL: &[LinkType] = &[LinkType::Virtual];
const ALL: &[LinkType] =
    &[LinkType::InfiniBand, LinkType::Ethernet, LinkType::Verbs, LinkType::Virtual];

const TABLE: &[(Slot, &[LinkType])] = &[
    ((dranet::IF_NAME, values::if_name), INTERFACE),
    ((dranet::MAC, values::mac), INTERFACE),
    ((dranet::MTU, values::mtu), INTERFACE),
    ((dranet::ENCAPSULATION, values::encapsulation), INTERFACE),
    ((dranet::ALIAS, values::alias), VIRTUAL),
    ((dranet::STATE, values::state), INTERFACE),
    ((dranet::TYPE, values::link_type), INTERFACE),
    ((dranet::IPV4, values::ipv4), INTERFACE),
    ((dranet::IPV6, values::ipv6), INTERFACE),
    ((dranet::VIRTUAL, |nic| Some(Value::Bool(nic.function.is_none()))), INTERFACE),
    ((dranet::SRIOV, values::sriov), ETHERNET),
    ((dranet::SRIOV_VFS, values::sriov_vfs), ETHERNET),
    ((dranet::IS_SRIOV_VF, values::is_sriov_vf), FUNCTION),
    ((dranet::PCI_ADDRESS, values::pci_address), FUNCTION),
    ((dranet::PCI_VENDOR, values::pci_vendor), FUNCTION),
    ((dranet::PCI_DEVICE, values::pci_device), FUNCTION),
    ((dranet::PCI_SUBSYSTEM, values::pci_subsystem), FUNCTION),
    ((dranet::NUMA_NODE, values::numa_node), FUNCTION),
    ((dranet::RDMA, |nic| Some(Value::Bool(nic.rdma.is_some()))), ALL),
    ((dranet::RDMA_DEVICE, |nic| Value::text(&nic.rdma.as_ref()?.name)), FUNCTION),
    ((dranet::IB_ONLY, values::ib_only), DEVICE),
    ((attribute::PCI_BUS_ID, values::pci_bus_id), FUNCTION),
    ((attribute::PCIE_ROOT, values::pcie_root), FUNCTION),
    ((attribute::NUMA_NODE, |nic| Some(Value::Int(nic.numa?.0))), FUNCTION),
    ((attribute::SHAPE, |nic| Value::text(&nic.machine.shape)), FUNCTION),
    ((attribute::PCIE_SWITCH, |nic| Value::text(nic.switch.as_ref()?)), DEVICE),
    ((attribute::ROLE, |nic| Value::text(&nic.role?.to_string())), FUNCTION),
    ((attribute::LINK_TYPE, values::link_layer), FUNCTION),
    ((attribute::RAIL, |nic| nic.rail.map(Value::Int)), FUNCTION),
    ((attribute::PORT, values::port_function), FUNCTION),
    ((attribute::FABRIC, |nic| Value::text(nic.machine.fabric.as_ref()?)), DEVICE),
    ((attribute::PORT_STATE, values::port_state), DEVICE),
    ((attribute::RATE_GBPS, |nic| nic.rate_gbps().map(Value::Int)), FUNCTION),
    ((attribute::DEGRADED, |nic| nic.link_degraded.map(Value::Bool)), DEVICE),
];

/// The attributes of a link type.
pub(super) fn table(link_type: LinkType) -> impl Iterator<Item = &'static Slot> {
    TABLE.iter().filter(move |(_, types)| types.contains(&link_type)).map(|(slot, _)| slot)
}
