//! Numbers compute NICs of one link type in the order of their PCI addresses. On equal machines, NICs with one
//! number are usually cabled to one switch.
//!
//! A NIC that is missing or replaced must not move the others to other rails: pods of one job would land on
//! different switches. The NICs that the machine has had are therefore remembered with their numbers, across
//! reboots. Pure.

use crate::nic::{LinkType, NicState};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::PciAddress;

/// The physical NICs with verbs that the machine has, or has had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KnownRails {
    nics: BTreeMap<LinkType, Numbered>,
}

/// NICs of one link type with their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
struct Numbered(BTreeMap<PciAddress, u32>);

/// NICs in a file. Earlier drivers wrote no numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Counted(BTreeSet<PciAddress>),
    Numbered(BTreeMap<PciAddress, u32>),
}

impl From<Written> for Numbered {
    fn from(written: Written) -> Self {
        match written {
            Written::Counted(nics) => Self::count(nics),
            Written::Numbered(nics) => Self(nics),
        }
    }
}

impl KnownRails {
    /// With the NICs that are present now, and those of pods that the machine no longer has.
    #[must_use]
    pub fn with(&self, nics: &[&NicState], gone: &[NicState]) -> Self {
        let mut now: BTreeMap<LinkType, BTreeSet<PciAddress>> = BTreeMap::new();
        for nic in nics.iter().copied().chain(gone) {
            now.entry(nic.link_type).or_default().extend(address_with_rail(nic));
        }
        let held: BTreeSet<_> = gone.iter().filter_map(address_with_rail).collect();
        let mut known = self.clone();
        for (link_type, now) in now.into_iter().filter(|(_, now)| !now.is_empty()) {
            let before = known.nics.entry(link_type).or_default();
            *before = before.with(now, &held);
        }
        known
    }

    /// The number of each NIC.
    pub fn numbers(&self) -> BTreeMap<PciAddress, u32> {
        self.nics.values().flat_map(|nics| nics.0.clone()).collect()
    }
}

impl Numbered {
    /// In the order of their addresses.
    fn count(nics: BTreeSet<PciAddress>) -> Self {
        Self(nics.into_iter().zip(0..).collect())
    }

    /// With the NICs that the machine has now, of which pods hold some although they are gone. NICs that are
    /// missing keep their numbers, until another NIC takes their place. If some were missing at
    /// first, or most are others, all are counted anew.
    fn with(&self, now: BTreeSet<PciAddress>, held: &BTreeSet<PciAddress>) -> Self {
        let added: Vec<_> = now.iter().filter(|nic| !self.0.contains_key(nic)).copied().collect();
        let missing: BTreeMap<_, _> = self.0.iter().filter(|(nic, _)| !now.contains(nic)).collect();
        let is_whole = missing.is_empty() && held.is_disjoint(&now);
        let is_another = 2 * missing.len() > self.0.len();
        if added.is_empty() {
            return self.clone();
        }
        if is_whole || is_another {
            return Self::count(now);
        }
        let next = self.0.values().max().map_or(0, |last| last + 1);
        let places = missing.into_iter().map(|(former, number)| (Some(*former), *number));
        let places = places.chain((next..).map(|number| (None, number)));
        let mut nics = self.0.clone();
        for (nic, (former, number)) in added.into_iter().zip(places) {
            if let Some(former) = former {
                nics.remove(&former);
            }
            nics.insert(nic, number);
        }
        Self(nics)
    }
}

/// The address of a physical compute NIC with verbs; others have no rail of their own.
pub(super) fn address_with_rail(nic: &NicState) -> Option<PciAddress> {
    nic.address().filter(|_| nic.is_compute() && nic.is_port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Rules;
    use crate::live;
    use crate::machine::Machine;

    /// The NICs of the machine without those at these places, in order of their addresses.
    fn nics(missing: &[usize]) -> Vec<NicState> {
        let mut facts = live::facts("aks-mi300x");
        let all: Vec<_> = facts.snapshot.rdma.iter().filter_map(|rdma| rdma.pci).collect();
        let is_there = |address: &PciAddress| !missing.iter().any(|place| all[*place] == *address);
        facts.snapshot.pci.retain(|function| is_there(&function.address));
        facts.snapshot.rdma.retain(|rdma| rdma.pci.as_ref().is_some_and(is_there));
        let mut nics = Machine::read(&facts, &Rules::default(), &KnownRails::default()).nics;
        nics.retain(|nic| address_with_rail(nic).is_some());
        nics.sort_by_key(NicState::address);
        nics
    }

    /// The rails of these NICs, after another look.
    fn numbers(known: &mut KnownRails, nics: &[NicState], gone: &[NicState]) -> Vec<u32> {
        *known = known.with(&nics.iter().collect::<Vec<_>>(), gone);
        let numbers = known.numbers();
        let addresses = nics.iter().chain(gone).filter_map(address_with_rail);
        addresses.map(|address| numbers[&address]).collect()
    }

    fn rails(known: &mut KnownRails, missing: &[usize]) -> Vec<u32> {
        numbers(known, &nics(missing), &[])
    }

    /// The NIC at another address, before or after all others.
    fn moved(nic: &NicState, address: &str) -> NicState {
        let mut nic = nic.clone();
        nic.function.as_mut().unwrap().address = address.parse().unwrap();
        nic
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
        let others: Vec<_> = nics(&[0, 1, 2])
            .iter()
            .zip(0..)
            .map(|(nic, bus)| moved(nic, &format!("ffff:{bus:02x}:00.0")))
            .collect();
        assert_eq!(numbers(&mut known, &others, &[]), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_nic_in_the_place_of_another_gets_its_rail() {
        for address in ["0000:00:01.0", "ffff:00:00.0"] {
            let mut known = KnownRails::default();
            rails(&mut known, &[]);
            let mut now = nics(&[2]);
            now.push(moved(&now[0], address));
            assert_eq!(numbers(&mut known, &now, &[]), [0, 1, 3, 4, 5, 6, 7, 2], "{address}");
            assert_eq!(known.numbers().len(), 8, "the former one is forgotten");
            // Another one is missing at the same time.
            now.remove(0);
            now.push(moved(&now[0], "ffff:01:00.0"));
            assert_eq!(numbers(&mut known, &now, &[]), [1, 3, 4, 5, 6, 7, 2, 0]);
        }
    }

    /// A pod has it.
    #[test]
    fn nobody_gets_the_rail_of_a_nic_that_is_gone() {
        for address in ["0000:00:01.0", "ffff:00:00.0"] {
            let mut known = KnownRails::default();
            rails(&mut known, &[]);
            let (mut now, gone) = (nics(&[0]), nics(&[1, 2, 3, 4, 5, 6, 7]));
            now.push(moved(&now[0], address));
            let expected = [1, 2, 3, 4, 5, 6, 7, 8, 0];
            assert_eq!(numbers(&mut known, &now, &gone), expected, "{address}");
        }
    }

    #[test]
    fn files_of_earlier_drivers_are_read() {
        let text = r#"{"nics": {"InfiniBand": ["0101:00:00.0", "0102:00:00.0"]}}"#;
        let known: KnownRails = serde_json::from_str(text).unwrap();
        assert_eq!(known.numbers().into_values().collect::<Vec<_>>(), [0, 1]);
    }
}
