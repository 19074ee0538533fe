//! The table of InfiniBand NICs: what upstream publishes of a function without
//! a network interface, the standard attributes, and our own.

use super::{Machine, Slot};
use crate::attribute::Value;
use crate::nic::Nic;
use crate::pci_names;
use cluster_model::names::attribute::{self, dranet};

/// The table.
pub(super) const SLOTS: &[Slot] = &[
    Slot {
        name: dranet::PCI_ADDRESS,
        value: |nic, _| Value::text(&nic.function.address.to_string()),
    },
    Slot {
        name: dranet::PCI_VENDOR,
        value: |nic, _| Value::text(pci_names::vendor(nic.function.vendor)?),
    },
    Slot { name: dranet::PCI_DEVICE, value: pci_device },
    Slot { name: dranet::PCI_SUBSYSTEM, value: pci_subsystem },
    Slot { name: dranet::NUMA_NODE, value: |nic, _| Some(Value::Int(nic.function.numa_node?.0)) },
    Slot { name: dranet::RDMA, value: |_, _| Some(Value::Bool(true)) },
    Slot { name: dranet::RDMA_DEVICE, value: |nic, _| Value::text(&nic.rdma.name) },
    Slot { name: attribute::PCI_BUS_ID, value: pci_bus_id },
    Slot { name: attribute::PCIE_ROOT, value: pcie_root },
    Slot {
        name: attribute::NUMA_NODE,
        value: |nic, machine| Some(Value::Int(machine.numa(nic)?.0)),
    },
    Slot {
        name: attribute::SHAPE,
        value: |_, machine| Value::text(&machine.topology.shape().to_string()),
    },
];

fn pci_device(nic: &Nic<'_>, _: &Machine<'_>) -> Option<Value> {
    Value::text(pci_names::device(nic.function.vendor, nic.function.device)?)
}

/// Upstream gives the subsystem's device id only.
fn pci_subsystem(nic: &Nic<'_>, _: &Machine<'_>) -> Option<Value> {
    Value::text(&format!("{:04x}", nic.function.subsystem_device?))
}

/// The standard knows four-digit domains only.
fn pci_bus_id(nic: &Nic<'_>, _: &Machine<'_>) -> Option<Value> {
    let address = nic.function.address;
    address.is_kubernetes_bus_id().then(|| Value::text(&address.to_string()))?
}

/// The standard knows roots directly below `/sys/devices` only: a Hyper-V
/// function's root is a bus of its own that nothing else hangs off.
fn pcie_root(nic: &Nic<'_>, _: &Machine<'_>) -> Option<Value> {
    let is_real = nic.function.path.starts_with("devices/pci");
    Value::text(&nic.function.root.filter(|_| is_real)?.to_string())
}
