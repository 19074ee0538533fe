//! Derives the value of each attribute from the facts. The tables say which link type has
//! which attribute.

use super::MachineFacts;
use crate::attribute::{MAX_TEXT_BYTES, Value};
use crate::network::Interface;
use crate::nic::{LinkType, Nic};
use crate::pci_names;
use std::fmt::Display;
use topology_graph::{PciFunction, PortState, RdmaPort};

/// What every slot's function returns.
type Slot = Option<Value>;

fn text(value: impl Display) -> Slot {
    Value::text(&value.to_string())
}

fn function<'a>(nic: &Nic<'a>) -> Option<&'a PciFunction> {
    nic.function
}

fn interface<'a>(nic: &Nic<'a>) -> Option<&'a Interface> {
    nic.interface
}

/// The first port. It represents the NIC if there are several.
fn port<'a>(nic: &Nic<'a>) -> Option<&'a RdmaPort> {
    nic.rdma?.ports.first()
}

pub(super) fn pci_address(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(function(nic)?.address)
}

pub(super) fn pci_vendor(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(pci_names::vendor(function(nic)?.vendor)?)
}

pub(super) fn pci_device(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    let function = function(nic)?;
    text(pci_names::device(function.vendor, function.device)?)
}

/// Upstream publishes only the subsystem's device ID.
pub(super) fn pci_subsystem(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(format_args!("{:04x}", function(nic)?.subsystem_device?))
}

/// Upstream publishes the NUMA node that firmware reports.
pub(super) fn numa_node(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    Some(Value::Int(function(nic)?.numa_node?.0))
}

#[expect(clippy::unnecessary_wraps, reason = "every slot is of one type")]
pub(super) fn rdma(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    Some(Value::Bool(nic.rdma.is_some()))
}

pub(super) fn rdma_device(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(&nic.rdma?.name)
}

pub(super) fn if_name(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(&interface(nic)?.name)
}

pub(super) fn mac(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(interface(nic)?.mac.as_ref()?)
}

pub(super) fn mtu(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    Some(Value::Int(interface(nic)?.mtu?))
}

pub(super) fn encapsulation(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(interface(nic)?.encapsulation.word()?)
}

pub(super) fn alias(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(interface(nic)?.alias.as_ref()?)
}

pub(super) fn state(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(interface(nic)?.state.as_ref()?)
}

/// As in upstream, an interface without a link kind has the type `device`.
pub(super) fn link_type(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(interface(nic)?.kind.as_deref().unwrap_or("device"))
}

pub(super) fn ipv4(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    addresses(nic, false)
}

pub(super) fn ipv6(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    addresses(nic, true)
}

/// Joins as many whole addresses as fit into one attribute.
fn addresses(nic: &Nic<'_>, ipv6: bool) -> Slot {
    let addresses = interface(nic)?.addresses.iter();
    let mut sorted: Vec<String> = addresses
        .filter(|cidr| cidr.address.is_ipv6() == ipv6 && cidr.is_global_unicast())
        .map(ToString::to_string)
        .collect();
    sorted.sort();
    let mut list = String::new();
    for address in sorted {
        let comma = if list.is_empty() { "" } else { "," };
        if list.len() + comma.len() + address.len() > MAX_TEXT_BYTES {
            break;
        }
        list.push_str(comma);
        list.push_str(&address);
    }
    text(list)
}

/// Whether the NIC can have virtual functions.
pub(super) fn sriov(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    Some(Value::Bool(is_physical_function(function(nic)?)))
}

/// How many virtual functions a physical function has now.
pub(super) fn sriov_vfs(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    let function = function(nic).filter(|function| is_physical_function(function))?;
    Some(Value::Int(function.sriov_num_vfs?.into()))
}

/// Present only on virtual functions whose physical function is on this machine.
pub(super) fn is_sriov_vf(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    function(nic)?.physical_function.map(|_| Value::Bool(true))
}

fn is_physical_function(function: &PciFunction) -> bool {
    function.sriov_total_vfs.is_some_and(|total| total > 0)
}

#[expect(clippy::unnecessary_wraps, reason = "every slot is of one type")]
pub(super) fn virtual_interface(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    Some(Value::Bool(nic.function.is_none()))
}

/// The standard attribute allows only four-digit domains.
pub(super) fn pci_bus_id(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    let address = function(nic)?.address;
    text(Some(address).filter(|address| address.is_kubernetes_bus_id())?)
}

/// The standard attribute allows only roots directly below `/sys/devices`. The root of a
/// Hyper-V function is a separate bus with nothing else below it.
pub(super) fn pcie_root(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    let function = function(nic).filter(|function| function.path.starts_with("devices/pci"))?;
    text(function.root?)
}

/// The standard attribute: from firmware, or from what is known about the VM size.
pub(super) fn standard_numa_node(nic: &Nic<'_>, machine: &MachineFacts<'_>) -> Slot {
    Some(Value::Int(machine.numa(nic)?.0))
}

pub(super) fn shape(_: &Nic<'_>, machine: &MachineFacts<'_>) -> Slot {
    text(machine.topology.shape())
}

/// The PCIe switch above the NIC, by its name in the topology.
pub(super) fn pcie_switch(nic: &Nic<'_>, machine: &MachineFacts<'_>) -> Slot {
    text(machine.switches.get(&nic.address()?)?)
}

/// The rail that the NIC is cabled to: NICs of different machines with the same number are.
pub(super) fn rail(nic: &Nic<'_>, machine: &MachineFacts<'_>) -> Slot {
    Some(Value::Int(*machine.rails.get(&nic.address()?)?))
}

/// Where the NIC's port is, if no rail tells it apart from others.
pub(super) fn port_function(nic: &Nic<'_>, machine: &MachineFacts<'_>) -> Slot {
    let function = function(nic)?;
    let has_rail = machine.rails.contains_key(&function.address);
    let of_port = function.physical_function.unwrap_or(function.address);
    (!has_rail).then(|| text(of_port)).flatten()
}

/// What the NIC is for.
pub(super) fn role(nic: &Nic<'_>, machine: &MachineFacts<'_>) -> Slot {
    text(machine.role(nic)?)
}

/// `infiniband` or `ethernet`.
pub(super) fn link_layer(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(match nic.link_type {
        LinkType::InfiniBand => "infiniband",
        LinkType::Ethernet => "ethernet",
        LinkType::Verbs | LinkType::Virtual => return None,
    })
}

/// True for an RDMA device that a pod gets without an interface.
pub(super) fn ib_only(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    nic.rdma.map(|_| Value::Bool(nic.interface.is_none()))
}

/// The fabric of the whole machine.
pub(super) fn fabric(_: &Nic<'_>, machine: &MachineFacts<'_>) -> Slot {
    Value::text(machine.topology.fabric()?)
}

/// Port states as `ibstat` spells them.
pub(super) fn port_state(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    text(match port(nic)?.state? {
        PortState::Down => "Down",
        PortState::Init => "Initializing",
        PortState::Armed => "Armed",
        PortState::Active => "Active",
        PortState::ActiveDefer => "ActiveDefer",
    })
}

/// Whole gigabits per second.
pub(super) fn rate_gbps(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    Some(Value::Int(port(nic)?.rate_megabits? / 1_000))
}

/// Whether the `PCIe` link runs slower or narrower than both its ends could.
pub(super) fn degraded(nic: &Nic<'_>, _: &MachineFacts<'_>) -> Slot {
    nic.link_degraded.map(Value::Bool)
}
