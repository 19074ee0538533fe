//! Chooses among all candidates: the one that most nodes can serve, at the nearest level that all
//! of these can guarantee, in the cheapest form.

use crate::claim::match_attribute;
use crate::cost::{self, CostError};
use crate::cpus;
use crate::denial::Denial;
use crate::intent::{AlignmentPolicy, Intent};
use crate::join::form::{Apart, CLAIM_PARTS_MAX, ClaimParts, Order, Source};
use crate::join::{self, Candidate, Classes, Question};
use crate::nearness::Nearness;
use crate::nvmes;
use crate::plan::Policy;
use crate::sharing;
use crate::supply;
use cluster_model::names::{alternative, attribute};
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::{DeviceClaim, ResourceClaimSpec};
use std::cmp::Reverse;

/// Attributes that are equal on NICs of one fabric.
pub(crate) const FABRIC_ATTRIBUTES: &[&str] = &[attribute::AZURE_PLACEMENT_GROUP];

/// The choice.
#[derive(Debug)]
pub(super) struct Choice {
    /// The best candidate.
    pub(super) best: Chosen,
    /// If it is pinned to cells: all equally good candidates. Which one a pod gets is chosen later.
    pub(super) pins: Vec<Chosen>,
}

/// A candidate, written and measured.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) candidate: Candidate,
    pub(super) claim: ResourceClaimSpec,
    pub(super) nic_requests: Vec<String>,
    pub(super) steps: u64,
}

/// Why no candidate was chosen.
#[derive(Debug, Default)]
struct Refusals {
    over_budget: bool,
    too_many_parts: bool,
    other: Option<CostError>,
}

pub(super) fn choose(
    intent: &Intent,
    question: Question<'_>,
    classes: &Classes,
    view: &ClusterView,
    policy: &Policy,
) -> Result<Choice, Denial> {
    let mut refusals = Refusals::default();
    let chooser = Chooser { intent, question, classes, view, policy };
    let best = match intent.policy {
        AlignmentPolicy::Required => chooser.required(&mut refusals),
        AlignmentPolicy::Preferred => chooser.preferred(&mut refusals),
    };
    if let Some(best) = best {
        return Ok(Choice { best, pins: Vec::new() });
    }
    // For preferred alignment, if a claim could require near devices, a pinned claim would be
    // worse.
    let is_needed = intent.policy == AlignmentPolicy::Required
        || chooser.required(&mut Refusals::default()).is_none();
    let pins = if is_needed { chooser.pinned(&mut refusals) } else { Vec::new() };
    if let Some(best) = pins.first().cloned() {
        return Ok(Choice { best, pins });
    }
    Err(match refusals {
        Refusals { over_budget: true, .. } => {
            supply::too_costly(intent, question, policy.max_steps)
        }
        Refusals { too_many_parts: true, .. } => supply::too_many_parts(intent, question),
        Refusals { other: Some(error), .. } => intent.deny(error.to_string()),
        Refusals { .. } => supply::shortage(intent, question),
    })
}

struct Chooser<'a> {
    intent: &'a Intent,
    question: Question<'a>,
    classes: &'a Classes,
    view: &'a ClusterView,
    policy: &'a Policy,
}

