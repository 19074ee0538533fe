//! Tries claims on all machines, and chooses one: the one that most nodes can serve, each at the nearest
//! level that it can guarantee itself, in the cheapest form.

use super::{late, nics_only, plugin};
use crate::claim::{CLAIM_PARTS_MAX, ClaimParts, match_attribute};
use crate::cost::{self, CostError, Trial};
use crate::denial::Denial;
use crate::fleet::{Fleet, GpuSource};
use crate::intent::Intent;
use crate::join::form::Order;
use crate::join::{Candidate, UNALIGNED};
use crate::plan::Policy;
use crate::ports::PortsApart;
use crate::promise::Promise;
use crate::supply::{self, Unfit};
use crate::trials::{Empty, Trials};
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Attributes that are equal on NICs of one fabric.
pub(crate) const FABRIC_ATTRIBUTES: &[&str] = &[attribute::AZURE_PLACEMENT_GROUP];

/// The choice.
#[derive(Clone, Debug)]
pub(super) struct Choice<'m> {
    /// The best candidate.
    pub(super) best: Chosen<'m>,
    /// If it is pinned to cells: all equally good candidates. Which one a pod gets is chosen later.
    pub(super) pins: Vec<Chosen<'m>>,
    /// The first nodes of the machines on which no claim fits that their graph allows.
    pub(super) unfit: BTreeSet<&'m str>,
}

/// A candidate, written and measured.
#[derive(Clone, Debug)]
pub(super) struct Chosen<'m> {
    pub(super) candidate: Candidate<'m>,
    pub(super) claim: ResourceClaimSpec,
    pub(super) nic_requests: Vec<String>,
    pub(super) steps: u64,
    /// How many of its paths are within a NUMA node on each machine that it fits on now while nothing is
    /// in use, by the machine's first node.
    pub(super) near_paths: BTreeMap<&'m str, u32>,
    /// Why the pod can get several functions of one port, if it can.
    pub(super) shares_ports: Option<&'static str>,
    pub(super) order: Order,
    pub(super) beside: Beside,
}

impl Chosen<'_> {
    /// How many of its paths are within a NUMA node on a machine, if it fits on it.
    pub(super) fn near_paths_on(&self, machine: &Machine<'_>) -> Option<u32> {
        self.near_paths.get(machine.devices.node).copied()
    }
}

/// What a claim says about all its NICs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Beside {
    /// The attributes on which they are equal, as they are on one fabric.
    pub(super) fabric: Vec<&'static str>,
    /// How the functions of a port are kept apart.
    pub(super) ports: PortsApart,
}

/// Why no candidate was chosen.
#[derive(Debug, Default)]
pub(super) struct Refusals<'m> {
    over_budget: bool,
    too_many_parts: bool,
    other: Option<CostError>,
    /// The first claim that fits on none of the machines that it is for.
    unfit: Option<Unfit>,
    /// Whether some claim that is for a machine fits there, by the machine's first node.
    fits: BTreeMap<&'m str, bool>,
}

