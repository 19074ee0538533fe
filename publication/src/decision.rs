//! Derives the published devices and topology from the facts about a machine. Pure: the
//! same facts always give the same result.

use crate::attributes::{self, MachineFacts};
use crate::cloud::CloudMetadata;
use crate::fabric::fabric;
use crate::filter::Filter;
use crate::health::PortErrors;
use crate::health::taint::TaintArgs;
use crate::health::{Problems, Vitals};
use crate::held::Held;
use crate::lag::{Lag, lags};
use crate::netns_mode::NetnsMode;
use crate::network::NetworkFacts;
use crate::nic::{self, LinkType, Nic, Offer, device_name};
use crate::order;
use crate::rails::file::RailsFile;
use crate::rails::{KnownRails, Rails};
use crate::sharing::SharingArgs;
use crate::withheld::{WithheldNic, WithheldReason};
use cluster_model::drivers::accelerators;
use cluster_model::names::attribute::dranet;
use cluster_model::names::{MANAGEMENT_TAINT, attribute};
use cluster_model::topology_policy::TopologyPolicy;
use k8s_openapi::api::resource::v1::{Device, DeviceTaint};
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{
    Anomaly, HostCondition, NicRole, NodeTopologySpec, Overlay, PciAddress, PortState, Snapshot,
    Topology,
};

/// The taint that has pods evicted whose NIC's driver is to be replaced.
pub const VENDOR_DRIVER_TAINT: &str = "dranet.io/vendor-driver";

/// Everything known about the machine.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Devices and topology, from the kernel.
    pub snapshot: Snapshot,
    /// Network interfaces and routes.
    pub network: NetworkFacts,
    /// Metadata from the cloud.
    pub cloud: CloudMetadata,
    /// The host's file with the rails of its NICs, if there is one.
    pub rails: Option<RailsFile>,
}

/// The operator's expressions about NICs. They see the attributes that follow from the facts alone.
#[derive(Clone, Copy, Debug)]
pub struct NicExpressions<'a> {
    /// What NICs are for.
    pub role: &'a Filter,
    /// Their rails.
    pub rail: &'a Filter,
}

/// What is published.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The NICs.
    pub devices: Vec<Device>,
    /// Health observations, by device name.
    pub vitals: BTreeMap<String, Vitals>,
    /// The topology graph.
    pub topology: NodeTopologySpec,
    /// Inconsistencies found in the machine's data.
    pub anomalies: Vec<Anomaly>,
    /// Conditions of the host's kernel.
    pub host: Vec<HostCondition>,
    /// What could be a NIC of pods and is not published.
    pub withheld: Vec<WithheldNic>,
    /// The NICs that rails are counted over.
    pub rails: KnownRails,
}

impl Decision {
    /// Adds the conditions of the host's kernel.
    #[must_use]
    pub fn with_host(mut self, host: Vec<HostCondition>) -> Self {
        self.host.extend(host);
        self
    }

    /// Adds devices that pods have but that are gone from the machine.
    #[must_use]
    pub fn with_gone(mut self, gone: Vec<Device>) -> Self {
        for device in gone {
            self.vitals.entry(device.name.clone()).or_default().gone = true;
            self.devices.push(device);
        }
        self
    }

    /// Leaves out devices that must not be allocated now.
    #[must_use]
    pub fn without(mut self, names: &BTreeSet<String>, reason: &WithheldReason) -> Self {
        self.withhold(|device| names.contains(&device.name).then(|| reason.clone()));
        self
    }

    /// Leaves out the devices that have a reason.
    fn withhold(&mut self, reason: impl Fn(&Device) -> Option<WithheldReason>) {
        let withheld = self.devices.extract_if(.., |device| reason(device).is_some());
        let withheld: Vec<Device> = withheld.collect();
        for device in withheld {
            let Some(reason) = reason(&device) else { continue };
            self.vitals.remove(&device.name);
            // Interfaces of pods would change what is withheld with each pod.
            if reason == WithheldReason::Filter && nic::is_veth(&device) {
                continue;
            }
            self.withheld.push(WithheldNic {
                interface: interface_name(&device),
                name: device.name,
                reason,
            });
        }
    }

