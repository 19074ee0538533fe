//! Finds the NICs of a machine that can be published, with their device name and link
//! type. Pure; `attributes` derives their attributes.
//!
//! The link type comes from the ports. A missing network interface proves nothing: the
//! interface of an Ethernet function may be in a pod's namespace. NICs that the host
//! itself needs are not published.

use crate::facts::network::{Interface, NetworkFacts, Withheld};
use std::collections::BTreeMap;
use topology_graph::{LinkLayer, PciAddress, PciFunction, RdmaDevice, Snapshot};

/// PCI base class of network controllers.
const CLASS_NETWORK: u32 = 0x02;
/// PCI class of InfiniBand controllers.
const CLASS_INFINIBAND: u32 = 0x0207;

/// Drivers that reserve a function for a virtual machine or a program, as in upstream.
const HOLDERS: [&str; 4] = ["vfio-pci", "uio_pci_generic", "igb_uio", "pci-stub"];

/// Kinds of virtual interfaces that a pod can be given.
const VIRTUAL_KINDS: [&str; 5] = ["dummy", "ipvlan", "macvlan", "veth", "vlan"];

/// Name prefixes of interfaces that network plugins create.
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

/// The kind of link that a NIC has.
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
    /// Its kind of link.
    pub link_type: LinkType,
    /// Its PCI function; `None` for a virtual interface.
    pub function: Option<&'a PciFunction>,
    /// Its RDMA device.
    pub rdma: Option<&'a RdmaDevice>,
    /// Its network interface, if that is in the host's namespace. IPoIB interfaces do not
    /// count: they are created and removed independently of the NIC.
    pub interface: Option<&'a Interface>,
    /// Whether its link runs slower or narrower than both the NIC and the port above support.
    pub link_degraded: Option<bool>,
}

impl Nic<'_> {
    /// Its PCI address; `None` for a virtual interface.
    pub fn address(&self) -> Option<PciAddress> {
        self.function.map(|function| function.address)
    }
}

/// The device name of a function in a slice, such as `pci-0101-00-00-0`, as in upstream.
pub fn device_name(address: PciAddress) -> String {
    format!("pci-{}", address.to_string().replace([':', '.'], "-"))
}

/// The NICs of a machine: functions by address, then virtual interfaces by name.
pub fn nics<'a>(snapshot: &'a Snapshot, network: &'a NetworkFacts) -> Vec<Nic<'a>> {
    let withheld = network.withheld();
    let functions = candidates(snapshot)
        .filter_map(|function| of_function(snapshot, network, function, &withheld));
    let interfaces =
        network.interfaces.iter().filter_map(|interface| of_interface(interface, &withheld));
    functions.chain(interfaces).collect()
}

/// The functions that may be NICs for pods: network controllers and functions with an RDMA device, to
/// which a driver is bound. Publication and preparation use this one rule.
pub(crate) fn candidates(snapshot: &Snapshot) -> impl Iterator<Item = &PciFunction> {
    let is_candidate = |function: &&PciFunction| {
        let has_rdma = snapshot.rdma_device(function.address).is_some();
        is_usable(function) && (has_rdma || function.class >> 16 == CLASS_NETWORK)
    };
    snapshot.pci.iter().filter(is_candidate)
}

fn of_function<'a>(
    snapshot: &'a Snapshot,
    network: &'a NetworkFacts,
    function: &'a PciFunction,
    withheld: &BTreeMap<u32, Withheld>,
) -> Option<Nic<'a>> {
    let rdma = snapshot.rdma_device(function.address);
    let interfaces = interfaces_of(snapshot, network, function.address);
    if interfaces.iter().any(|it| withheld.contains_key(&it.index)) {
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

/// The interfaces of a function. Sysfs links them to functions, but only by name. If sysfs
/// shows another namespace than netlink, a pod's veth `eth0` must not count as the
/// function's interface.
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

/// Whether a driver other than the [`HOLDERS`] is bound to the function.
pub(super) fn is_usable(function: &PciFunction) -> bool {
    function.driver.as_deref().is_some_and(|driver| !HOLDERS.contains(&driver))
}

/// The link type, from the ports; without an RDMA device, from the PCI class.
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

/// The virtual interfaces that a pod can be given, by device name in a slice.
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

/// The device name of a virtual interface in a slice: its own name if that is a DNS label,
/// otherwise `net-` and its bytes in hexadecimal.
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
