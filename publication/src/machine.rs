//! Reads the NICs of a machine from its facts, once: each with its role, rail and place in the topology.
//! Rules about several NICs are passes over them, made before each is judged. Pure: the same facts always give
//! the same result.

use crate::attributes::attributes;
use crate::cloud::CloudMetadata;
use crate::fabric::fabric;
use crate::health::PortErrors;
use crate::held::Held;
use crate::judge::{Rules, Verdict, WithheldReason, judge};
use crate::network::{NetworkFacts, Withheld};
use crate::nic::{self, MachineFacts, NicState, OtherFunction, device_name};
use crate::order;
use crate::rails::file::RailsFile;
use crate::rails::{KnownRails, Rails};
use cluster_model::drivers::accelerators;
use cluster_model::gpu_drivers;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{
    Anomaly, HostCondition, Level, NodeTopologySpec, Overlay, PciAddress, Snapshot, Topology,
};

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

/// What is found of NICs while the machine is in use.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// The devices that pods have.
    pub held: Held,
    /// Devices whose virtual functions are being created.
    pub not_ready: BTreeSet<String>,
    /// RDMA devices that do not answer.
    pub unresponsive: BTreeSet<String>,
    /// Errors of ports, by RDMA device.
    pub port_errors: BTreeMap<String, PortErrors>,
    /// Corrected errors of the NICs' `PCIe` links.
    pub link_errors: BTreeMap<PciAddress, u64>,
}

/// A machine with its NICs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What could be NICs of pods: those that the host keeps, then the others in the order in which they are
    /// published.
    pub nics: Vec<NicState>,
    /// The topology graph.
    pub topology: NodeTopologySpec,
    /// Inconsistencies found in the machine's data.
    pub anomalies: Vec<Anomaly>,
    /// Conditions of the node: whether the operator's sources of rails are used, and what a caller adds.
    pub host: Vec<HostCondition>,
    /// The NICs that rails are counted over.
    pub rails: KnownRails,
}

impl Machine {
    /// Reads it. `known` are the NICs that it had before.
    pub fn read(facts: &Facts, rules: &Rules, known: &KnownRails) -> Self {
        Self::with_gone(facts, rules, known, Vec::new())
    }

    /// Reads it with the NICs of pods that it no longer has.
    pub(crate) fn with_gone(
        facts: &Facts,
        rules: &Rules,
        known: &KnownRails,
        gone: Vec<NicState>,
    ) -> Self {
        let Facts { snapshot, network, cloud, rails: file } = facts;
        let overlay = cloud.machine_type().and_then(Overlay::built_in);
        let (mut topology, anomalies) =
            Topology::build_with(snapshot, overlay.as_ref(), accelerators());
        let mut nics = nic::nics(snapshot, network);
        if !rules.nic_role.is_empty() {
            locate(&mut nics, &topology, cloud);
            number(&mut nics, &known.numbers());
            let given = nics.iter().filter(|nic| can_be_given(nic));
            let said = given
                .filter_map(|nic| Some((nic.address()?, rules.nic_role.role(&attributes(nic))?)));
            topology = topology.with_roles(&said.collect(), "--nic-role of node-driver says so");
        }
        let fabric = fabric(snapshot, &topology, cloud).map(|fabric| fabric.to_string());
        topology = topology.on_fabric(fabric);
        locate(&mut nics, &topology, cloud);
        order::by_cells(&mut nics, &topology, can_be_given);
        let known = known.with(&ports(&nics), &gone);
        number(&mut nics, &known.numbers());
        let rails = Rails::new(&ports(&nics), &gone, &known, (file.as_ref(), &rules.nic_rail));
        number(&mut nics, rails.numbers());
        let topology = with_bonds(rails.shown_in(topology.to_spec()), &nics);
        let host = rails.condition().into_iter().collect();
        nics.extend(gone);
        Self { nics, topology, anomalies, host, rails: known }
    }

    /// Adds what is known of its NICs besides the facts, and applies the rules about several of them.
    pub fn settle(&mut self, usage: &Usage, rules: &Rules) {
        for nic in &mut self.nics {
            usage.note(nic);
            rules.note(nic);
        }
        give_each_port_once(&mut self.nics, &usage.held, rules);
    }

    /// Withholds NICs whose driver is being loaded, and has pods evicted from those that it waits for, by
    /// the names of their functions.
    pub fn replace_driver(&mut self, withheld: &BTreeSet<String>, evicted: &BTreeSet<String>) {
        for nic in &mut self.nics {
            let function = nic.address().map_or_else(|| nic.name.clone(), device_name);
            nic.now.driver_is_loading = withheld.contains(&function);
            nic.now.driver_is_awaited = evicted.contains(&function);
        }
    }

    /// The NICs that pods can get.
    pub fn given<'m>(&'m self, rules: &'m Rules) -> impl Iterator<Item = &'m NicState> {
        self.nics.iter().filter(|nic| matches!(judge(nic, rules), Verdict::Given(_)))
    }
}

/// Whether the host can give a NIC.
fn can_be_given(nic: &NicState) -> bool {
    matches!(judge(nic, &Rules::default()), Verdict::Given(_))
}

