//! The values of attributes that take more than a field of the NIC.

use crate::attribute::{MAX_TEXT_BYTES, Value};
use crate::nic::{LinkType, NicState};
use crate::pci_names;
use std::fmt::Display;
use std::net::IpAddr;
use topology_graph::{PciFunction, PortState};

fn text(value: impl Display) -> Option<Value> {
    Value::text(&value.to_string())
}

pub(super) fn pci_device(nic: &NicState) -> Option<Value> {
    let function = nic.function.as_ref()?;
    text(pci_names::device(function.vendor, function.device)?)
}

/// Upstream publishes only the subsystem's device ID.
pub(super) fn pci_subsystem(nic: &NicState) -> Option<Value> {
    text(format_args!("{:04x}", nic.function.as_ref()?.subsystem_device?))
}

/// As in upstream, an interface without a link kind has the type `device`.
pub(super) fn link_type(nic: &NicState) -> Option<Value> {
    text(nic.own_interface()?.kind.as_deref().unwrap_or("device"))
}

/// Joins as many whole addresses as fit into one attribute.
pub(super) fn addresses(nic: &NicState, is_of_family: fn(&IpAddr) -> bool) -> Option<Value> {
    let addresses = nic.own_interface()?.addresses.iter();
    let mut sorted: Vec<String> = addresses
        .filter(|cidr| is_of_family(&cidr.address) && cidr.is_global_unicast())
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
pub(super) fn sriov(nic: &NicState) -> Option<Value> {
    Some(Value::Bool(is_physical_function(nic.function.as_ref()?)))
}

/// How many virtual functions a physical function has now.
pub(super) fn sriov_vfs(nic: &NicState) -> Option<Value> {
    let function = nic.function.as_ref().filter(|function| is_physical_function(function))?;
    Some(Value::Int(function.sriov_num_vfs?.into()))
}

fn is_physical_function(function: &PciFunction) -> bool {
    function.sriov_total_vfs.is_some_and(|total| total > 0)
}

/// The standard attribute allows only four-digit domains.
pub(super) fn pci_bus_id(nic: &NicState) -> Option<Value> {
    text(nic.address().filter(|address| address.is_kubernetes_bus_id())?)
}

/// The standard attribute allows only roots directly below `/sys/devices`. The root of a
/// Hyper-V function is a separate bus with nothing else below it.
pub(super) fn pcie_root(nic: &NicState) -> Option<Value> {
    let function = nic.function.as_ref().filter(|it| it.path.starts_with("devices/pci"))?;
    text(function.root?)
}

/// Where the NIC's port is, if no rail tells it apart from others.
pub(super) fn port_function(nic: &NicState) -> Option<Value> {
    let of_port = nic.physical_function().or_else(|| nic.address());
    text(of_port.filter(|_| nic.rail.is_none())?)
}

/// `infiniband` or `ethernet`.
pub(super) fn link_layer(nic: &NicState) -> Option<Value> {
    text(match nic.link_type {
        LinkType::InfiniBand => "infiniband",
        LinkType::Ethernet => "ethernet",
        LinkType::Verbs | LinkType::Virtual => return None,
    })
}

/// Port states as `ibstat` spells them.
pub(super) fn port_state(nic: &NicState) -> Option<Value> {
    text(match nic.port()?.state? {
        PortState::Down => "Down",
        PortState::Init => "Initializing",
        PortState::Armed => "Armed",
        PortState::Active => "Active",
        PortState::ActiveDefer => "ActiveDefer",
    })
}