    /// Gives out each port once: whoever has a physical function controls its virtual functions,
    /// and both have one link. A physical function with virtual functions that pods or virtual
    /// machines can have is withheld; if a pod has it already, its virtual functions are.
    #[must_use]
    pub fn one_function_per_port(mut self, snapshot: &Snapshot, held: &Held) -> Self {
        let published: BTreeSet<String> =
            self.devices.iter().map(|device| device.name.clone()).collect();
        let mut reasons = BTreeMap::new();
        for function in &snapshot.pci {
            let Some(physical) = function.physical_function else { continue };
            let (function_name, physical) = (device_name(function.address), device_name(physical));
            let is_reserved = function.driver.is_some() && !nic::is_usable(function);
            let is_given_out = published.contains(&function_name) || is_reserved;
            if held.contains_key(&physical) {
                if !held.contains_key(&function_name) {
                    let reason = WithheldReason::PhysicalFunctionInPod { physical };
                    reasons.insert(function_name, reason);
                }
            } else if is_given_out {
                let reason = WithheldReason::HasVirtualFunctions { function: function_name };
                reasons.entry(physical).or_insert(reason);
            }
        }
        self.withhold(|device| reasons.get(&device.name).cloned());
        self
    }

    /// Leaves out functions of which a pod would get nothing: the host has neither an interface nor an
    /// RDMA device of them. If a pod has the NIC, these are the pod's.
    #[must_use]
    pub fn with_something_to_give(self, snapshot: &Snapshot, held: &Held) -> Self {
        let bare = snapshot.pci.iter().map(|function| function.address).filter(|it| {
            snapshot.rdma_device(*it).is_none() && snapshot.netdevs_of(*it).next().is_none()
        });
        let names = bare.map(device_name).filter(|name| !held.contains_key(name)).collect();
        self.without(&names, &WithheldReason::NothingToGive)
    }

    /// Taints devices whose driver is to be replaced, so that pods that use them are evicted.
    #[must_use]
    pub fn evicting(mut self, names: &BTreeSet<String>) -> Self {
        for device in self.devices.iter_mut().filter(|device| names.contains(&device.name)) {
            device.taints.get_or_insert_default().push(DeviceTaint {
                key: VENDOR_DRIVER_TAINT.to_owned(),
                effect: "NoExecute".to_owned(),
                ..DeviceTaint::default()
            });
        }
        self
    }

    /// Adds whether containers may lock all of their memory, if the driver gives them NICs.
    #[must_use]
    pub fn with_locked_memory(mut self, is_unlimited: Option<bool>) -> Self {
        self.topology.locked_memory = is_unlimited;
        self
    }

    /// Adds how the kubelet chooses the NUMA nodes of GPUs of device plugins, if known.
    #[must_use]
    pub fn with_topology_policy(mut self, policy: Option<TopologyPolicy>) -> Self {
        self.topology.topology_manager_policy = policy.map(|policy| policy.to_string());
        self
    }

    /// Marks the NICs whose RDMA devices do not answer.
    #[must_use]
    pub fn with_unresponsive(mut self, devices: &BTreeSet<String>, snapshot: &Snapshot) -> Self {
        let stuck = snapshot.rdma.iter().filter(|device| devices.contains(&device.name));
        for address in stuck.filter_map(|device| device.pci) {
            self.vitals.entry(device_name(address)).or_default().unresponsive = true;
        }
        self
    }

    /// Adds the error counters of the NICs: of their ports by RDMA device, and of their `PCIe` links.
    #[must_use]
    pub fn with_errors(
        mut self,
        ports: &BTreeMap<String, PortErrors>,
        links: &BTreeMap<PciAddress, u64>,
        snapshot: &Snapshot,
    ) -> Self {
        let published: BTreeSet<&str> = self.devices.iter().map(|it| it.name.as_str()).collect();
        for function in &snapshot.pci {
            let name = device_name(function.address);
            let rdma = snapshot.rdma_device(function.address);
            let errors = rdma.and_then(|rdma| ports.get(&rdma.name));
            let pcie_errors = links.get(&function.address).copied();
            if !published.contains(name.as_str()) || errors.is_none() && pcie_errors.is_none() {
                continue;
            }
            let vitals = self.vitals.entry(name).or_default();
            vitals.port_errors = errors.map(|errors| errors.broken);
            vitals.link_downs = errors.map(|errors| errors.link_downs);
            vitals.pcie_errors = pcie_errors;
        }
        self
    }

