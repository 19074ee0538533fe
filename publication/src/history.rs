//! What a look at a machine must know of the looks before: NICs as they were before pods got them, the NICs
//! that rails are counted over, and health. One value, which each look folds into the next.
//!
//! The host cannot see an interface in a pod's namespace nor, in the RDMA subsystem's exclusive mode, an RDMA
//! device in one. What is published about the NIC, and about the topology, stays as it was when the claim was
//! prepared. Pure; time is an argument.

use crate::health::{Health, Problems, Vitals};
use crate::held::{Held, Holding};
use crate::judge::{BindNics, Rules, Verdict, WithheldReason, judge};
use crate::machine::{Facts, Machine, Usage};
use crate::network::{Interface, NetworkFacts};
use crate::nic::NicState;
use crate::rails::KnownRails;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Instant;
use topology_graph::{DeviceIdentity, Netdev, Snapshot};

/// What earlier looks have left.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// NICs as they were before pods got them.
    pub seen: Seen,
    /// The NICs that rails are counted over.
    pub rails: KnownRails,
    /// The health of NICs over time.
    pub health: Health,
    /// The problems at the last look.
    pub problems: Problems,
    /// How NICs were bound at the last look; `None` before the first.
    pub binding: Option<BindNics>,
}

/// The NICs as last seen in the host's namespace. The value outlives a restart of the driver, but not a
/// reboot, after which no pod has any device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// By device name.
    nics: BTreeMap<String, NicState>,
    /// The interfaces of functions, by PCI address.
    interfaces: BTreeMap<String, Vec<String>>,
}

impl History {
    /// Looks at a machine in use; returns it, ready to be judged, and what the next look must know.
    pub fn look(
        &self,
        facts: &mut Facts,
        usage: &Usage,
        rules: &Rules,
        now: Instant,
    ) -> (Machine, Self) {
        self.seen.complete(facts, &usage.held);
        let gone = self.seen.gone(&facts.snapshot, &usage.held).collect();
        let mut machine = Machine::with_gone(facts, rules, &self.rails, gone);
        machine.settle(usage, rules);
        let mut seen = self.seen.clone();
        seen.remember(&machine.nics, &usage.held);
        seen.name_interfaces(&mut machine.topology.identities);
        let mut health = self.health.clone();
        health.observe(&vitals(&machine.nics, rules), now);
        let problems = health.problems(now);
        for nic in &mut machine.nics {
            nic.now.problems = problems.get(&nic.name).cloned().unwrap_or_default();
        }
        let (rails, binding) = (machine.rails.clone(), self.binding);
        (machine, Self { seen, rails, health, problems, binding })
    }
}

/// What is observed of each NIC of which anything is; of one that pods cannot get only whether it answers,
/// and nothing of one that the operator drops.
fn vitals(nics: &[NicState], rules: &Rules) -> BTreeMap<String, Vitals> {
    let all = nics.iter().map(|nic| {
        let vitals = match judge(nic, rules) {
            Verdict::Given(_) => nic.vitals(),
            Verdict::Withheld(WithheldReason::Filter) => Vitals::default(),
            Verdict::Withheld(_) => {
                Vitals { unresponsive: nic.now.is_unresponsive, ..Vitals::default() }
            }
        };
        (nic.name.clone(), vitals)
    });
    all.filter(|(_, vitals)| *vitals != Vitals::default()).collect()
}

impl Seen {
    /// Records the NICs that the host has now and could give. Keeps what is known about NICs that pods have;
    /// forgets NICs that neither the host nor a pod has.
    fn remember(&mut self, nics: &[NicState], held: &Held) {
        self.nics.retain(|name, _| held.contains_key(name));
        let of_host = nics.iter().filter(|nic| !held.contains_key(&nic.name));
        let given = of_host.filter(|nic| {
            let verdict = judge(nic, &Rules::default());
            matches!(verdict, Verdict::Given(_) | Verdict::Withheld(WithheldReason::Filter))
        });
        self.nics.extend(given.map(|nic| (nic.name.clone(), nic.remembered())));
    }

    /// Whether the host could give a device when the machine was last looked at.
    pub fn has(&self, device: &str) -> bool {
        self.nics.contains_key(device)
    }

