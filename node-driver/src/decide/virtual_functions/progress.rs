//! How far each physical function is on its way to another number of virtual ones. Pure; the
//! time is an argument.

use super::{Judged, Machine, Verdict};
use crate::decide::nic::device_name;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use topology_graph::PciAddress;

/// How long functions are published no more before they are made anew: a scheduler that has not
/// heard of it yet could still give one away.
const HEARD: Duration = Duration::from_secs(10);
/// How long a new function's interface and RDMA device are waited for.
const SETTLED: Duration = Duration::from_secs(30);
/// How long after a failure it is not tried again.
const PAUSE: Duration = Duration::from_mins(1);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The number is to be written.
    Make(PciAddress),
    /// If no claim of the cluster has any of them they are given to nobody any more.
    Withdraw(PciAddress),
    /// If still no claim has any of them they are removed, and the number is written.
    Replace(PciAddress),
}

/// How far one physical function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its functions are published no more, since then where that is told.
    Withdrawn(Option<Instant>),
    /// A number is being written.
    Writing,
    /// It failed, and is tried again then.
    Failed(Instant),
}

/// How far all are.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    stages: BTreeMap<PciAddress, Stage>,
    /// Since when virtual functions are waited for that lack something.
    incomplete: BTreeMap<PciAddress, Instant>,
}

impl Progress {
    /// What is to be done, after this look. Who does it tells how it ended.
    pub fn next(&mut self, judged: &BTreeMap<PciAddress, Judged>, now: Instant) -> Vec<Action> {
        let is_due = |address: &PciAddress, stage: &Stage| match stage {
            Stage::Writing => true,
            Stage::Failed(until) => now < *until,
            Stage::Withdrawn(_) => {
                judged.get(address).is_some_and(|it| it.verdict == Verdict::Replace)
            }
        };
        self.stages.retain(|address, stage| is_due(address, stage));
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

    /// The functions of this one are given to nobody any more.
    pub fn withdrawn(&mut self, address: PciAddress) {
        self.stages.insert(address, Stage::Withdrawn(None));
    }

    /// Those that are given to nobody are published no more.
    pub fn published(&mut self, now: Instant) {
        for stage in self.stages.values_mut() {
            if *stage == Stage::Withdrawn(None) {
                *stage = Stage::Withdrawn(Some(now));
            }
        }
    }

    /// A number is being written from now on.
    pub fn writing(&mut self, address: PciAddress) {
        self.stages.insert(address, Stage::Writing);
    }

    /// It is as if nothing had begun.
    pub fn ended(&mut self, address: PciAddress) {
        self.stages.remove(&address);
    }

    /// It failed.
    pub fn failed(&mut self, address: PciAddress, now: Instant) {
        self.stages.insert(address, Stage::Failed(now + PAUSE));
    }

    /// The devices that are not to be published now: of functions that are being made or are
    /// to be made anew, and new ones that lack what they will have. `was_published` says
    /// of which devices all was there before.
    pub fn withheld(
        &mut self,
        judged: &BTreeMap<PciAddress, Judged>,
        machine: Machine<'_>,
        was_published: impl Fn(&str) -> bool,
        now: Instant,
    ) -> BTreeSet<String> {
        let mut withheld = BTreeSet::new();
        let mut incomplete = BTreeMap::new();
        for (physical, judged) in judged {
            if matches!(self.stages.get(physical), Some(Stage::Withdrawn(_) | Stage::Writing)) {
                withheld.extend(judged.functions.iter().cloned());
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

    /// When it is to be looked again, whatever happens.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let stages = self.stages.values().filter_map(|stage| match stage {
            Stage::Withdrawn(since) => Some((*since)? + HEARD),
            Stage::Failed(until) => Some(*until),
            Stage::Writing => None,
        });
        let incomplete = self.incomplete.values().map(|since| *since + SETTLED);
        stages.chain(incomplete).filter(|at| *at > now).min()
    }

    /// Whether functions are on their way that will be published.
    pub fn is_making(&self, now: Instant) -> bool {
        let is_waited_for = |since: &Instant| now < *since + SETTLED;
        self.stages.values().any(|stage| *stage == Stage::Writing)
            || self.incomplete.values().any(is_waited_for)
    }
}
