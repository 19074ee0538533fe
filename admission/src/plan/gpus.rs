//! Claims for GPUs and NICs.

use super::among::Among;
use super::choice::{self, Choice, Chooser, Chosen};
use super::{
    Outline, Pin, Plan, PlannedMachine, Policy, Selected, Written, nic_checks, selection,
    some_nodes, with_config,
};
use crate::demand::Demand;
use crate::denial::Denial;
use crate::gpu_sharing::SharedGpus;
use crate::intent::{AlignmentPolicy, Intent};
use crate::join::Question;
use crate::nearness::Nearness;
use crate::nic_class::NicClass;
use crate::wishes::{Granted, NicShare};
use crate::{supply, template};
use cluster_model::machines::{Machine, Selection, machines};
use cluster_model::view::ClusterView;
use dra_allocator::Settings;
use std::slice;

/// A plan for the present machines, as far as remembered ones can be added.
pub(super) struct Prepared<'a> {
    selected: Selected,
    /// The present machines as found.
    present: Vec<Machine<'a>>,
    remembered: Vec<Machine<'a>>,
    /// The present machines that can serve the pod.
    fleet: Fleet<'a>,
    choice: Choice,
}

/// The machines that can serve a pod, and what its claim says because of them.
struct Fleet<'a> {
    demand: Demand,
    counts: Option<Demand>,
    machines: Vec<Machine<'a>>,
    nic_class: NicClass,
    granted: Granted,
    shared_gpus: Option<SharedGpus>,
}

/// The plan for these nodes, and what is needed to add remembered machines, if there are any.
pub(super) fn plan<'a>(
    intent: &Intent,
    among: &Among<'a>,
    policy: &Policy,
) -> Result<(Plan, Option<Prepared<'a>>), Denial> {
    let view = among.view;
    let selected = selection::select(intent, among, policy)?;
    nic_checks::check_driver(intent, selected.nic_driver)?;
    let found = find(intent, among, &selected)?;
    let (present, remembered) = among.split(found);
    if present.is_empty() {
        // Denied for the remembered ones too, or planned for them alone.
        return Err(intent.deny("no present node can serve the pod"));
    }
    let kept = if remembered.is_empty() { Vec::new() } else { present.clone() };
    let fleet = Fleet::new(intent, &selected, present, view)?;
    let question = fleet.question(&selected);
    let choice = choice::choose(intent, question, &selected.classes(), view, policy)?;
    if remembered.is_empty() {
        return Ok((complete(intent, question, choice, view.settings()), None));
    }
    let plan = complete(intent, question, choice.clone(), view.settings());
    let prepared = Prepared { selected, present: kept, remembered, fleet, choice };
    Ok((plan, Some(prepared)))
}

/// The machines with the devices that the pod asks for.
fn find<'a>(
    intent: &Intent,
    among: &Among<'a>,
    selected: &Selected,
) -> Result<Vec<Machine<'a>>, Denial> {
    let (view, placement) = (among.view, among.placement());
    let filter = |node: &str| placement.allows(view, node);
    let gpus = (selected.driver, Some(&*selected.gpu_class));
    let nics = (selected.nic_driver, &*selected.nic_class);
    let selection = selection::devices(intent, gpus, nics, view);
    let found = machines(view, &selection, filter);
    if !found.is_empty() {
        return Ok(found);
    }
    let whole = Selection { only_shared: false, ..selection };
    if selection.only_shared && !machines(view, &whole, filter).is_empty() {
        return Err(NicShare::deny_all());
    }
    Err(supply::nothing(intent, view, &selection, filter))
}

impl<'a> Fleet<'a> {
    fn new(
        intent: &Intent,
        selected: &Selected,
        mut machines: Vec<Machine<'a>>,
        view: &ClusterView,
    ) -> Result<Self, Denial> {
        let demand = Demand::of(intent);
        // Plain counts cannot tie CPUs or NVMe devices to certain NICs.
        let by_counts = intent.wishes.on_numa_node().is_none() || demand.blocks == 1;
        let counts = demand.as_counts(&intent.shares).filter(|_| by_counts);
        nic_checks::keep_distinct(intent, selected.nic_driver, &mut machines)?;
        intent.wishes.keep_near(&demand, view, &mut machines)?;
        let nic_class = NicClass::new(selected.nic_driver, intent.nic_role, &machines);
        let asked = (intent.policy, intent.level);
        let granted =
            intent.wishes.keep_granting(&demand, asked, view.settings(), &mut machines)?;
        let shared_gpus = SharedGpus::new(selected.driver, view.settings(), &machines);
        Ok(Self { demand, counts, machines, nic_class, granted, shared_gpus })
    }

