//! Finds the NICs of a machine in its facts: functions, their scalable functions, and virtual interfaces.

use crate::lag::{Lag, lags};
use crate::network::{Interface, NetworkFacts, VETH, Withheld};
use crate::nic::{Kept, LinkType, NicState, device_name, interface_device_name};
use std::collections::BTreeMap;
use topology_graph::{LinkLayer, Netdev, PciAddress, PciFunction, RdmaDevice, Snapshot};

/// PCI base class of network controllers.
const CLASS_NETWORK: u32 = 0x02;
/// PCI class of InfiniBand controllers.
const CLASS_INFINIBAND: u32 = 0x0207;

/// Kinds of virtual interfaces that a pod can be given.
const VIRTUAL_KINDS: [&str; 5] = ["dummy", "ipvlan", "macvlan", VETH, "vlan"];

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

/// What could be NICs of pods, as far as the kernel tells: functions by address, then virtual
/// interfaces by name.
pub fn nics(snapshot: &Snapshot, network: &NetworkFacts) -> Vec<NicState> {
    let host =
        Host { snapshot, network, withheld: network.withheld(), lags: lags(snapshot, network) };
    let functions = snapshot.pci.iter().filter_map(|function| host.function(function));
    let parts = snapshot.rdma.iter().filter_map(|rdma| host.scalable_function(rdma));
    let interfaces = network.interfaces.iter().filter_map(|interface| host.interface(interface));
    functions.chain(parts).chain(interfaces).collect()
}

/// What the host does with interfaces.
struct Host<'a> {
    snapshot: &'a Snapshot,
    network: &'a NetworkFacts,
    /// Why interfaces stay with it, by index.
    withheld: BTreeMap<u32, Withheld>,
    lags: Vec<Lag>,
}

