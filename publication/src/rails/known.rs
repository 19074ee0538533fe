//! Numbers compute NICs of one link type in the order of their PCI addresses. On equal machines, NICs with one
//! number are usually cabled to one switch.
//!
//! A NIC that is missing must not move the others to other rails: pods of one job would land on
//! different switches. The NICs that the machine has had are therefore remembered, across reboots.
//! Pure.

use crate::nic::{LinkType, NicState};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::PciAddress;

/// The physical NICs with verbs that the machine has, or has had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KnownRails {
    nics: BTreeMap<LinkType, BTreeSet<PciAddress>>,
}

impl KnownRails {
    /// With the NICs that are present now, and those of pods that the machine no longer has: no other gets
    /// their rails. NICs of which only some are missing, or all, keep their numbers. A link type
    /// with other NICs, at least as many as before or with most of them missing, is another
    /// machine and is counted anew.
    #[must_use]
    pub fn with(&self, nics: &[NicState], gone: &[NicState]) -> Self {
        let mut present: BTreeMap<LinkType, BTreeSet<PciAddress>> = BTreeMap::new();
        for nic in nics.iter().chain(gone) {
            present.entry(nic.link_type).or_default().extend(address_with_rail(nic));
        }
        for (link_type, before) in &self.nics {
            let now = present.entry(*link_type).or_default();
            let remaining = before.intersection(now).count();
            let is_part = now.is_subset(before);
            if is_part || now.len() < before.len() && 2 * remaining >= before.len() {
                now.extend(before);
            }
        }
        present.retain(|_, nics| !nics.is_empty());
        Self { nics: present }
    }

    /// The number of each NIC.
    pub fn numbers(&self) -> BTreeMap<PciAddress, u32> {
        self.nics.values().flat_map(|nics| nics.iter().copied().zip(0..)).collect()
    }
}

/// The address of a physical compute NIC with verbs; others have no rail of their own.
pub(super) fn address_with_rail(nic: &NicState) -> Option<PciAddress> {
    nic.address().filter(|_| nic.is_compute() && nic.physical_function().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Rules;
    use crate::live;
    use crate::machine::Machine;

    /// The rails of a machine without the NICs at these places, in order of their addresses.
    fn rails(known: &mut KnownRails, missing: &[usize]) -> Vec<u32> {
        let mut facts = live::facts("aks-mi300x");
        let all: Vec<_> = facts.snapshot.rdma.iter().filter_map(|rdma| rdma.pci).collect();
        let is_there = |address: &PciAddress| !missing.iter().any(|place| all[*place] == *address);
        facts.snapshot.pci.retain(|function| is_there(&function.address));
        facts.snapshot.rdma.retain(|rdma| rdma.pci.as_ref().is_some_and(is_there));
        let machine = Machine::read(&facts, &Rules::default(), known);
        *known = machine.rails;
        let numbers = known.numbers();
        let addresses: BTreeSet<_> = machine.nics.iter().filter_map(address_with_rail).collect();
        addresses.iter().map(|address| numbers[address]).collect()
    }

    #[test]
    fn a_missing_nic_moves_no_other_to_another_rail() {
        let mut known = KnownRails::default();
        assert_eq!(rails(&mut known, &[]), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(rails(&mut known, &[2]), [0, 1, 3, 4, 5, 6, 7]);
        assert_eq!(rails(&mut known, &[0, 2]), [1, 3, 4, 5, 6, 7], "and another one");
        assert_eq!(rails(&mut known, &[0]), [1, 2, 3, 4, 5, 6, 7], "one is back");
        // As when the module of all is loaded again.
        assert!(rails(&mut known, &[0, 1, 2, 3, 4, 5, 6, 7]).is_empty(), "all are gone");
        assert_eq!(rails(&mut known, &[0, 1, 2, 4, 5, 6, 7]), [3], "the first is back");
        assert_eq!(rails(&mut known, &[2]), [0, 1, 3, 4, 5, 6, 7], "one does not come back");
        let text = serde_json::to_string(&known).unwrap();
        let mut known: KnownRails = serde_json::from_str(&text).unwrap();
        assert_eq!(rails(&mut known, &[]), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn another_machine_is_counted_anew() {
        let mut known = KnownRails::default();
        assert_eq!(rails(&mut known, &[2]), [0, 1, 2, 3, 4, 5, 6], "one was missing at first");
        assert_eq!(rails(&mut known, &[]), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
