//! Counts how many pods with a claim fit, node by node.

use crate::answer::CapacityRoom;
use crate::nodes::{fabric, machine};
use crate::predicted::nodes;
use cluster_model::late_node::{LateDemand, LateNode};
use cluster_model::node_devices::{Role, published};
use cluster_model::predict::{STEPS_MAX, budget, hold};
use cluster_model::view::ClusterView;
use dra_allocator::{AllocatedState, Claim, Limits, Outcome, allocate, survey};
use std::collections::{BTreeMap, BTreeSet};

/// What admission makes for a pod.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) claim: Claim,
    /// What the pod demands of nodes that bind NICs late.
    pub(super) late: Option<LateDemand>,
}

/// The GPUs of device plugins, which no claim counts.
#[derive(Debug)]
pub(super) struct PluginGpus {
    /// The extended resource.
    pub(super) resource: &'static str,
    /// The units that pods have, by node.
    pub(super) used: BTreeMap<String, i64>,
}

impl PluginGpus {
    /// The most pods with this number of GPUs that fit on a node: now, and if nothing were in use.
    fn pods(&self, view: &ClusterView, node: &str, gpus: u32) -> [usize; 2] {
        let units = view.plugin_units(node, self.resource).unwrap_or_default();
        let units = i64::try_from(units).unwrap_or(i64::MAX);
        let free = units - self.used.get(node).copied().unwrap_or_default();
        [free, units].map(|units| {
            let pods = units.max(0).checked_div(gpus.into()).unwrap_or_default();
            usize::try_from(pods).unwrap_or(usize::MAX)
        })
    }

    /// The most GPUs of any node.
    pub(super) fn most(&self, view: &ClusterView) -> u32 {
        let units = nodes(view).filter_map(|node| view.plugin_units(node, self.resource));
        u32::try_from(units.max().unwrap_or_default()).unwrap_or(u32::MAX)
    }
}

/// Where pods with this claim fit; leaves out nodes that can never serve one. `plugin` limits them by
/// the GPUs that each pod gets from a device plugin. Nothing fits now on nodes that are closed.
pub(super) fn rooms(
    view: &ClusterView,
    Planned { claim, late }: &Planned,
    plugin: Option<(&PluginGpus, u32)>,
    closed: &BTreeSet<&str>,
) -> Vec<CapacityRoom> {
    let mut now = counts(view, claim, view.inventory().state());
    let mut empty = counts(view, claim, &AllocatedState::new());
    if let Some((plugin, gpus)) = plugin {
        for (node, most) in &mut empty {
            let [free, all] = plugin.pods(view, node, gpus);
            *most = all.min(*most);
            now.entry(node).and_modify(|now| *now = free.min(*now));
        }
    }
    let mut rooms: BTreeMap<(String, Option<String>), CapacityRoom> = BTreeMap::new();
    for (node, most) in empty.into_iter().filter(|(_, most)| *most > 0) {
        let (machine, fabric) = (machine(view, node), fabric(view, node));
        let room = rooms.entry((machine.clone(), fabric.clone())).or_insert_with(|| CapacityRoom {
            machine,
            fabric,
            nodes: 0,
            fit_now: 0,
            fit_empty: 0,
            surely_near: None,
        });
        room.nodes += 1;
        let now =
            if closed.contains(node) { 0 } else { now.get(node).copied().unwrap_or_default() };
        room.fit_now += now;
        let near = late.and_then(|demand| {
            LateNode::surely_near(view, node, view.inventory().state(), (demand, now))
        });
        if let Some(near) = near {
            *room.surely_near.get_or_insert_default() += near;
        }
        room.fit_empty += most;
    }
    rooms.into_values().collect()
}

/// The number of pods that fit on each node with these devices in use. Equal nodes are
/// computed once.
fn counts<'v>(
    view: &'v ClusterView,
    claim: &Claim,
    in_use: &AllocatedState,
) -> BTreeMap<&'v str, usize> {
    let (inventory, budget) = (view.inventory(), budget(view));
    let limits = Limits::within(STEPS_MAX, &budget);
    let claims = std::slice::from_ref(claim);
    let answers = survey(inventory, nodes(view), claims, in_use, view.settings(), limits);
    let mut counts = BTreeMap::new();
    for group in answers.groups() {
        let Some(first) = group.nodes.first() else { continue };
        let count = filled(view, first, claim, in_use);
        counts.extend(group.nodes.iter().map(|node| (*node, count)));
    }
    counts
}

/// Allocates one pod after the other, as the scheduler would.
fn filled(view: &ClusterView, node: &str, claim: &Claim, in_use: &AllocatedState) -> usize {
    let (inventory, budget) = (view.inventory(), budget(view));
    let limits = Limits::within(STEPS_MAX, &budget);
    let mut state = in_use.clone();
    let mut count = 0;
    loop {
        let claims = std::slice::from_ref(claim);
        let attempt = allocate(inventory, node, claims, &state, view.settings(), limits);
        let Outcome::Allocated(allocations) = attempt.outcome else { return count };
        let takes_nothing = allocations.iter().all(|it| it.results.is_empty());
        if takes_nothing {
            return count;
        }
        hold(&mut state, &allocations);
        count += 1;
    }
}

/// The most GPUs of DRA drivers of any node.
pub(super) fn most_gpus(view: &ClusterView) -> u32 {
    let most = nodes(view)
        .map(|node| published(view, node).filter(|(role, _)| *role == Role::Gpu).count())
        .max()
        .unwrap_or_default();
    u32::try_from(most).unwrap_or(u32::MAX)
}