impl<'m> Refusals<'m> {
    /// Records on which of the machines that it is for a claim fits.
    fn record(&mut self, candidate: &Candidate<'_>, machines: &[Machine<'m>], trial: &Trial<'_>) {
        for machine in machines.iter().filter(|it| candidate.promises.serve(it)) {
            let known = self.fits.entry(machine.devices.node).or_default();
            *known |= trial.on(machine) > Empty::Nothing;
        }
    }

    /// The choice, with the machines on which no claim fits.
    fn choice(self, best: Chosen<'m>, pins: Vec<Chosen<'m>>) -> Choice<'m> {
        let unfit = self.fits.into_iter().filter(|(_, fits)| !fits).map(|(node, _)| node);
        Choice { best, pins, unfit: unfit.collect() }
    }

    /// Why there is no claim for the intent, which is what the user asks for.
    fn denial(self, intent: &Intent, chooser: Chooser<'_, '_>) -> Denial {
        let Chooser { view, policy, .. } = chooser;
        let fleet = Fleet { intent, ..chooser.fleet };
        match self {
            Self { over_budget: true, .. } => supply::too_costly(fleet, policy.max_steps),
            Self { too_many_parts: true, .. } => supply::too_many_parts(fleet),
            Self { other: Some(error), .. } => intent.deny(error.to_string()),
            Self { unfit: Some(unfit), .. } => supply::unfit(intent, view, &unfit),
            Self { .. } => match fleet.terms.gpu_source {
                GpuSource::Nowhere(common) => nics_only::shortage(fleet, common),
                GpuSource::Claim | GpuSource::Plugin | GpuSource::PluginLate(_) => {
                    supply::shortage(fleet)
                }
            },
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Chooser<'q, 'm> {
    pub(super) fleet: Fleet<'q, 'm>,
    pub(super) view: &'q ClusterView,
    pub(super) policy: &'q Policy,
    /// What claims got on machines before.
    pub(super) trials: &'q Trials,
}

impl<'m> Chooser<'_, 'm> {
    /// The best claim, or the reason why there is none for the intent, which is what the user asks for.
    pub(super) fn choose(self, intent: &Intent) -> Result<Choice<'m>, Denial> {
        let mut refusals = Refusals::default();
        let (best, pins) = match self.fleet.terms.gpu_source {
            GpuSource::Claim => self.with_gpus(&mut refusals),
            GpuSource::Nowhere(common) => {
                (self.best(vec![nics_only::propose(self.fleet, common)], &mut refusals), Vec::new())
            }
            GpuSource::Plugin => {
                let by_count = self.best(vec![plugin::propose(self.fleet, false)], &mut refusals);
                let best = by_count
                    .or_else(|| self.best(vec![plugin::propose(self.fleet, true)], &mut refusals));
                (best, Vec::new())
            }
            GpuSource::PluginLate(within) => {
                let by_count = self.best(vec![late::propose(self.fleet, within)], &mut refusals);
                let best = by_count.or_else(|| {
                    let by_number = late::propose_by_number(self.fleet, within);
                    self.best(by_number.into_iter().collect(), &mut refusals)
                });
                (best, Vec::new())
            }
        };
        match best {
            Some(best) => Ok(refusals.choice(best, pins)),
            None => Err(refusals.denial(intent, self)),
        }
    }

    /// The candidate with most nodes, then one that needs no list of shapes, then fewest steps, then
    /// the first one.
    pub(super) fn best(
        &self,
        candidates: Vec<Candidate<'m>>,
        refusals: &mut Refusals<'m>,
    ) -> Option<Chosen<'m>> {
        let machines = self.fleet.machines;
        let mut measured = Vec::new();
        for candidate in candidates.into_iter().filter(|one| one.nodes(machines) > (0, 0)) {
            measured.extend(self.cheapest(&candidate, refusals));
        }
        // Among equal ones, `min_by_key` returns the first.
        measured.into_iter().min_by_key(|chosen: &Chosen<'_>| {
            let candidate = &chosen.candidate;
            (Reverse(candidate.nodes(machines)), candidate.lists_shapes(), chosen.steps)
        })
    }

    /// The candidate in the order of requests that takes the fewest steps.
    pub(super) fn cheapest(
        &self,
        candidate: &Candidate<'m>,
        refusals: &mut Refusals<'m>,
    ) -> Option<Chosen<'m>> {
        let mut best: Option<Chosen<'m>> = None;
        let gpu_source = self.fleet.terms.gpu_source;
        for order in Order::all(&candidate.demand, &candidate.form, gpu_source) {
            let Some(found) = self.in_order(candidate, order, refusals) else { continue };
            if best.as_ref().is_none_or(|best| found.steps < best.steps) {
                best = Some(found);
            }
        }
        best
    }

    /// The candidate with its requests in this order.
    pub(super) fn in_order(
        &self,
        candidate: &Candidate<'m>,
        order: Order,
        refusals: &mut Refusals<'m>,
    ) -> Option<Chosen<'m>> {
        let (beside, written) = self.write(candidate, order);
        if written.requests.len() > CLAIM_PARTS_MAX || written.constraints.len() > CLAIM_PARTS_MAX {
            refusals.too_many_parts = true;
            return None;
        }
        let settings = self.view.settings();
        if self.fleet.intent.wishes.could_repeat(&written, settings) {
            let why = "before Kubernetes 1.37 it could give one NIC twice";
            refusals.other = Some(CostError::Refused(why.to_owned()));
            return None;
        }
        let claim = written.claim();
        let trial = match self.trial(candidate, &claim) {
            Ok(trial) => trial,
            Err(CostError::OverBudget(_)) => {
                refusals.over_budget = true;
                return None;
            }
            Err(error) => {
                refusals.other = Some(error);
                return None;
            }
        };
        refusals.record(candidate, self.fleet.machines, &trial);
        let Some(fitting) = self.only_where(candidate, &trial) else {
            if refusals.unfit.is_none() {
                refusals.unfit = Unfit::new(self.fleet.machines, candidate, claim);
            }
            return None;
        };
        let is_far = candidate.promises.are_near() && !fitting.promises.are_near();
        let ClaimParts { nic_requests, .. } = &written;
        let driver = self.fleet.terms.nic_class.driver();
        let chosen = Chosen {
            candidate: fitting,
            claim,
            steps: trial.steps,
            near_paths: trial.near_paths,
            shares_ports: beside.ports.why_not(driver, &written, settings),
            nic_requests: nic_requests.clone(),
            order,
            beside,
        };
        match self.fleet.terms.gpu_source {
            // Another claim may give near devices, or says better why it does not.
            GpuSource::Claim if is_far => None,
            _ if is_far => Some(Chosen {
                candidate: Candidate { join: UNALIGNED, ..chosen.candidate },
                ..chosen
            }),
            _ => Some(chosen),
        }
    }

    /// The candidate without the machines on which the claim gets nothing while nothing is in use, and
    /// without the levels of those on which it gets any devices only. `None` if no machine is left.
    fn only_where(&self, candidate: &Candidate<'m>, trial: &Trial<'_>) -> Option<Candidate<'m>> {
        let mut fitting = candidate.clone();
        for machine in self.fleet.machines {
            let promise = candidate.promises.on(machine);
            let kept = match trial.on(machine) {
                Empty::Nothing => Promise::Nothing,
                Empty::LastResort if promise.is_served() => Promise::Any,
                Empty::LastResort | Empty::All => promise,
            };
            fitting.promises.set(machine, kept);
        }
        fitting.promises.serve_any().then_some(fitting)
    }

    /// The candidate as a claim, and what this says about all its NICs.
    pub(super) fn write(&self, candidate: &Candidate<'m>, order: Order) -> (Beside, ClaimParts) {
        let Fleet { intent, terms, .. } = self.fleet;
        let mut written = candidate.form.write(&candidate.demand, self.fleet, order);
        if let Some(shared) = &terms.shared_gpus {
            shared.keep_apart(&candidate.demand, &mut written);
        }
        let beside = self.beside(candidate);
        for attribute in &beside.fabric {
            let nics = written.nic_requests.clone();
            written.constraints.push(match_attribute(nics, attribute));
        }
        intent.wishes.add_to(&candidate.demand, &mut written);
        beside.ports.constrain(&mut written);
        terms.nic_class.keep_equal(&mut written, candidate.demand.all_nics());
        (beside, written)
    }

    pub(super) fn beside(&self, candidate: &Candidate<'m>) -> Beside {
        let Fleet { terms, machines, .. } = self.fleet;
        let served = machines.iter().filter(|machine| candidate.promises.serve(machine));
        let served: Vec<&Machine<'_>> = served.collect();
        let has_fabric =
            matches!(terms.gpu_source, GpuSource::Claim | GpuSource::Plugin) && !served.is_empty();
        // A device without the attribute can never satisfy a constraint on it.
        let fabric = FABRIC_ATTRIBUTES
            .iter()
            .filter(|name| has_fabric && served.iter().all(|machine| machine.nics_have(name)));
        let ports = match terms.gpu_source {
            // The claim counts NICs and names none.
            GpuSource::PluginLate(_) => PortsApart::Unneeded,
            GpuSource::Claim | GpuSource::Nowhere(_) | GpuSource::Plugin => PortsApart::new(
                terms.nic_class.driver(),
                &candidate.demand,
                &served,
                self.view.settings(),
            ),
        };
        Beside { fabric: fabric.copied().collect(), ports }
    }

    pub(super) fn trial(
        &self,
        candidate: &Candidate<'m>,
        claim: &ResourceClaimSpec,
    ) -> Result<Trial<'m>, CostError> {
        let seen = (self.view, self.trials);
        cost::trial(seen, self.fleet, candidate, claim, self.policy.max_steps)
    }
}

#[cfg(test)]
mod tests;
