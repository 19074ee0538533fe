//! Ethernet NICs, with or without verbs.
//!
//! Upstream can publish 45 attributes for such a NIC in a cloud; the API allows 32. This
//! table leaves out the alias (free text of the administrator) and the eBPF programs
//! (`ebpf`, `tcFilterNames`, `tcxProgramNames`), because no claim can rely on them. Of
//! our own attributes it leaves out the switch, the fabric, and the port's state, which
//! `state` already shows. A NIC that has all others nevertheless omits [`super::REDUNDANT`].

use super::{Slot, slots};
use cluster_model::names::attribute::{self, dranet};

/// The table.
pub(super) const SLOTS: &[Slot] = &[
    Slot { name: dranet::IF_NAME, value: slots::if_name },
    Slot { name: dranet::MAC, value: slots::mac },
    Slot { name: dranet::MTU, value: slots::mtu },
    Slot { name: dranet::ENCAPSULATION, value: slots::encapsulation },
    Slot { name: dranet::STATE, value: slots::state },
    Slot { name: dranet::TYPE, value: slots::link_type },
    Slot { name: dranet::IPV4, value: slots::ipv4 },
    Slot { name: dranet::IPV6, value: slots::ipv6 },
    Slot { name: dranet::VIRTUAL, value: slots::virtual_interface },
    Slot { name: dranet::SRIOV, value: slots::sriov },
    Slot { name: dranet::SRIOV_VFS, value: slots::sriov_vfs },
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
    Slot { name: attribute::ROLE, value: slots::role },
    Slot { name: attribute::LINK_TYPE, value: slots::link_layer },
    Slot { name: attribute::RAIL, value: slots::rail },
    Slot { name: attribute::PORT, value: slots::port_function },
    Slot { name: attribute::RATE_GBPS, value: slots::rate_gbps },
];