    /// Records which network namespaces may use the RDMA devices, if the machine has any.
    #[must_use]
    pub fn with_rdma_namespaces(mut self, mode: Option<NetnsMode>, snapshot: &Snapshot) -> Self {
        let mode = mode.filter(|_| !snapshot.rdma.is_empty());
        self.topology.rdma_namespace_mode = mode.map(|mode| mode.name().to_owned());
        self
    }

    /// Leaves out the NICs that the administrator's filter drops.
    #[must_use]
    pub fn filtered(mut self, filter: &Filter) -> Self {
        self.withhold(|device| (!filter.keeps(device)).then_some(WithheldReason::Filter));
        self
    }

    /// Lets claims share the NICs as configured.
    #[must_use]
    pub fn shared(mut self, sharing: &SharingArgs) -> Self {
        self.devices = self.devices.into_iter().map(|device| sharing.apply(device)).collect();
        self
    }

    /// Taints the NICs that pods must not have, and those that have problems. Other taints stay, after
    /// these.
    #[must_use]
    pub fn tainted(mut self, problems: &Problems, effects: TaintArgs) -> Self {
        for device in &mut self.devices {
            let problems = problems.get(&device.name).map(|problems| effects.taints(problems));
            let of_role = is_management(device).then(management_taint);
            let others = device.taints.take().into_iter().flatten();
            let taints: Vec<_> =
                of_role.into_iter().chain(problems.into_iter().flatten()).chain(others).collect();
            device.taints = Some(taints).filter(|taints| !taints.is_empty());
        }
        self
    }
}

fn is_management(device: &Device) -> bool {
    let role = device.attributes.as_ref().and_then(|attributes| attributes.get(attribute::ROLE));
    let role = role.and_then(|role| role.string.as_deref()?.parse().ok());
    role == Some(NicRole::Management)
}

fn management_taint() -> DeviceTaint {
    DeviceTaint {
        key: MANAGEMENT_TAINT.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..DeviceTaint::default()
    }
}