/// The NICs that have rails, if they are compute NICs: those that the host can give, and ports of NICs' own
/// switches, whose functions it gives.
fn ports(nics: &[NicState]) -> Vec<&NicState> {
    let ports = nics.iter().filter(|nic| {
        let kept = nic.kept.as_ref().map(|kept| &kept.reason);
        can_be_given(nic) || kept == Some(&Withheld::SwitchPort)
    });
    ports.collect()
}

impl Usage {
    fn note(&self, nic: &mut NicState) {
        let rdma = nic.rdma.as_ref().map(|rdma| &rdma.name);
        nic.now.holding = self.held.get(&nic.name).copied();
        nic.now.is_not_ready = !nic.now.is_gone && self.not_ready.contains(&nic.name);
        nic.now.is_unresponsive = rdma.is_some_and(|name| self.unresponsive.contains(name));
        nic.now.port_errors = rdma.and_then(|name| self.port_errors.get(name)).copied();
        nic.now.pcie_errors = nic.address().and_then(|it| self.link_errors.get(&it)).copied();
    }
}

impl Rules {
    /// What the operator's expressions say of a NIC.
    fn note(&self, nic: &mut NicState) {
        if self.filter.is_empty() && self.sharing.is_none() {
            return;
        }
        let attributes = attributes(nic);
        nic.now.is_dropped = !self.filter.keeps(&attributes);
        nic.now.is_shared = self.sharing.selects(&attributes);
    }
}

/// Adds what the topology and the cloud say of each NIC.
fn locate(nics: &mut [NicState], topology: &Topology, cloud: &CloudMetadata) {
    let driver = gpu_drivers::all()
        .iter()
        .find(|driver| topology.gpus().iter().any(|gpu| gpu.vendor == driver.pci_vendor));
    let cells = topology.cells_of_all(Level::Switch).into_iter();
    let switches: BTreeMap<PciAddress, String> = cells
        .flat_map(|cell| cell.nics.into_iter().map(move |nic| (nic, cell.key.clone())))
        .collect();
    let pairs = topology.partners();
    let machine = MachineFacts {
        shape: topology.shape().to_string(),
        fabric: topology.fabric().map(str::to_owned),
        gpu_driver: driver.map(|driver| driver.driver.to_owned()),
        cloud: cloud.iter().map(|(name, text)| (name.to_owned(), text.clone())).collect(),
    };
    for nic in nics {
        nic.machine = machine.clone();
        let Some(address) = nic.address() else { continue };
        let known = topology.nic(address);
        nic.role = known.map(|known| known.role);
        nic.numa = known.and_then(|known| known.numa);
        nic.switch = switches.get(&address).cloned();
        // An attribute has one value, so a NIC that is equally near to several GPUs names none of them.
        let mut own = pairs.iter().filter(|pair| pair.nic == address);
        let partner = own.next().filter(|_| own.next().is_none());
        let partner = partner.and_then(|pair| topology.gpu(pair.gpu));
        let partner = partner.filter(|gpu| gpu_drivers::by_pci_vendor(gpu.vendor) == driver);
        nic.partner = partner.and_then(|gpu| gpu.uuid.clone());
    }
}

/// Gives each NIC the rail of its function, and compute NICs with verbs on virtual functions that of the
/// physical one.
fn number(nics: &mut [NicState], numbers: &BTreeMap<PciAddress, u32>) {
    for nic in nics {
        let physical = nic.physical_function().filter(|_| nic.is_compute());
        let address = physical.or_else(|| nic.address());
        nic.rail = address.and_then(|address| numbers.get(&address)).copied();
    }
}

/// Gives out each port once. A physical function with virtual functions that pods or virtual machines can
/// have is withheld; if a pod has it already, its virtual functions are.
fn give_each_port_once(nics: &mut [NicState], held: &Held, rules: &Rules) {
    let mut functions: Vec<_> = nics
        .iter()
        .filter_map(|nic| Some((nic.address()?, nic.physical_function()?, nic)))
        .collect();
    functions.sort_by_key(|(address, ..)| *address);
    let mut others = BTreeMap::new();
    for (_, physical, nic) in functions {
        let physical = device_name(physical);
        if held.contains_key(&physical) {
            if nic.now.holding.is_none() {
                others.insert(nic.name.clone(), OtherFunction::Physical(physical));
            }
        } else if is_given_out(nic, rules) {
            others.entry(physical).or_insert_with(|| OtherFunction::Virtual(nic.name.clone()));
        }
    }
    for nic in nics {
        nic.now.other_function = others.remove(&nic.name);
    }
}

/// Whether pods or virtual machines can have a function.
fn is_given_out(nic: &NicState, rules: &Rules) -> bool {
    let verdict = judge(nic, rules);
    matches!(verdict, Verdict::Given(_) | Verdict::Withheld(WithheldReason::Reserved { .. }))
}

/// Says which functions belong to each NIC that is a bond.
fn with_bonds(mut topology: NodeTopologySpec, nics: &[NicState]) -> NodeTopologySpec {
    for nic in &mut topology.nics {
        let lags = nics.iter().filter_map(|state| state.lag.as_ref());
        let Some(lag) = lags.into_iter().find(|lag| lag.first.to_string() == nic.at) else {
            continue;
        };
        let others = lag.functions.iter().filter(|function| **function != lag.first);
        nic.bonded = others.map(ToString::to_string).collect();
    }
    topology
}