impl Host<'_> {
    /// A network controller, or a function with an RDMA device.
    fn function(&self, function: &PciFunction) -> Option<NicState> {
        let address = function.address;
        let rdma = self.snapshot.rdma_of(address).find(|rdma| rdma.part.is_none());
        if function.class >> 16 != CLASS_NETWORK && rdma.is_none() {
            return None;
        }
        let lag = self.lags.iter().find(|lag| lag.functions.contains(&address));
        let own = self.interfaces_of(address);
        let netdevs = self.snapshot.netdevs_of(address);
        let netdevs: Vec<&Netdev> = netdevs.filter(|netdev| !self.is_of_other(netdev)).collect();
        let interface =
            own.iter().copied().find(|it| netdevs.iter().any(|netdev| netdev.name == it.name));
        let netdev = netdevs
            .into_iter()
            .find(|netdev| interface.is_none_or(|interface| interface.name == netdev.name));
        Some(NicState {
            name: device_name(address),
            link_type: link_type(function, rdma),
            function: Some(function.clone()),
            rdma: rdma.cloned(),
            netdev: netdev.cloned(),
            interface: interface.cloned(),
            lower: self.lower(interface),
            link_degraded: self.snapshot.is_link_degraded(function),
            kept: self.keeps(function, &own, lag),
            lag: lag.cloned(),
            ..NicState::default()
        })
    }

    /// The scalable function that has this RDMA device.
    fn scalable_function(&self, rdma: &RdmaDevice) -> Option<NicState> {
        let (address, part) = (rdma.pci?, rdma.part.as_ref()?);
        let function = self.snapshot.function(address)?;
        let mut netdevs = self.snapshot.netdevs_of(address);
        let netdev = netdevs.find(|netdev| netdev.part.as_ref() == Some(part));
        let interface = netdev.and_then(|netdev| self.network.interface(&netdev.name));
        let number = part.rsplit('.').next().unwrap_or_default();
        Some(NicState {
            name: format!("{}-sf-{number}", device_name(address)),
            link_type: link_type(function, Some(rdma)),
            function: Some(function.clone()),
            part: Some(part.clone()),
            rdma: Some(rdma.clone()),
            netdev: netdev.cloned(),
            interface: interface.cloned(),
            lower: self.lower(interface),
            link_degraded: self.snapshot.is_link_degraded(function),
            kept: interface.and_then(|interface| self.keeps_interface(interface)),
            ..NicState::default()
        })
    }

    /// A virtual interface that a pod can be given.
    fn interface(&self, interface: &Interface) -> Option<NicState> {
        let kind = interface.kind.as_deref()?;
        let is_plugin = PLUGIN_PREFIXES.iter().any(|prefix| interface.name.starts_with(prefix));
        if !VIRTUAL_KINDS.contains(&kind) || is_plugin {
            return None;
        }
        let kept = self.keeps_interface(interface);
        // The host's end of a pod's own interface comes and goes with the pod, and nobody misses it.
        if kind == VETH && matches!(kept, Some(Kept { reason: Withheld::Member(_), .. })) {
            return None;
        }
        Some(NicState {
            name: interface_device_name(&interface.name),
            interface: Some(interface.clone()),
            lower: self.lower(Some(interface)),
            kept,
            ..NicState::default()
        })
    }

    fn keeps_interface(&self, interface: &Interface) -> Option<Kept> {
        let reason = self.withheld.get(&interface.index)?.clone();
        Some(Kept { reason, interface: Some(interface.name.clone()) })
    }

    fn lower(&self, interface: Option<&Interface>) -> Option<String> {
        Some(self.network.lower_of(interface?)?.name.clone())
    }

    /// The interfaces of a function. Sysfs links them to functions, but only by name. If sysfs
    /// shows another namespace than netlink, a pod's veth `eth0` must not count as the
    /// function's interface.
    fn interfaces_of(&self, address: PciAddress) -> Vec<&Interface> {
        let netdevs = self.snapshot.netdevs_of(address);
        netdevs
            .filter(|netdev| !netdev.is_of_scalable_function())
            .filter_map(|netdev| self.network.interface(&netdev.name))
            .filter(|interface| matches!(interface.kind.as_deref(), None | Some("ipoib")))
            .collect()
    }

    /// Whether it is that of a scalable function, or represents another function: the function's own one can be
    /// in a pod.
    fn is_of_other(&self, netdev: &Netdev) -> bool {
        let is_switch_port =
            self.network.interface(&netdev.name).is_some_and(|it| it.is_switch_port);
        netdev.is_of_scalable_function() || netdev.part.is_some() && is_switch_port
    }

    /// Why a function with these interfaces stays with the host. A port of a bond that is a NIC is given
    /// as part of that. The operator may also name a function whose port is joined with its own.
    fn keeps(&self, function: &PciFunction, own: &[&Interface], lag: Option<&Lag>) -> Option<Kept> {
        let bond = lag.map(|lag| &lag.bond);
        let used = own.iter().copied().chain(bond).find_map(|interface| {
            let kept = self.keeps_interface(interface)?;
            let is_port = bond.is_some_and(|bond| interface.master == Some(bond.index))
                && matches!(kept.reason, Withheld::Member(_));
            (!is_port).then_some(kept)
        });
        used.or_else(|| {
            let functions = lag.into_iter().flat_map(|lag| &lag.functions);
            let mut joined = functions.chain([&function.address]);
            let is_named = joined.any(|it| self.network.is_for_host(&it.to_string()));
            let interface = own.first().copied().or(bond).map(|it| it.name.clone());
            is_named.then_some(Kept { reason: Withheld::Operator, interface })
        })
    }
}

/// The link type, from the ports; without an RDMA device, from the PCI class.
fn link_type(function: &PciFunction, rdma: Option<&RdmaDevice>) -> LinkType {
    let Some(rdma) = rdma else {
        let is_infiniband = function.class >> 8 == CLASS_INFINIBAND;
        return if is_infiniband { LinkType::InfiniBand } else { LinkType::Ethernet };
    };
    if has_port(rdma, LinkLayer::Ethernet) {
        LinkType::Ethernet
    } else if has_port(rdma, LinkLayer::InfiniBand) {
        LinkType::InfiniBand
    } else {
        LinkType::Verbs
    }
}

fn has_port(rdma: &RdmaDevice, layer: LinkLayer) -> bool {
    rdma.ports.iter().any(|port| port.link_layer == Some(layer))
}