/// The health observations of each NIC that has any.
fn vitals(nics: &[Nic<'_>]) -> BTreeMap<String, Vitals> {
    nics.iter()
        .filter_map(|nic| {
            let link_degraded = nic.link_degraded;
            let port_up = port_up(nic);
            let is_ethernet = port_up.is_some() && nic.link_type == LinkType::Ethernet;
            let vitals = Vitals { port_up, is_ethernet, link_degraded, ..Vitals::default() };
            (vitals != Vitals::default()).then(|| (nic.name.clone(), vitals))
        })
        .collect()
}

/// Whether an InfiniBand NIC has an active port, or an Ethernet NIC with verbs whose interface is
/// set up; `None` if no port state is known. An Ethernet port is down until somebody sets its
/// interface up.
fn port_up(nic: &Nic<'_>) -> Option<bool> {
    let is_judged = match nic.link_type {
        LinkType::InfiniBand => true,
        LinkType::Ethernet => nic.interface.is_some_and(|it| it.is_up == Some(true)),
        LinkType::Verbs | LinkType::Virtual => false,
    };
    let rdma = nic.rdma.filter(|_| is_judged)?;
    let mut states = rdma.ports.iter().filter_map(|port| port.state).peekable();
    states.peek()?;
    Some(states.any(|state| state == PortState::Active))
}

/// The name of a device's interface.
fn interface_name(device: &Device) -> Option<String> {
    device.attributes.as_ref()?.get(dranet::IF_NAME)?.string.clone()
}

/// Decides what to publish for these facts about a machine that was never seen before, with the
/// roles that follow from them.
pub fn decide(facts: &Facts) -> Decision {
    let none = Filter::default();
    decide_with(facts, NicExpressions { role: &none, rail: &none }, &KnownRails::default())
}

/// Decides what to publish for these facts. `known` are the NICs that the machine had before.
pub fn decide_with(facts: &Facts, expressions: NicExpressions<'_>, known: &KnownRails) -> Decision {
    let Facts { snapshot, network, cloud, rails: file } = facts;
    let overlay = cloud.machine_type().and_then(Overlay::built_in);
    let (topology, anomalies) = Topology::build_with(snapshot, overlay.as_ref(), accelerators());
    let (mut nics, mut withheld) = (Vec::new(), Vec::new());
    for offer in nic::offers(snapshot, network) {
        match offer {
            Offer::Nic(nic) => nics.push(nic),
            Offer::Withheld(nic) => withheld.push(nic),
        }
    }
    let counted = known.numbers();
    let roles =
        roles(&nics, &MachineFacts::new(&topology, cloud, &nics, counted), expressions.role);
    let topology = topology.with_roles(&roles, "--nic-role of node-driver says so");
    let fabric = fabric(snapshot, &topology, cloud).map(|fabric| fabric.to_string());
    let topology = topology.on_fabric(fabric);
    let known = known.with(&nics, &topology);
    let counted = MachineFacts::new(&topology, cloud, &nics, known.numbers());
    let rails = Rails::new(&nics, &counted, &known, (file.as_ref(), expressions.rail));
    let machine = MachineFacts::new(&topology, cloud, &nics, rails.numbers());
    let nics = order::by_cells(nics, &topology);
    let devices = attributes::devices(&nics, &machine);
    let topology = with_bonds(rails.shown_in(topology.to_spec()), &lags(snapshot, network));
    let vitals = vitals(&nics);
    let host = rails.condition().into_iter().collect();
    Decision { devices, vitals, topology, anomalies, host, withheld, rails: known }
}

/// Says which functions belong to each NIC that is a bond.
fn with_bonds(mut topology: NodeTopologySpec, lags: &[Lag<'_>]) -> NodeTopologySpec {
    for lag in lags {
        let first = lag.first.to_string();
        let others = lag.functions.iter().filter(|function| **function != lag.first);
        if let Some(nic) = topology.nics.iter_mut().find(|nic| nic.at == first) {
            nic.bonded = others.map(ToString::to_string).collect();
        }
    }
    topology
}

/// The roles that the operator's expression gives.
fn roles(
    nics: &[Nic<'_>],
    machine: &MachineFacts<'_>,
    nic_role: &Filter,
) -> BTreeMap<PciAddress, NicRole> {
    if nic_role.is_empty() {
        return BTreeMap::new();
    }
    let devices = attributes::devices(nics, machine);
    let roles = nics.iter().zip(&devices);
    roles.filter_map(|(nic, device)| Some((nic.address()?, nic_role.role(device)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::Holding;
    use crate::live::facts;
    use crate::network::Interface;
    use topology_graph::{LinkLayer, Netdev};

    #[test]
    fn the_rdma_namespace_mode_is_published_only_with_rdma_devices() {
        let mut facts = facts("aks-gb300");
        let mode = |facts: &Facts, mode| {
            let decision = decide(facts).with_rdma_namespaces(mode, &facts.snapshot);
            decision.topology.rdma_namespace_mode
        };
        assert_eq!(mode(&facts, Some(NetnsMode::Exclusive)).as_deref(), Some("exclusive"));
        assert_eq!(mode(&facts, Some(NetnsMode::Shared)).as_deref(), Some("shared"));
        assert_eq!(mode(&facts, None), None, "a recorded machine has no kernel to ask");
        facts.snapshot.rdma.clear();
        assert_eq!(mode(&facts, Some(NetnsMode::Shared)), None);
    }

    const PHYSICAL: &str = "pci-0101-00-00-0";
    const VIRTUAL: &str = "pci-0101-00-00-1";

    /// A machine on which one NIC has a virtual function with this driver.
    fn with_function(driver: Option<&str>) -> Facts {
        let mut facts = facts("aks-gb300");
        let snapshot = &mut facts.snapshot;
        let physical = "0101:00:00.0".parse().unwrap();
        let mut function = snapshot.function(physical).unwrap().clone();
        function.address = "0101:00:00.1".parse().unwrap();
        function.physical_function = Some(physical);
        function.driver = driver.map(str::to_owned);
        let mut rdma = snapshot.rdma_device(physical).unwrap().clone();
        rdma.name = "mlx5_9".to_owned();
        rdma.pci = Some(function.address);
        snapshot.rdma.push(rdma);
        snapshot.pci.push(function);
        snapshot.pci.sort_by_key(|function| function.address);
        facts
    }

    /// Which of both functions are published, and why the other is not.
    fn given_out(facts: &Facts, held: &[&str]) -> (Vec<String>, Vec<String>) {
        let holding = |name: &&str| ((*name).to_owned(), Holding::default());
        let held = held.iter().map(holding).collect();
        let decision = decide(facts)
            .with_something_to_give(&facts.snapshot, &held)
            .one_function_per_port(&facts.snapshot, &held);
        let of_both = |name: &&String| [PHYSICAL, VIRTUAL].contains(&name.as_str());
        let published = decision.devices.iter().map(|device| &device.name).filter(of_both);
        let withheld = decision.withheld.iter().filter(|nic| of_both(&&nic.name));
        let reason = |nic: &WithheldNic| format!("{} {}", nic.name, nic.reason.word());
        (published.cloned().collect(), withheld.map(reason).collect())
    }

    #[test]
    fn a_physical_function_and_its_virtual_functions_are_not_given_out_together() {
        let one = |name: &str| vec![name.to_owned()];
        let facts = with_function(Some("mlx5_core"));
        let (published, withheld) = given_out(&facts, &[]);
        assert_eq!(published, one(VIRTUAL));
        assert_eq!(withheld, one("pci-0101-00-00-0 has-virtual-functions"));
        let (published, withheld) = given_out(&facts, &[PHYSICAL]);
        assert_eq!(published, one(PHYSICAL), "a pod has had it before");
        assert_eq!(withheld, one("pci-0101-00-00-1 physical-function-in-pod"));
        let (published, _) = given_out(&facts, &[PHYSICAL, VIRTUAL]);
        assert_eq!(published.len(), 2, "what pods have stays published");

        let (published, withheld) = given_out(&with_function(Some("vfio-pci")), &[]);
        assert_eq!(published, [""; 0], "a virtual machine has the virtual function");
        assert_eq!(withheld.len(), 2);
        let (published, withheld) = given_out(&with_function(None), &[]);
        assert_eq!(published, one(PHYSICAL), "nobody has the virtual function");
        assert_eq!(withheld, one("pci-0101-00-00-1 no-driver"));
    }

    /// The second function of an adapter on two sockets, for example.
    #[test]
    fn a_function_of_which_a_pod_would_get_nothing_is_not_given_out() {
        let mut facts = facts("aks-gb300");
        let address = "0101:00:00.0".parse().unwrap();
        facts.snapshot.rdma.retain(|device| device.pci != Some(address));
        facts.snapshot.netdevs.retain(|netdev| netdev.pci != Some(address));
        let (published, withheld) = given_out(&facts, &[]);
        assert!(!published.contains(&PHYSICAL.to_owned()), "{published:?}");
        assert_eq!(withheld, [format!("{PHYSICAL} nothing-to-give")]);
        let (published, _) = given_out(&facts, &[PHYSICAL]);
        assert!(published.contains(&PHYSICAL.to_owned()), "a pod has it: {published:?}");
    }

    #[test]
    fn every_virtual_function_says_so() {
        let decision = decide(&with_function(Some("mlx5_core")));
        let is_virtual = |device: &&Device| {
            let value = device.attributes.as_ref().unwrap().get(dranet::IS_SRIOV_VF);
            value.is_some_and(|value| value.bool == Some(true))
        };
        let names: Vec<_> =
            decision.devices.iter().filter(is_virtual).map(|device| &device.name).collect();
        assert_eq!(names, [VIRTUAL]);
    }

    /// An Ethernet port is down until its interface is set up.
    #[test]
    fn an_ethernet_port_counts_while_its_interface_is_set_up() {
        let mut facts = facts("aks-gb300");
        let physical = "0101:00:00.0".parse().unwrap();
        let rdma = facts.snapshot.rdma.iter_mut().find(|it| it.pci == Some(physical)).unwrap();
        for port in &mut rdma.ports {
            port.link_layer = Some(LinkLayer::Ethernet);
            port.state = Some(PortState::Down);
        }
        facts.snapshot.netdevs.retain(|netdev| netdev.pci != Some(physical));
        let name = "rail0".to_owned();
        facts.snapshot.netdevs.push(Netdev { name: name.clone(), pci: Some(physical), part: None });
        for (is_up, expected) in [(Some(true), Some(false)), (Some(false), None), (None, None)] {
            let interface =
                Interface { index: 99, name: name.clone(), is_up, ..Interface::default() };
            facts.network.interfaces.retain(|it| it.name != name);
            facts.network.interfaces.push(interface);
            let vitals = decide(&facts).vitals.get(PHYSICAL).copied().unwrap_or_default();
            assert_eq!(vitals.port_up, expected, "{is_up:?}");
            assert_eq!(vitals.is_ethernet, expected.is_some());
        }
    }
}
