//! The NICs of a machine: what is published, under which name and as what. A
//! pure view of the facts; attributes are made from it elsewhere.
//!
//! What a NIC speaks is what its ports say, never the absence of a network
//! interface: an Ethernet function whose interface is in a pod's namespace has
//! none either. What the host itself lives by is no NIC to give away.

use crate::facts::network::{Interface, NetworkFacts, Withheld};
use std::collections::BTreeMap;
use topology_graph::{LinkLayer, PciAddress, PciFunction, RdmaDevice, Snapshot};

/// PCI base class of network controllers.
const CLASS_NETWORK: u32 = 0x02;
/// PCI class of InfiniBand controllers.
const CLASS_INFINIBAND: u32 = 0x0207;

/// Drivers that hold a function for someone else, as upstream has them.
const HOLDERS: [&str; 4] = ["vfio-pci", "uio_pci_generic", "igb_uio", "pci-stub"];

/// Kinds of virtual interfaces that a pod can be given.
const VIRTUAL_KINDS: [&str; 5] = ["dummy", "ipvlan", "macvlan", "veth", "vlan"];

/// Beginnings of the names that network plugins give their own interfaces.
const PLUGIN_PREFIXES: [&str; 12] = [
    "azv",
    "cali",
    "cilium",
    "cni",
    "docker",
    "eni",
    "flannel",
    "kube",
    "lxc",
    "nodelocaldns",
    "ovn",
    "weave",
];

/// What a NIC speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkType {
    /// InfiniBand, with or without IP over it.
    InfiniBand,
    /// Ethernet, with or without verbs (RoCE, iWARP).
    Ethernet,
    /// Verbs over a fabric that is neither: EFA, eRDMA.
    Verbs,
    /// A network interface without a device.
    Virtual,
}

/// One NIC.
#[derive(Clone, Debug)]
pub struct Nic<'a> {
    /// Name of the device in a slice.
    pub name: String,
    /// What it speaks.
    pub link_type: LinkType,
    /// Its PCI function; none for a virtual interface.
    pub function: Option<&'a PciFunction>,
    /// Its RDMA device.
    pub rdma: Option<&'a RdmaDevice>,
    /// Its network interface, where it is in the host's namespace. IP over
    /// InfiniBand is no interface of the NIC: it is made and removed on its own.
    pub interface: Option<&'a Interface>,
    /// Whether its link runs slower or narrower than it and the port above could.
    pub link_degraded: Option<bool>,
}

impl Nic<'_> {
    /// Where it is, if it is a device.
    pub fn address(&self) -> Option<PciAddress> {
        self.function.map(|function| function.address)
    }
}

/// Name of a function in a slice, `pci-0101-00-00-0`, as upstream has it.
pub fn device_name(address: PciAddress) -> String {
    format!("pci-{}", address.to_string().replace([':', '.'], "-"))
}

/// The NICs of a machine: functions in the order of their addresses, then
/// virtual interfaces by name.
pub fn nics<'a>(snapshot: &'a Snapshot, network: &'a NetworkFacts) -> Vec<Nic<'a>> {
    let withheld = network.withheld();
    let functions = snapshot
        .pci
        .iter()
        .filter_map(|function| of_function(snapshot, network, function, &withheld));
    let interfaces =
        network.interfaces.iter().filter_map(|interface| of_interface(interface, &withheld));
    functions.chain(interfaces).collect()
}

fn of_function<'a>(
    snapshot: &'a Snapshot,
    network: &'a NetworkFacts,
    function: &'a PciFunction,
    withheld: &BTreeMap<u32, Withheld>,
) -> Option<Nic<'a>> {
    let rdma = snapshot.rdma_device(function.address);
    let is_candidate = function.class >> 16 == CLASS_NETWORK || rdma.is_some();
    let interfaces = interfaces_of(snapshot, network, function.address);
    let is_withheld = interfaces.iter().any(|it| withheld.contains_key(&it.index));
    if !is_candidate || !is_usable(function) || is_withheld {
        return None;
    }
    let link_type = link_type(function, rdma);
    let has_interface = link_type != LinkType::InfiniBand;
    Some(Nic {
        name: device_name(function.address),
        link_type,
        function: Some(function),
        rdma,
        interface: interfaces.into_iter().next().filter(|_| has_interface),
        link_degraded: snapshot.is_link_degraded(function),
    })
}

/// The interfaces of a function. Sysfs knows whose they are, and only by name:
/// where it shows another namespace than netlink does, a pod's `eth0` is no
/// interface of a device.
fn interfaces_of<'a>(
    snapshot: &'a Snapshot,
    network: &'a NetworkFacts,
    address: PciAddress,
) -> Vec<&'a Interface> {
    let is_of_device =
        |interface: &&Interface| matches!(interface.kind.as_deref(), None | Some("ipoib"));
    let names = snapshot.netdevs_of(address).map(|netdev| netdev.name.as_str());
    names.filter_map(|name| network.interface(name)).filter(is_of_device).collect()
}

/// Whether a driver of the kernel's own runs the function.
pub(super) fn is_usable(function: &PciFunction) -> bool {
    function.driver.as_deref().is_some_and(|driver| !HOLDERS.contains(&driver))
}

/// What the ports say; where there are none, what the function's class says.
fn link_type(function: &PciFunction, rdma: Option<&RdmaDevice>) -> LinkType {
    let Some(rdma) = rdma else {
        let is_infiniband = function.class >> 8 == CLASS_INFINIBAND;
        return if is_infiniband { LinkType::InfiniBand } else { LinkType::Ethernet };
    };
    let layers = || rdma.ports.iter().map(|port| port.link_layer);
    if layers().any(|layer| layer == Some(LinkLayer::Ethernet)) {
        LinkType::Ethernet
    } else if layers().any(|layer| layer == Some(LinkLayer::InfiniBand)) {
        LinkType::InfiniBand
    } else {
        LinkType::Verbs
    }
}

/// The virtual interfaces that a pod can be given, by the name of the device in a slice.
pub fn virtual_interfaces(network: &NetworkFacts) -> BTreeMap<String, &Interface> {
    let withheld = network.withheld();
    let nics = network.interfaces.iter().filter_map(|it| of_interface(it, &withheld));
    nics.filter_map(|nic| Some((nic.name, nic.interface?))).collect()
}

fn of_interface<'a>(
    interface: &'a Interface,
    withheld: &BTreeMap<u32, Withheld>,
) -> Option<Nic<'a>> {
    let kind = interface.kind.as_deref()?;
    let is_plugin = PLUGIN_PREFIXES.iter().any(|prefix| interface.name.starts_with(prefix));
    let is_withheld = withheld.contains_key(&interface.index);
    if !VIRTUAL_KINDS.contains(&kind) || is_plugin || is_withheld {
        return None;
    }
    Some(Nic {
        name: interface_device_name(&interface.name),
        link_type: LinkType::Virtual,
        function: None,
        rdma: None,
        interface: Some(interface),
        link_degraded: None,
    })
}

/// Name of a virtual interface in a slice: its own, where that is a DNS label,
/// else `net-` and its bytes in hexadecimal.
pub(crate) fn interface_device_name(name: &str) -> String {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = name.bytes().all(is_inner) && !name.starts_with('-') && !name.ends_with('-');
    if is_label && !name.starts_with("pci-") && !name.starts_with("net-") {
        return name.to_owned();
    }
    let hex: Vec<String> = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("net-{}", hex.concat())
}

#[cfg(test)]
mod tests;