    /// Adds what pods have to the facts.
    fn complete(&self, facts: &mut Facts, held: &Held) {
        for (name, holding) in held {
            let Some(nic) = self.nics.get(name) else { continue };
            if nic.address().is_none_or(|address| facts.snapshot.function(address).is_some()) {
                complete(nic, &mut facts.snapshot, &mut facts.network, *holding);
            }
        }
    }

    /// Names the interfaces of NICs that have none in the host's namespace any more, and remembers those of
    /// the others. Other programs give NICs to pods too, and drivers publish NICs by the names of
    /// their interfaces.
    fn name_interfaces(&mut self, identities: &mut [DeviceIdentity]) {
        let on_host: BTreeSet<String> =
            identities.iter().flat_map(|device| device.netdevs.iter().cloned()).collect();
        let known = mem::take(&mut self.interfaces);
        for device in identities {
            let names = known.get(&device.at).filter(|_| device.netdevs.is_empty());
            if let Some(names) = names.filter(|names| names.iter().all(|it| !on_host.contains(it)))
            {
                device.netdevs.clone_from(names);
            }
            if !device.netdevs.is_empty() {
                self.interfaces.insert(device.at.clone(), device.netdevs.clone());
            }
        }
    }

    /// Functions that pods have but the machine no longer has, as they were.
    fn gone(&self, snapshot: &Snapshot, held: &Held) -> impl Iterator<Item = NicState> {
        let nics = self.nics.values().filter(|nic| {
            let address = nic.address().filter(|_| held.contains_key(&nic.name));
            address.is_some_and(|address| snapshot.function(address).is_none())
        });
        nics.cloned().map(|mut nic| {
            nic.now.is_gone = true;
            nic
        })
    }
}

/// Adds the parts of a NIC that a pod has.
fn complete(nic: &NicState, snapshot: &mut Snapshot, network: &mut NetworkFacts, holding: Holding) {
    if let Some(rdma) = &nic.rdma
        && holding.rdma
        && !snapshot
            .rdma
            .iter()
            .any(|it| (it.pci, &it.part) == (rdma.pci, &rdma.part) || it.name == rdma.name)
    {
        snapshot.rdma.push(rdma.clone());
        snapshot.rdma.sort_by(|a, b| a.name.cmp(&b.name));
    }
    if let Some(interface) = nic.interface.as_ref().filter(|_| holding.interface) {
        complete_interface(nic, interface, snapshot, network);
    }
}

/// Restores the interface as it was before, even while the host still has it or has it again: moving it into
/// the pod and back changes it, and that must not be published.
fn complete_interface(
    nic: &NicState,
    before: &Interface,
    snapshot: &mut Snapshot,
    network: &mut NetworkFacts,
) {
    let own: Vec<String> = match nic.address() {
        Some(_) => {
            let own = snapshot.netdevs.iter().filter(|it| is_own(it, nic));
            own.map(|netdev| netdev.name.clone()).collect()
        }
        None => vec![before.name.clone()],
    };
    let there = network.interfaces.iter().find(|interface| own.contains(&interface.name));
    let (index, master) = there.map_or((0, None), |there| (there.index, there.master));
    let is_taken = network.interface(&before.name).is_some() && !own.contains(&before.name);
    if is_taken {
        return;
    }
    network.interfaces.retain(|interface| !own.contains(&interface.name));
    // Indices change; the interface of that index may be another one now.
    let lower = nic.lower.as_ref().and_then(|name| network.interface(name));
    let lower = lower.map(|lower| lower.index);
    network.interfaces.push(Interface { index, master, lower, ..before.clone() });
    network.in_pods.insert(before.name.clone());
    network.interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(netdev) = &nic.netdev {
        snapshot.netdevs.retain(|other| !is_own(other, nic) && other.name != netdev.name);
        snapshot.netdevs.push(netdev.clone());
        snapshot.netdevs.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

fn is_own(netdev: &Netdev, nic: &NicState) -> bool {
    let is_part = nic.part.is_none() || netdev.part == nic.part;
    nic.address().is_some() && netdev.pci == nic.address() && is_part
}

#[cfg(test)]
mod tests;
