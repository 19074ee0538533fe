//! The rails of compute NICs, and where each comes from: the node's own file, the operator's expression,
//! or the order of PCI addresses. For the NICs of a link type the first source wins that numbers one of
//! them, and numbers no two alike: claims also tell ports apart by their rails. Pure.

pub mod file;
mod known;

use crate::attributes::attributes;
use crate::filter::Filter;
use crate::nic::{LinkType, NicState};
use crate::rails::file::RailsFile;
use known::address_with_rail;
use std::collections::BTreeMap;
use topology_graph::{HostCondition, NodeTopologySpec, PciAddress};

pub use known::KnownRails;

/// The condition: whether the rails of the operator's sources are used.
const APPLIED: &str = "RailsApplied";
const FILE: &str = "the node's file `rails`";
const EXPRESSION: &str = "--nic-rail of node-driver";
const ORDER: &str = "counted by PCI address";

/// The rails of a machine.
#[derive(Debug, Default)]
pub(crate) struct Rails {
    /// The number of each physical NIC that has one, also of those that are missing.
    numbers: BTreeMap<PciAddress, u32>,
    /// Of each physical compute NIC with verbs, where its number comes from or why it has none.
    reasons: BTreeMap<PciAddress, String>,
    /// Whether the operator has a source.
    has_source: bool,
    /// Sources that are not used, and NICs without a rail: a reason in one word, and a text.
    problems: Vec<(&'static str, String)>,
}

/// What a source says about the NICs of a link type.
struct Said {
    source: &'static str,
    numbers: Result<BTreeMap<PciAddress, u32>, (&'static str, String)>,
}

impl Rails {
    /// The rails of these NICs. They have the numbers by PCI address, which the expression sees. None gets the
    /// rail of one that a pod has and that is gone.
    pub(crate) fn new(
        nics: &[&NicState],
        gone: &[NicState],
        known: &KnownRails,
        (file, expression): (Option<&RailsFile>, &Filter),
    ) -> Self {
        let mut by_type: BTreeMap<LinkType, BTreeMap<PciAddress, &NicState>> = BTreeMap::new();
        for nic in nics {
            if let Some(address) = address_with_rail(nic) {
                by_type.entry(nic.link_type).or_default().insert(address, nic);
            }
        }
        let mut rails = Self {
            numbers: known.numbers(),
            has_source: file.is_some() || !expression.is_empty(),
            ..Self::default()
        };
        for nics in by_type.values() {
            let of_file = file.map(|file| Said { source: FILE, numbers: in_file(file, nics) });
            let by_expression = (!expression.is_empty())
                .then(|| Said { source: EXPRESSION, numbers: Ok(by(expression, nics)) });
            rails.choose(nics, of_file.into_iter().chain(by_expression));
            rails.leave(nics, gone);
        }
        rails
    }

    /// Leaves the rails of NICs that are gone to the pods that have them.
    fn leave(&mut self, nics: &BTreeMap<PciAddress, &NicState>, gone: &[NicState]) {
        for (address, nic) in nics {
            let Some(number) = self.numbers.get(address).copied() else { continue };
            let holder = gone.iter().find(|it| {
                address_with_rail(it).is_some()
                    && it.link_type == nic.link_type
                    && it.rail == Some(number)
            });
            let Some(holder) = holder else { continue };
            self.numbers.remove(address);
            let holder = name(holder);
            let why = format!("its rail {number} is that of {holder}, which is gone and in a pod");
            self.problems.push(("Held", format!("{}: {why}", name(nic))));
            self.reasons.insert(*address, why);
        }
    }

    /// Takes the numbers of the first source that can be used.
    fn choose(
        &mut self,
        nics: &BTreeMap<PciAddress, &NicState>,
        sources: impl Iterator<Item = Said>,
    ) {
        let mut refused = Vec::new();
        for Said { source, numbers } in sources {
            let numbers = numbers.and_then(|numbers| distinct(numbers, nics));
            match numbers {
                Ok(numbers) if numbers.is_empty() => {}
                Ok(numbers) => return self.take(source, &numbers, nics),
                Err((word, why)) => {
                    let why = format!("{source} is not used: {why}");
                    refused.push(why.clone());
                    self.problems.push((word, why));
                }
            }
        }
        let reason = [&[ORDER.to_owned()][..], &refused].concat().join("; ");
        self.reasons.extend(nics.keys().map(|address| (*address, reason.clone())));
    }

