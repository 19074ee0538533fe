//! The NICs of a machine: which PCI functions are published, under which name
//! and as what. A pure view of the facts; attributes are made from it elsewhere.
//!
//! Whether a NIC is InfiniBand is what its ports say, never the absence of a
//! network interface: an Ethernet function whose interface is in a pod's
//! namespace has none either.

use std::fmt;
use topology_graph::{LinkLayer, PciAddress, PciFunction, RdmaDevice, Snapshot};

/// PCI base class of network controllers.
const CLASS_NETWORK: u32 = 0x02;

/// Drivers that hold a function for someone else, as upstream has them.
const HOLDERS: [&str; 4] = ["vfio-pci", "uio_pci_generic", "igb_uio", "pci-stub"];

/// What a NIC's ports speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkType {
    /// InfiniBand: no Ethernet below the verbs.
    InfiniBand,
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
        })
    }
}

/// One NIC.
#[derive(Clone, Debug)]
pub struct Nic<'a> {
    /// Its PCI function.
    pub function: &'a PciFunction,
    /// Its RDMA device.
    pub rdma: &'a RdmaDevice,
    /// What its ports speak.
    pub link_type: LinkType,
}

impl Nic<'_> {
    /// Name of the device in a slice, `pci-0101-00-00-0`.
    pub fn device_name(&self) -> String {
        device_name(self.function.address)
    }
}

/// Name of the device in a slice: the address as a DNS label, as upstream has it.
pub fn device_name(address: PciAddress) -> String {
    format!("pci-{}", address.to_string().replace([':', '.'], "-"))
}

/// The NICs of a machine in the order of their addresses.
pub fn nics(snapshot: &Snapshot) -> Vec<Nic<'_>> {
    snapshot.pci.iter().filter_map(|function| nic(snapshot, function)).collect()
}

fn nic<'a>(snapshot: &'a Snapshot, function: &'a PciFunction) -> Option<Nic<'a>> {
    if function.class >> 16 != CLASS_NETWORK || !is_usable(function) {
        return None;
    }
    let rdma = snapshot.rdma_of(function.address).next()?;
    let link_type = link_type(rdma)?;
    Some(Nic { function, rdma, link_type })
}

/// Whether a driver of the kernel's own runs the function.
fn is_usable(function: &PciFunction) -> bool {
    function.driver.as_deref().is_some_and(|driver| !HOLDERS.contains(&driver))
}

/// The type that all ports agree on.
fn link_type(rdma: &RdmaDevice) -> Option<LinkType> {
    let layers: Vec<_> = rdma.ports.iter().map(|port| port.link_layer).collect();
    let is_infiniband = |layer: &Option<LinkLayer>| *layer == Some(LinkLayer::InfiniBand);
    (!layers.is_empty() && layers.iter().all(is_infiniband)).then_some(LinkType::InfiniBand)
}
