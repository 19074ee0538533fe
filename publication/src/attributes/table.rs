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
use crate::pci_names;
use cluster_model::names::attribute::{self, dranet};
use std::net::IpAddr;

/// An attribute: its name, the link types that have it, and its value of a NIC.
type Slot = (&'static str, &'static [LinkType], fn(&NicState) -> Option<Value>);

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

const TABLE: &[Slot] = &[
    (dranet::IF_NAME, INTERFACE, |nic| Value::text(&nic.own_interface()?.name)),
    (dranet::MAC, INTERFACE, |nic| Value::text(nic.own_interface()?.mac.as_ref()?)),
    (dranet::MTU, INTERFACE, |nic| nic.own_interface()?.mtu.map(Value::Int)),
    (dranet::ENCAPSULATION, INTERFACE, |nic| {
        Value::text(nic.own_interface()?.encapsulation.word()?)
    }),
    (dranet::ALIAS, VIRTUAL, |nic| Value::text(nic.own_interface()?.alias.as_ref()?)),
    (dranet::STATE, INTERFACE, |nic| Value::text(nic.own_interface()?.state.as_ref()?)),
    (dranet::TYPE, INTERFACE, values::link_type),
    (dranet::IPV4, INTERFACE, |nic| values::addresses(nic, IpAddr::is_ipv4)),
    (dranet::IPV6, INTERFACE, |nic| values::addresses(nic, IpAddr::is_ipv6)),
    (dranet::VIRTUAL, INTERFACE, |nic| Some(Value::Bool(nic.function.is_none()))),
    (dranet::SRIOV, ETHERNET, values::sriov),
    (dranet::SRIOV_VFS, ETHERNET, values::sriov_vfs),
    (dranet::IS_SRIOV_VF, FUNCTION, |nic| nic.physical_function().map(|_| Value::Bool(true))),
    (dranet::PCI_ADDRESS, FUNCTION, |nic| Value::text(&nic.address()?.to_string())),
    (dranet::PCI_VENDOR, FUNCTION, |nic| {
        Value::text(pci_names::vendor(nic.function.as_ref()?.vendor)?)
    }),
    (dranet::PCI_DEVICE, FUNCTION, values::pci_device),
    (dranet::PCI_SUBSYSTEM, FUNCTION, values::pci_subsystem),
    (dranet::NUMA_NODE, FUNCTION, |nic| Some(Value::Int(nic.function.as_ref()?.numa_node?.0))),
    (dranet::RDMA, ALL, |nic| Some(Value::Bool(nic.rdma.is_some()))),
    (dranet::RDMA_DEVICE, FUNCTION, |nic| Value::text(&nic.rdma.as_ref()?.name)),
    (dranet::IB_ONLY, DEVICE, |nic| {
        nic.rdma.as_ref().map(|_| Value::Bool(nic.own_interface().is_none()))
    }),
    (attribute::PCI_BUS_ID, FUNCTION, values::pci_bus_id),
    (attribute::PCIE_ROOT, FUNCTION, values::pcie_root),
    (attribute::NUMA_NODE, FUNCTION, |nic| Some(Value::Int(nic.numa?.0))),
    (attribute::SHAPE, FUNCTION, |nic| Value::text(&nic.machine.shape)),
    (attribute::PCIE_SWITCH, DEVICE, |nic| Value::text(nic.switch.as_ref()?)),
    (attribute::ROLE, FUNCTION, |nic| Value::text(&nic.role?.to_string())),
    (attribute::LINK_TYPE, FUNCTION, values::link_layer),
    (attribute::RAIL, FUNCTION, |nic| nic.rail.map(Value::Int)),
    (attribute::PORT, FUNCTION, values::port_function),
    (attribute::FABRIC, DEVICE, |nic| Value::text(nic.machine.fabric.as_ref()?)),
    (attribute::PORT_STATE, DEVICE, values::port_state),
    (attribute::RATE_GBPS, FUNCTION, |nic| nic.rate_gbps().map(Value::Int)),
    (attribute::DEGRADED, DEVICE, |nic| nic.link_degraded.map(Value::Bool)),
];

/// The attributes of a link type.
pub(super) fn table(link_type: LinkType) -> impl Iterator<Item = &'static Slot> {
    TABLE.iter().filter(move |(_, types, _)| types.contains(&link_type))
}