    fn take(
        &mut self,
        source: &str,
        numbers: &BTreeMap<PciAddress, u32>,
        nics: &BTreeMap<PciAddress, &NicState>,
    ) {
        for (address, nic) in nics {
            if let Some(number) = numbers.get(address) {
                self.numbers.insert(*address, *number);
                self.reasons.insert(*address, format!("{source} says so"));
            } else {
                self.numbers.remove(address);
                let why = format!("{source} has no rail for it");
                self.problems.push(("Incomplete", format!("{}: {why}", name(nic))));
                self.reasons.insert(*address, why);
            }
        }
    }

    /// The number of each physical NIC that has one.
    pub(crate) fn numbers(&self) -> &BTreeMap<PciAddress, u32> {
        &self.numbers
    }

    /// With the rails and where they come from.
    pub(crate) fn shown_in(&self, mut topology: NodeTopologySpec) -> NodeTopologySpec {
        for nic in &mut topology.nics {
            let Ok(address) = nic.at.parse() else { continue };
            let Some(reason) = self.reasons.get(&address) else { continue };
            nic.rail = self.numbers.get(&address).copied();
            nic.rail_reason = Some(reason.clone());
        }
        topology
    }

    /// Whether the operator's sources are used; `None` if there are none.
    pub(crate) fn condition(&self) -> Option<HostCondition> {
        let is_used = self.reasons.values().any(|reason| reason.ends_with("says so"));
        let unused = (!is_used && self.problems.is_empty())
            .then(|| ("Unused", "no source has a rail for a compute NIC".to_owned()));
        let problems: Vec<_> = self.problems.iter().cloned().chain(unused).collect();
        self.has_source.then(|| HostCondition {
            kind: APPLIED,
            holds: problems.is_empty(),
            reason: problems.first().map_or("Applied", |(word, _)| word),
            message: String::new(),
            entries: problems.into_iter().map(|(_, text)| text).collect(),
        })
    }
}

/// The rails that the file has for these NICs.
fn in_file(
    file: &RailsFile,
    nics: &BTreeMap<PciAddress, &NicState>,
) -> Result<BTreeMap<PciAddress, u32>, (&'static str, String)> {
    let entries = file.rails.as_ref().map_err(|why| ("Invalid", why.clone()))?;
    let mut numbers = BTreeMap::new();
    for (address, nic) in nics {
        let own = address.to_string();
        let rdma = nic.rdma.as_ref().map(|rdma| rdma.name.as_str());
        let interface = nic.own_interface().map(|interface| interface.name.as_str());
        let names = [Some(own.as_str()), rdma, interface].into_iter().flatten();
        let mut said = names.filter_map(|name| entries.get(name));
        let Some(number) = said.next() else { continue };
        if said.any(|other| other != number) {
            let why = format!("it has several rails for {}, by several names", name(nic));
            return Err(("Contradictory", why));
        }
        numbers.insert(*address, *number);
    }
    Ok(numbers)
}

/// The rails that the expression gives these NICs.
fn by(expression: &Filter, nics: &BTreeMap<PciAddress, &NicState>) -> BTreeMap<PciAddress, u32> {
    nics.iter()
        .filter_map(|(address, nic)| Some((*address, expression.rail(&attributes(nic))?)))
        .collect()
}

/// The same numbers, if no two are alike.
fn distinct(
    numbers: BTreeMap<PciAddress, u32>,
    nics: &BTreeMap<PciAddress, &NicState>,
) -> Result<BTreeMap<PciAddress, u32>, (&'static str, String)> {
    let mut by_number = BTreeMap::new();
    for (address, number) in &numbers {
        if let Some(other) = by_number.insert(*number, *address) {
            let (one, two) = (name(nics[&other]), name(nics[address]));
            return Err(("Ambiguous", format!("it has rail {number} for both {one} and {two}")));
        }
    }
    Ok(numbers)
}

/// What people call a NIC.
fn name(nic: &NicState) -> String {
    nic.rdma.as_ref().map_or(&nic.name, |rdma| &rdma.name).clone()
}

#[cfg(test)]
mod tests;
