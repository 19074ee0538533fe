//! What each NIC of a machine is for, with the reason: traffic between GPUs, storage and the front
//! end, or the management of NVLink switches.
//!
//! A role follows from what a machine is, not from what happens to it: a NIC whose port goes down
//! keeps its role, and so do all others. Port states decide only between classes of NICs that are
//! otherwise equal, such as ports that were left InfiniBand and never cabled.

mod candidate;
mod rules;

use std::collections::BTreeMap;

use crate::graph::Role;
use crate::nic_role::{Verdict, Verdicts};
use crate::{NicRole, PciAddress, Topology};

impl Topology {
    /// Sets what follows from the facts about NICs.
    pub(crate) fn settle_roles(&mut self) {
        let mut verdicts = verdicts(self);
        for nic in &mut self.nics {
            let facts = self.nic_facts.get(&nic.address);
            nic.rate_megabits = facts.and_then(|facts| facts.rate_megabits);
            nic.port_state = facts.and_then(|facts| facts.port_state);
            if let Some(Verdict { role, reason }) = verdicts.remove(&nic.address) {
                (nic.role, nic.role_reason) = (role, reason);
            }
        }
    }

    /// The same machine with these roles, which the operator has decided, for the reason given.
    #[must_use]
    pub fn with_roles(mut self, roles: &BTreeMap<PciAddress, NicRole>, reason: &str) -> Self {
        for (address, role) in roles {
            let decided = Verdict { role: *role, reason: reason.to_owned() };
            self.nic_facts.entry(*address).or_default().decided = Some(decided);
        }
        self.settle_roles();
        self
    }

    /// The role of a NIC; `None` if the machine has no such NIC.
    pub fn nic_role(&self, nic: PciAddress) -> Option<NicRole> {
        Some(self.nic(nic)?.role)
    }
}

/// The role of every NIC. A virtual function has the role of its physical function, unless it was
/// decided.
fn verdicts(topology: &Topology) -> Verdicts {
    let mut verdicts = rules::verdicts(topology);
    let functions = topology.ends().filter(|(_, vertex)| vertex.role == Role::Nic);
    let virtual_functions = functions.filter_map(|(address, vertex)| {
        let physical = vertex.physical_function?.address()?;
        let decided = topology.nic_facts.get(&address).and_then(|facts| facts.decided.clone());
        if let Some(decided) = decided {
            return Some((address, decided));
        }
        let Verdict { role, .. } = verdicts.get(&physical)?;
        let reason = format!("a virtual function of {physical}");
        Some((address, Verdict { role: *role, reason }))
    });
    let virtual_functions: Vec<_> = virtual_functions.collect();
    verdicts.extend(virtual_functions);
    verdicts
}

#[cfg(test)]
mod tests;