impl Chooser<'_> {
    /// Tries levels from near to far. Pairs that only leave devices unused are the last resort.
    fn required(&self, refusals: &mut Refusals) -> Option<Chosen> {
        let asked = self.intent.level.map(Nearness::Level);
        let levels = Nearness::levels(self.question.machines);
        let asked_or_all = |level: &Nearness| asked.is_none_or(|it| it == *level);
        let levels = levels.filter(asked_or_all);
        let strand = join::pairs_strand(self.question);
        let (last, first): (Vec<_>, Vec<_>) =
            levels.partition(|level| strand && *level == Nearness::Partner);
        self.nearest(&first, refusals).or_else(|| self.nearest(&last, refusals))
    }

    /// The best candidate of these levels; a farther level is used only if it serves more nodes.
    fn nearest(&self, levels: &[Nearness], refusals: &mut Refusals) -> Option<Chosen> {
        let mut best: Option<(usize, Chosen)> = None;
        for level in levels.iter().copied() {
            let mut candidates = join::required(self.question, level);
            let together: Vec<_> = candidates.iter().filter_map(|it| self.together(it)).collect();
            candidates.extend(together);
            let Some(found) = self.best(candidates, refusals) else { continue };
            let nodes = found.candidate.nodes(self.question.machines);
            if best.as_ref().is_none_or(|(most, _)| nodes > *most) {
                best = Some((nodes, found));
            }
        }
        best.map(|(_, chosen)| chosen)
    }

    /// The candidate with merged blocks, if near means in the same cell.
    fn together(&self, candidate: &Candidate) -> Option<Candidate> {
        let Nearness::Level(_) = candidate.nearness else { return None };
        if candidate.form.apart != Apart::Kind {
            return None;
        }
        let machines = self.question.machines.iter().zip(&candidate.serves);
        let serving = machines.filter(|(_, serves)| **serves);
        let cells: Vec<_> = serving.map(|(machine, _)| candidate.nearness.cells(machine)).collect();
        let demand = candidate.demand.together(&self.intent.shares, &cells)?;
        Some(Candidate { demand, ..candidate.clone() })
    }

    /// The first candidate that is cheap enough; those with the best ladder come first. Merged
    /// blocks come last, since they allow only the weakest level.
    fn preferred(&self, refusals: &mut Refusals) -> Option<Chosen> {
        let asked = self.intent.level.map(Nearness::Level);
        let candidates = join::preferred(self.question, asked);
        let weakest = Nearness::weakest(self.question.machines);
        let weakest_only = candidates.iter().filter(|candidate| candidate.nearness == weakest);
        let together: Vec<_> = weakest_only.filter_map(|it| self.together(it)).collect();
        let mut candidates = candidates.into_iter().chain(together);
        candidates.find_map(|candidate| self.best(vec![candidate], refusals))
    }

    /// Claims for named cells of the nearest level, and for preferred alignment also one for any
    /// devices. A farther level is used only if it serves more nodes.
    fn pinned(&self, refusals: &mut Refusals) -> Vec<Chosen> {
        let asked = self.intent.level.map(Nearness::Level);
        let strand = join::pairs_strand(self.question);
        let is_required = self.intent.policy == AlignmentPolicy::Required;
        let levels = Nearness::levels(self.question.machines).filter(|level| match asked {
            Some(asked) if is_required => *level == asked,
            Some(asked) => *level >= asked,
            None => !(strand && *level == Nearness::Partner),
        });
        let mut best: (usize, Vec<Chosen>) = (0, Vec::new());
        for level in levels {
            let candidates = join::pinned(self.question, level).into_iter();
            let found: Vec<_> = candidates.filter_map(|it| self.cheapest(it, refusals)).collect();
            let nodes = found.iter().map(|it| it.candidate.nodes(self.question.machines)).max();
            if nodes.is_some_and(|nodes| nodes > best.0) {
                best = (nodes.unwrap_or_default(), found);
            }
        }
        let mut found = best.1;
        if !is_required && let Some(first) = found.first() {
            let any = join::unaligned(self.question, first.candidate.nearness);
            found.extend(self.cheapest(any, refusals));
        }
        found
    }

    /// The candidate with most nodes, then fewest steps, then the first one.
    fn best(&self, candidates: Vec<Candidate>, refusals: &mut Refusals) -> Option<Chosen> {
        let machines = self.question.machines;
        let mut measured = Vec::new();
        for candidate in candidates.into_iter().filter(|one| one.nodes(machines) > 0) {
            measured.extend(self.cheapest(candidate, refusals));
        }
        // Among equal ones, `min_by_key` returns the first.
        measured
            .into_iter()
            .min_by_key(|chosen: &Chosen| (Reverse(chosen.candidate.nodes(machines)), chosen.steps))
    }

    /// The candidate in the order of requests that takes the fewest steps.
    fn cheapest(&self, candidate: Candidate, refusals: &mut Refusals) -> Option<Chosen> {
        let mut best: Option<(u64, ClaimParts)> = None;
        for order in Order::all(&candidate.demand, &candidate.form) {
            let written = self.write(&candidate, order);
            if written.requests.len() > CLAIM_PARTS_MAX
                || written.constraints.len() > CLAIM_PARTS_MAX
            {
                refusals.too_many_parts = true;
                continue;
            }
            if sharing::could_repeat(self.intent, &written, self.view.settings()) {
                let why = "before Kubernetes 1.37 it could give one NIC twice";
                refusals.other = Some(CostError::Refused(why.to_owned()));
                continue;
            }
            match self.cost(&candidate, &written) {
                Ok(steps) if best.as_ref().is_none_or(|(least, _)| steps < *least) => {
                    best = Some((steps, written));
                }
                Ok(_) => {}
                Err(CostError::OverBudget(_)) => refusals.over_budget = true,
                Err(error) => refusals.other = Some(error),
            }
        }
        let (steps, written) = best?;
        let claim = claim(&written);
        Some(Chosen { candidate, claim, nic_requests: written.nic_requests, steps })
    }

    fn write(&self, candidate: &Candidate, order: Order) -> ClaimParts {
        let source = Source {
            driver: self.question.driver,
            classes: self.classes,
            nic_class: self.question.nic_class,
            without_interface: self.intent.host_network,
            rail: self.question.rail,
            capacity: self.question.capacity,
            last_resort: if self.intent.are_pairs_grouped() {
                alternative::ANY_PAIRS
            } else {
                alternative::ANY
            },
        };
        let mut written = candidate.form.write(&candidate.demand, source, order);
        for attribute in FABRIC_ATTRIBUTES {
            if self.on_every_nic(candidate, attribute) {
                let nics = written.nic_requests.clone();
                written.constraints.push(match_attribute(nics, attribute));
            }
        }
        cpus::add(self.intent, &candidate.demand, &mut written);
        nvmes::add(self.intent, &candidate.demand, &mut written);
        sharing::keep_apart(self.intent, &candidate.demand, &mut written);
        self.question.nic_class.keep_equal(&mut written, candidate.demand.all_nics());
        written
    }

    /// Returns true if every NIC that could serve has the attribute. Otherwise a constraint on it
    /// must not be added, since a device without the attribute can never satisfy it.
    fn on_every_nic(&self, candidate: &Candidate, attribute: &str) -> bool {
        let machines = self.question.machines.iter().zip(&candidate.serves);
        machines.filter(|(_, serves)| **serves).all(|(machine, _)| machine.nics_have(attribute))
    }

    fn cost(&self, candidate: &Candidate, written: &ClaimParts) -> Result<u64, CostError> {
        cost::worst(
            self.view,
            self.question.machines,
            &candidate.demand,
            candidate.nearness,
            &claim(written),
            self.policy.max_steps,
        )
    }
}

pub(super) fn claim(written: &ClaimParts) -> ResourceClaimSpec {
    let ClaimParts { requests, constraints, .. } = written;
    ResourceClaimSpec {
        devices: Some(DeviceClaim {
            requests: Some(requests.clone()),
            constraints: (!constraints.is_empty()).then(|| constraints.clone()),
            config: None,
        }),
    }
}

#[cfg(test)]
mod tests;
