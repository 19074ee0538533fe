//! InfiniBand NICs: what upstream publishes for a function without a network interface,
//! the standard attributes, and our own.

use super::{Slot, slots};
use cluster_model::names::attribute::{self, dranet};

/// The table.
pub(super) const SLOTS: &[Slot] = &[
    Slot { name: dranet::IS_SRIOV_VF, value: slots::is_sriov_vf },
    Slot { name: dranet::PCI_ADDRESS, value: slots::pci_address },
    Slot { name: dranet::PCI_VENDOR, value: slots::pci_vendor },
    Slot { name: dranet::PCI_DEVICE, value: slots::pci_device },
    Slot { name: dranet::PCI_SUBSYSTEM, value: slots::pci_subsystem },
    Slot { name: dranet::NUMA_NODE, value: slots::numa_node },
    Slot { name: dranet::RDMA, value: slots::rdma },
    Slot { name: dranet::RDMA_DEVICE, value: slots::rdma_device },
    Slot { name: attribute::PCI_BUS_ID, value: slots::pci_bus_id },
    Slot { name: attribute::PCIE_ROOT, value: slots::pcie_root },
    Slot { name: attribute::NUMA_NODE, value: slots::standard_numa_node },
    Slot { name: attribute::SHAPE, value: slots::shape },
    Slot { name: attribute::PCIE_SWITCH, value: slots::pcie_switch },
    Slot { name: attribute::ROLE, value: slots::role },
    Slot { name: attribute::LINK_TYPE, value: slots::link_layer },
    Slot { name: dranet::IB_ONLY, value: slots::ib_only },
    Slot { name: attribute::RAIL, value: slots::rail },
    Slot { name: attribute::PORT, value: slots::port_function },
    Slot { name: attribute::FABRIC, value: slots::fabric },
    Slot { name: attribute::PORT_STATE, value: slots::port_state },
    Slot { name: attribute::RATE_GBPS, value: slots::rate_gbps },
    Slot { name: attribute::DEGRADED, value: slots::degraded },
];