    fn question<'q>(&'q self, selected: &Selected) -> Question<'q>
    where
        'a: 'q,
    {
        Question {
            demand: &self.demand,
            counts: self.counts.as_ref(),
            driver: selected.driver,
            machines: &self.machines,
            rails: &self.granted.rails,
            nic_class: &self.nic_class,
            capacity: self.granted.capacity.as_ref(),
            shared_gpus: self.shared_gpus.as_ref(),
        }
    }

    /// Returns true if a claim says the same about the machines of another fleet because of these,
    /// which include them.
    fn agrees_with(&self, fewer: &Self) -> bool {
        self.nic_class == fewer.nic_class
            && self.granted == fewer.granted
            && SharedGpus::is_same(self.shared_gpus.as_ref(), fewer.shared_gpus.as_ref())
            && self.machines.len() >= fewer.machines.len()
            && self.machines.iter().zip(&fewer.machines).all(|(machine, known)| {
                machine.nodes == known.nodes
                    && machine.devices.gpus.keys().eq(known.devices.gpus.keys())
                    && machine.devices.nics.keys().eq(known.devices.nics.keys())
            })
    }
}

impl<'a> Prepared<'a> {
    /// The fleet with all remembered machines, or with those that each agree with the present ones.
    fn with_remembered(&self, intent: &Intent, view: &ClusterView) -> Option<Fleet<'a>> {
        self.with(&self.remembered, intent, view).or_else(|| {
            let mut agreeing = self.remembered.clone();
            agreeing.retain(|one| self.with(slice::from_ref(one), intent, view).is_some());
            self.with(&agreeing, intent, view)
        })
    }

    /// The fleet with these machines too; `None` if the claim would say something else.
    fn with(
        &self,
        added: &[Machine<'a>],
        intent: &Intent,
        view: &ClusterView,
    ) -> Option<Fleet<'a>> {
        let machines = self.present.iter().chain(added).cloned().collect();
        let all = Fleet::new(intent, &self.selected, machines, view).ok()?;
        all.agrees_with(&self.fleet).then_some(all)
    }
}

/// The plan with remembered machines, as far as present ones lose nothing.
pub(super) fn with_remembered(
    plan: Plan,
    intent: &Intent,
    prepared: Prepared<'_>,
    all: &Among<'_>,
    policy: &Policy,
) -> Plan {
    let view = all.view;
    let Some(all) = prepared.with_remembered(intent, view) else { return plan };
    let Prepared { selected, choice, .. } = prepared;
    let question = all.question(&selected);
    let classes = selected.classes();
    let chooser = Chooser { intent, question, classes: &classes, view, policy };
    let Choice { best, pins, unfit } = choice;
    let choice = if pins.is_empty() {
        Choice { best: chooser.extended(&best), pins, unfit }
    } else {
        let pins = pins.iter().map(|pin| chooser.padded(pin)).collect();
        Choice { best: chooser.padded(&best), pins, unfit }
    };
    complete(intent, question, choice, view.settings())
}

fn complete(intent: &Intent, question: Question<'_>, choice: Choice, settings: &Settings) -> Plan {
    let machines = question.machines;
    let planned = (0..machines.len()).map(|index| planned(intent, question, &choice, index));
    let planned: Vec<PlannedMachine> = planned.collect();
    let Choice { best, pins, unfit: _ } = choice;
    let Chosen { candidate, claim, nic_requests, steps, shares_ports, .. } = best;
    let shared_gpus =
        question.shared_gpus.and_then(|it| it.warning(&candidate.demand, &planned, settings));
    let pins = pins.into_iter().map(|pin| complete_pin(intent, pin)).collect();
    let outline = Outline {
        driver: question.driver,
        nic_driver: question.nic_class.driver(),
        join: candidate.join,
        nearness: candidate.nearness,
        why: candidate.why,
        far_because: candidate.far_because,
        machines: planned,
    };
    let grants = candidate.demand.grants(&intent.shares);
    Plan {
        shares_ports,
        shared_gpus,
        place: candidate.form.place(),
        node_label: candidate.form.node_label(),
        rails: question.rails.to_vec(),
        pins,
        ..Plan::new(intent, outline, Written { claim, nic_requests, grants, steps })
    }
}

fn complete_pin(intent: &Intent, chosen: Chosen) -> Pin {
    let Chosen { candidate, claim, nic_requests, steps, .. } = chosen;
    let claim = with_config(claim, intent, &nic_requests);
    let template = template::build(&claim).metadata.name.unwrap_or_default();
    let node_label = candidate.form.node_label();
    Pin { place: candidate.form.place(), node_label, claim, template, steps, nic_requests }
}

fn planned(
    intent: &Intent,
    question: Question<'_>,
    choice: &Choice,
    index: usize,
) -> PlannedMachine {
    let machine = &question.machines[index];
    let all = || std::iter::once(&choice.best).chain(&choice.pins).map(|it| &it.candidate);
    let level = match (intent.policy, intent.level) {
        (AlignmentPolicy::Required, Some(level)) => Nearness::Level(level),
        _ => Nearness::weakest(slice::from_ref(machine)),
    };
    let is_unfit = choice.unfit.contains(machine.devices.node);
    PlannedMachine {
        nodes: some_nodes(machine),
        present: machine.live_nodes(),
        is_served: all().any(|candidate| candidate.serves[index]),
        could: !is_unfit && question.demand.fits(&level.cells(machine)),
        nearness: all().filter_map(|candidate| candidate.levels[index]).min(),
        is_unfit,
    }
}
