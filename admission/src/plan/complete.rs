//! What a plan says of the claim that was chosen.

use super::choice::{Choice, Chooser, Chosen};
use super::planned::some_nodes;
use super::{Pin, Plan, PlannedMachine, late, nics_only, plugin};
use crate::claim::ClaimParts;
use crate::demand::Grant;
use crate::fleet::{Fleet, GpuSource};
use crate::intent::{AlignmentPolicy, Intent};
use crate::join::Candidate;
use crate::join::form::Order;
use crate::nearness::Nearness;
use crate::promise::Promise;
use crate::template;
use cluster_model::machines::Machine;
use dra_allocator::Settings;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;

/// The plan with the choice.
pub(super) fn plan(fleet: Fleet<'_, '_>, choice: Choice<'_>, settings: &Settings) -> Plan {
    let Fleet { intent, terms, .. } = fleet;
    let machines = fleet.machines.iter().map(|machine| planned(fleet, &choice, machine));
    let machines: Vec<PlannedMachine> = machines.collect();
    let Choice { best, pins, unfit: _ } = choice;
    let shared_gpus = terms
        .shared_gpus
        .as_ref()
        .and_then(|it| it.warning(&best.candidate.demand, &machines, settings));
    let serving = machines.iter().filter(|machine| machine.is_served);
    let nodes = (
        serving.map(|machine| machine.present).sum(),
        machines.iter().map(|machine| machine.present).sum(),
    );
    let Chosen { candidate, claim, nic_requests, steps, shares_ports, .. } = best;
    let resource = intent.resource.as_ref().filter(|_| terms.gpu_source.is_plugin());
    Plan {
        intent: intent.clone(),
        driver: terms.driver,
        plugin: resource.map(|resource| resource.name.clone()),
        nic_driver: terms.nic_class.driver(),
        join: candidate.join,
        nearness: candidate.nearness,
        claim: with_config(claim, intent, &nic_requests),
        grants: grants(fleet, &candidate),
        nodes,
        machines,
        far_because: candidate.far_because,
        steps,
        shares_ports,
        shared_gpus,
        nic_requests,
        place: candidate.form.place(),
        node_label: candidate.form.node_label(),
        rails: terms.granted.rails.clone(),
        pins: pins.into_iter().map(|pin| complete_pin(intent, pin)).collect(),
        why: candidate.why,
    }
}

/// The plan with a claim that no machine was tried with.
pub(super) fn untried<'m>(chooser: Chooser<'_, 'm>, candidate: Candidate<'m>) -> Plan {
    let order = Order::NicThenGpu;
    let (beside, written) = chooser.write(&candidate, order);
    let claim = written.claim();
    let ClaimParts { nic_requests, .. } = written;
    let shares_ports = None;
    let near_paths = BTreeMap::new();
    let best = Chosen {
        candidate,
        claim,
        nic_requests,
        steps: 0,
        near_paths,
        shares_ports,
        order,
        beside,
    };
    let choice = Choice { best, pins: Vec::new(), unfit: BTreeSet::new() };
    plan(chooser.fleet, choice, chooser.view.settings())
}

/// The part of the claim that each container may use.
fn grants(fleet: Fleet<'_, '_>, candidate: &Candidate<'_>) -> Vec<Grant> {
    let shares = &fleet.intent.shares;
    if !fleet.terms.gpu_source.is_plugin() {
        return candidate.demand.grants(shares);
    }
    let containers = shares.iter().map(|share| share.container.clone());
    containers.map(|container| Grant { container, requests: None }).collect()
}

fn complete_pin(intent: &Intent, chosen: Chosen<'_>) -> Pin {
    let Chosen { candidate, claim, nic_requests, steps, .. } = chosen;
    let claim = with_config(claim, intent, &nic_requests);
    let template = template::build(&claim).metadata.name.unwrap_or_default();
    let node_label = candidate.form.node_label();
    Pin { place: candidate.form.place(), node_label, claim, template, steps, nic_requests }
}

fn with_config(
    mut claim: ResourceClaimSpec,
    intent: &Intent,
    nic_requests: &[String],
) -> ResourceClaimSpec {
    if let Some(devices) = &mut claim.devices {
        let config = intent.wishes.nic_config.as_ref();
        let config = config.and_then(|config| config.claim_config(nic_requests));
        devices.config = config.map(|config| vec![config]);
    }
    claim
}

fn planned(fleet: Fleet<'_, '_>, choice: &Choice<'_>, machine: &Machine<'_>) -> PlannedMachine {
    let all = std::iter::once(&choice.best).chain(&choice.pins);
    let promises = all.map(|chosen| chosen.candidate.promises.on(machine));
    let is_unfit = choice.unfit.contains(machine.devices.node);
    PlannedMachine {
        nodes: some_nodes(machine),
        present: machine.live_nodes(),
        is_served: promises.clone().any(Promise::is_served),
        could: !is_unfit && has_near(fleet, machine),
        nearness: promises.filter_map(Promise::nearness).min(),
        is_unfit,
    }
}

/// Whether the graph of the machine has enough devices that are as near as the pod requires, or, for
/// preferred alignment, as near as a NUMA node or socket.
fn has_near(fleet: Fleet<'_, '_>, machine: &Machine<'_>) -> bool {
    let intent = fleet.intent;
    match fleet.terms.gpu_source {
        GpuSource::Claim => {
            let level = match (intent.policy, intent.level) {
                (AlignmentPolicy::Required, Some(level)) => Nearness::Level(level),
                _ => Nearness::weakest(slice::from_ref(machine)),
            };
            fleet.demand().fits(&level.cells(machine))
        }
        GpuSource::Nowhere(common) => nics_only::most_near(machine, common) >= intent.nics,
        GpuSource::Plugin => plugin::has_near(fleet, machine),
        GpuSource::PluginLate(within) => late::has_near(fleet, within, machine),
    }
}
