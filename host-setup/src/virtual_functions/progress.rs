//! Tracks the change of each physical function to another number of virtual functions. Pure;
//! time is an argument.

use super::{Judged, Verdict, VfFacts};
use publication::nic::device_name;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use topology_graph::PciAddress;

/// How long virtual functions are unpublished before they are recreated: a scheduler that has
/// not seen the change yet could still allocate one.
const HEARD: Duration = Duration::from_secs(10);
/// How long to wait for the interface and RDMA device of a new virtual function.
const SETTLED: Duration = Duration::from_secs(30);
/// How long to wait after a failure before the next attempt.
const PAUSE: Duration = Duration::from_mins(1);

/// What to do now for one physical function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the number.
    Make(PciAddress),
    /// Stop publishing the virtual functions, if none is allocated to a claim of the cluster.
    Withdraw(PciAddress),
    /// Remove the virtual functions and write the number, if still none is allocated.
    Replace(PciAddress),
}

/// The stage that one physical function is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its virtual functions are withdrawn; the time is when that was published.
    Withdrawn(Option<Instant>),
    /// The number is being written.
    Writing,
    /// The write failed; the time is that of the next attempt.
    Failed(Instant),
}

/// The stages of all physical functions.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    stages: BTreeMap<PciAddress, Stage>,
    /// Virtual functions that lack an interface or RDMA device, and since when.
    incomplete: BTreeMap<PciAddress, Instant>,
}

impl Progress {
    /// Returns what to do now. The caller reports the outcome through the other methods.
    pub fn next(&mut self, judged: &BTreeMap<PciAddress, Judged>, now: Instant) -> Vec<Action> {
        self.stages.retain(|address, stage| match stage {
            Stage::Writing => true,
            Stage::Failed(until) => now < *until,
            Stage::Withdrawn(_) => {
                judged.get(address).is_some_and(|it| it.verdict == Verdict::Replace)
            }
        });
        let mut actions = Vec::new();
        for (address, judged) in judged {
            let stage = self.stages.get(address).copied();
            let action = match (stage, &judged.verdict) {
                (None, Verdict::Make) => Action::Make(*address),
                (None, Verdict::Replace) => Action::Withdraw(*address),
                (Some(Stage::Withdrawn(Some(since))), _) if now >= since + HEARD => {
                    Action::Replace(*address)
                }
                _ => continue,
            };
            actions.push(action);
        }
        actions
    }

    /// Records that the virtual functions of this physical function are withdrawn.
    pub fn withdrawn(&mut self, address: PciAddress) {
        self.stages.insert(address, Stage::Withdrawn(None));
    }

    /// Records that the withdrawal has been published.
    pub fn published(&mut self, now: Instant) {
        for stage in self.stages.values_mut() {
            if *stage == Stage::Withdrawn(None) {
                *stage = Stage::Withdrawn(Some(now));
            }
        }
    }

    /// Records that the number is being written.
    pub fn writing(&mut self, address: PciAddress) {
        self.stages.insert(address, Stage::Writing);
    }

    /// Forgets the stage of this physical function.
    pub fn ended(&mut self, address: PciAddress) {
        self.stages.remove(&address);
    }

    /// Records a failure; the next attempt follows after a pause.
    pub fn failed(&mut self, address: PciAddress, now: Instant) {
        self.stages.insert(address, Stage::Failed(now + PAUSE));
    }

    /// The devices that must not be published now: virtual functions that are being created or
    /// recreated, their physical function, and new ones that still lack an interface or RDMA device. `was_published`
    /// tells whether a device was complete before.
    pub fn withheld(
        &mut self,
        judged: &BTreeMap<PciAddress, Judged>,
        machine: VfFacts<'_>,
        was_published: impl Fn(&str) -> bool,
        now: Instant,
    ) -> BTreeSet<String> {
        let mut withheld = BTreeSet::new();
        let mut incomplete = BTreeMap::new();
        for (physical, judged) in judged {
            if matches!(self.stages.get(physical), Some(Stage::Withdrawn(_) | Stage::Writing)) {
                withheld.extend(judged.functions.iter().cloned());
                withheld.insert(device_name(*physical));
            }
            for function in machine.incomplete(*physical) {
                let device = device_name(function);
                if was_published(&device) || machine.held.contains(&device) {
                    continue;
                }
                let since = *self.incomplete.get(&function).unwrap_or(&now);
                incomplete.insert(function, since);
                if now < since + SETTLED {
                    withheld.insert(device);
                }
            }
        }
        self.incomplete = incomplete;
        withheld
    }

    /// When a stage will change without an event.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let stages = self.stages.values().filter_map(|stage| match stage {
            Stage::Withdrawn(since) => Some((*since)? + HEARD),
            Stage::Failed(until) => Some(*until),
            Stage::Writing => None,
        });
        let incomplete = self.incomplete.values().map(|since| *since + SETTLED);
        stages.chain(incomplete).filter(|at| *at > now).min()
    }

    /// Whether virtual functions are being created that will be published.
    pub fn is_making(&self, now: Instant) -> bool {
        self.stages.values().any(|stage| *stage == Stage::Writing)
            || self.incomplete.values().any(|since| now < *since + SETTLED)
    }
}
