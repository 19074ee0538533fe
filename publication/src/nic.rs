//! Finds the NICs of a machine that can be published, with their device name and link
//! type. Pure; `attributes` derives their attributes.
//!
//! The link type comes from the ports: the interface of an Ethernet function may be in a
//! pod's namespace. NICs that the host itself needs are not published, nor those that no
//! pod can get; each has a [reason](WithheldReason).

use crate::lag::{Lag, lags};
use crate::network::{Interface, NetworkFacts, Withheld};
use crate::withheld::{WithheldNic, WithheldReason};
use cluster_model::names::LATE_PLACE;
use cluster_model::names::attribute::dranet;
use k8s_openapi::api::resource::v1::Device;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology_graph::{LinkLayer, PciAddress, PciFunction, RdmaDevice, Snapshot};

/// PCI base class of network controllers.
const CLASS_NETWORK: u32 = 0x02;
/// PCI class of InfiniBand controllers.
const CLASS_INFINIBAND: u32 = 0x0207;

/// Drivers that reserve a function for a virtual machine or a program, as in upstream.
const HOLDERS: [&str; 4] = ["vfio-pci", "uio_pci_generic", "igb_uio", "pci-stub"];

/// Kinds of virtual interfaces that a pod can be given.
const VIRTUAL_KINDS: [&str; 5] = ["dummy", "ipvlan", "macvlan", VETH, "vlan"];

/// The kind of the pairs by which network plugins connect pods.
const VETH: &str = "veth";

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// Its network interface, if that is in the host's namespace; the bond, if it joins its ports. IPoIB
    /// interfaces do not count: they are created and removed independently of the NIC.
    pub interface: Option<&'a Interface>,
    /// Whether its link runs slower or narrower than both the NIC and the port above support.
    pub link_degraded: Option<bool>,
}

/// A function or interface that could be a NIC of pods.
#[derive(Clone, Debug)]
pub enum Offer<'a> {
    /// Pods can get it.
    Nic(Nic<'a>),
    /// They cannot.
    Withheld(WithheldNic),
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
    offers(snapshot, network)
        .into_iter()
        .filter_map(|offer| match offer {
            Offer::Nic(nic) => Some(nic),
            Offer::Withheld(_) => None,
        })
        .collect()
}

/// The NICs of a machine, and what could be one but is withheld.
pub fn offers<'a>(snapshot: &'a Snapshot, network: &'a NetworkFacts) -> Vec<Offer<'a>> {
    let host = Host { network, withheld: network.withheld(), lags: lags(snapshot, network) };
    let functions =
        snapshot.pci.iter().filter_map(|function| of_function(snapshot, &host, function));
    let interfaces =
        network.interfaces.iter().filter_map(|interface| of_interface(interface, &host.withheld));
    functions.chain(interfaces).collect()
}

/// What the host does with interfaces.
struct Host<'a> {
    network: &'a NetworkFacts,
    /// Why interfaces stay with it, by index.
    withheld: BTreeMap<u32, Withheld>,
    lags: Vec<Lag<'a>>,
}

impl<'a> Host<'a> {
    /// The bond that joins the ports of this function's adapter.
    fn lag(&self, function: PciAddress) -> Option<&Lag<'a>> {
        self.lags.iter().find(|lag| lag.functions.contains(&function))
    }

    /// Why an interface stays with the host. A port of a bond that is a NIC is given as part of that.
    fn keeps(&self, interface: &Interface, lag: Option<&Lag<'_>>) -> Option<&Withheld> {
        let reason = self.withheld.get(&interface.index)?;
        let is_port = lag.is_some_and(|lag| interface.master == Some(lag.bond.index));
        if is_port && matches!(reason, Withheld::Member(_)) { None } else { Some(reason) }
    }

    /// Whether the operator keeps a function for the host, or another whose port is joined with its own.
    fn is_kept(&self, function: PciAddress, lag: Option<&Lag<'_>>) -> bool {
        let joined = lag.into_iter().flat_map(|lag| lag.functions.iter().copied());
        let mut all = joined.chain([function]);
        all.any(|function| self.network.is_for_host(&function.to_string()))
    }
}

/// The functions that may be NICs for pods: network controllers and functions with an RDMA device, to
/// which a driver is bound. Publication and preparation use this one rule.
pub fn candidates(snapshot: &Snapshot) -> impl Iterator<Item = &PciFunction> {
    snapshot.pci.iter().filter(|function| {
        let has_rdma = snapshot.rdma_device(function.address).is_some();
        is_usable(function) && (has_rdma || function.class >> 16 == CLASS_NETWORK)
    })
}

