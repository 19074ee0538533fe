//! A claim for machines that are not known yet, if the operator prefers that pods wait instead of
//! being denied. GPUs and NICs are tied by the standard NUMA attribute, which drivers publish since
//! Kubernetes 1.37.

use super::{Plan, Policy, choice, selection, with_config};
use crate::demand::Demand;
use crate::denial::Denial;
use crate::intent::Intent;
use crate::join::form::{Apart, Form, Order, Source, Way};
use crate::nearness::Nearness;
use crate::nic_class::NicClass;
use crate::{cpus, nvmes, rail, sharing};
use cluster_model::names::{alternative, attribute};
use cluster_model::view::ClusterView;
use topology_graph::Level;

/// Returns true if no machine is known, neither present nor remembered.
pub(super) fn is_all_unknown(view: &ClusterView) -> bool {
    !view.has_graphs()
}

pub(super) fn plan(intent: &Intent, view: &ClusterView, policy: &Policy) -> Result<Plan, Denial> {
    if intent.same_rail {
        return Err(rail::deny("no machine is known yet, so its rails are unknown"));
    }
    let selected = selection::unseen(intent, view, policy)?;
    let demand = Demand::of(intent);
    let numa = Way::Attribute { join: "numa", name: attribute::NUMA_NODE, only: None };
    let form = Form { ways: vec![numa], only: None, apart: Apart::Kind };
    let capacity = sharing::unseen(intent);
    let source = Source {
        driver: selected.driver,
        classes: &selected.classes(),
        nic_class: &NicClass::unseen(intent.nic_role),
        without_interface: intent.host_network,
        rail: None,
        capacity: capacity.as_ref(),
        last_resort: alternative::ANY,
    };
    let mut written = form.write(&demand, source, Order::NicThenGpu);
    cpus::add(intent, &demand, &mut written);
    nvmes::add(intent, &demand, &mut written);
    sharing::keep_apart(intent, &demand, &mut written);
    Ok(Plan {
        driver: selected.driver,
        join: "numa",
        nearness: Nearness::Level(Level::Numa),
        policy: intent.policy,
        why: "no machine is known yet, and this is what drivers have in common".to_owned(),
        claim: with_config(choice::claim(&written), intent, &written.nic_requests),
        grants: demand.grants(&intent.shares),
        nodes: (0, 0),
        machines: Vec::new(),
        steps: 0,
        nic_requests: written.nic_requests,
        place: None,
        rail: None,
        cpus: intent.cpus,
        nvmes: intent.nvmes,
        share: intent.share.clone(),
        pins: Vec::new(),
        devices: (intent.gpus, intent.nics),
        pairing: intent.pairing,
    })
}