fn of_function<'a>(
    snapshot: &'a Snapshot,
    host: &Host<'a>,
    function: &'a PciFunction,
) -> Option<Offer<'a>> {
    let rdma = snapshot.rdma_device(function.address);
    let is_network = function.class >> 16 == CLASS_NETWORK;
    if !is_network && rdma.is_none() {
        return None;
    }
    let lag = host.lag(function.address);
    let mut interfaces = interfaces_of(snapshot, host.network, function.address);
    interfaces.extend(lag.map(|lag| lag.bond));
    let of_host = interfaces.iter().find_map(|it| Some((*it, host.keeps(it, lag)?)));
    let reason = unusable(function).or_else(|| match of_host {
        Some((_, reason)) => Some(WithheldReason::Host(reason.clone())),
        None if host.is_kept(function.address, lag) => {
            Some(WithheldReason::Host(Withheld::Operator))
        }
        None => part_of(lag, function.address),
    });
    if let Some(reason) = reason {
        let interface =
            of_host.map(|(interface, _)| interface).or_else(|| interfaces.first().copied());
        return Some(Offer::Withheld(WithheldNic {
            name: device_name(function.address),
            interface: interface.map(|it| it.name.clone()),
            reason,
        }));
    }
    let own = lag.map(|lag| lag.bond).or_else(|| interfaces.into_iter().next());
    let link_type = link_type(function, rdma);
    let has_interface = link_type != LinkType::InfiniBand;
    Some(Offer::Nic(Nic {
        name: device_name(function.address),
        link_type,
        function: Some(function),
        rdma,
        interface: own.filter(|_| has_interface),
        link_degraded: snapshot.is_link_degraded(function),
    }))
}

/// Of the functions of a bond, the NIC is the one with the RDMA device.
fn part_of(lag: Option<&Lag<'_>>, function: PciAddress) -> Option<WithheldReason> {
    let lag = lag.filter(|lag| lag.first != function)?;
    let (bond, first) = (lag.bond.name.clone(), device_name(lag.first));
    Some(WithheldReason::PortOfBond { bond, first })
}

/// Why no pod can get a function, as far as its driver shows.
fn unusable(function: &PciFunction) -> Option<WithheldReason> {
    let is_virtual = function.physical_function.is_some();
    match &function.driver {
        None => Some(WithheldReason::Unbound { is_virtual }),
        Some(driver) if HOLDERS.contains(&driver.as_str()) => {
            Some(WithheldReason::Reserved { driver: driver.clone() })
        }
        Some(_) => None,
    }
}

/// The interfaces of a function. Sysfs links them to functions, but only by name. If sysfs
/// shows another namespace than netlink, a pod's veth `eth0` must not count as the
/// function's interface.
fn interfaces_of<'a>(
    snapshot: &'a Snapshot,
    network: &'a NetworkFacts,
    address: PciAddress,
) -> Vec<&'a Interface> {
    let names = snapshot.netdevs_of(address).map(|netdev| netdev.name.as_str());
    names
        .filter_map(|name| network.interface(name))
        .filter(|interface| matches!(interface.kind.as_deref(), None | Some("ipoib")))
        .collect()
}

/// Whether a driver is bound to the function that does not only reserve it.
pub fn is_usable(function: &PciFunction) -> bool {
    unusable(function).is_none()
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
    let nics = network.interfaces.iter().filter_map(|it| match of_interface(it, &withheld)? {
        Offer::Nic(nic) => Some((nic.name, nic.interface?)),
        Offer::Withheld(_) => None,
    });
    nics.collect()
}

fn of_interface<'a>(
    interface: &'a Interface,
    withheld: &BTreeMap<u32, Withheld>,
) -> Option<Offer<'a>> {
    let kind = interface.kind.as_deref()?;
    let is_plugin = PLUGIN_PREFIXES.iter().any(|prefix| interface.name.starts_with(prefix));
    if !VIRTUAL_KINDS.contains(&kind) || is_plugin {
        return None;
    }
    let name = interface_device_name(&interface.name);
    Some(match withheld.get(&interface.index) {
        // The host's end of a pod's own interface comes and goes with the pod, and nobody misses it.
        Some(Withheld::Member(_)) if kind == VETH => return None,
        Some(reason) => Offer::Withheld(WithheldNic {
            name,
            interface: Some(interface.name.clone()),
            reason: WithheldReason::Host(reason.clone()),
        }),
        None => Offer::Nic(Nic {
            name,
            link_type: LinkType::Virtual,
            function: None,
            rdma: None,
            interface: Some(interface),
            link_degraded: None,
        }),
    })
}

/// Whether a device is one end of a pair by which a network plugin connects a pod, as far as its
/// attributes say.
pub fn is_veth(device: &Device) -> bool {
    let kind = device.attributes.as_ref().and_then(|attributes| attributes.get(dranet::TYPE));
    kind.is_some_and(|kind| kind.string.as_deref() == Some(VETH))
}

/// The device name of a virtual interface in a slice: its own name if that is a DNS label,
/// otherwise `net-` and its bytes in hexadecimal. Names of functions and of places are no such names.
pub fn interface_device_name(name: &str) -> String {
    let is_label =
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-');
    let is_taken = ["pci-", "net-", LATE_PLACE].iter().any(|prefix| name.starts_with(prefix));
    if is_label && !is_taken {
        return name.to_owned();
    }
    let hex: Vec<String> = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("net-{}", hex.concat())
}

#[cfg(test)]
mod tests;
