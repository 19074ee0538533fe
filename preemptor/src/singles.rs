//! Pods that are placed one by one.

use super::chosen::{placement, preemption};
use super::decision::{NoPreemption, Preemption};
use super::pods::WaitingPod;
use super::scene::{Lower, Scene};
use super::search::{Found, TRIES, Trial};
use super::units::Harm;
use cluster_model::predict::Prediction;
use cluster_model::room::{Ask, PodKey, Room};
use std::collections::BTreeSet;

/// The fewest nodes that are looked at, of those where pods can give way (`GetOffsetAndNumCandidates` in
/// `plugins/defaultpreemption`: `minCandidateNodesAbsolute`).
const NODES_MIN: usize = 100;
/// Likewise, the part of all nodes: one in ten (`minCandidateNodesPercentage`).
const NODES_PART: usize = 10;

/// Whether a pod fits on a node.
struct NodeTrial<'t, 'a> {
    scene: &'t Scene<'a>,
    room: &'t mut Room<'a>,
    ask: &'t Ask,
    node: &'a str,
}

impl Trial for NodeTrial<'_, '_> {
    fn set(&mut self, unit: usize, leaves: bool) {
        self.scene.units.set(self.room, unit, leaves);
    }

    fn suffices(&mut self) -> bool {
        matches!(self.room.why_not(self.node, self.ask), Ok(None))
    }
}

/// The preemption for a pod that fits on no node of this room.
pub(crate) fn decide<'a>(
    scene: &Scene<'a>,
    room: &Room<'a>,
    (key, pod): (&PodKey, &WaitingPod),
) -> Result<Preemption, NoPreemption> {
    let lower = scene.lower(pod.priority);
    let nodes = candidates(scene, room, &lower.free, &pod.ask)?;
    let mut trials: Vec<_> =
        nodes.into_iter().filter_map(|node| bound(scene, &lower, node)).collect();
    trials.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
    let most = NODES_MIN.max(scene.nodes().count() / NODES_PART);
    let best = least(scene, &mut room.clone(), &pod.ask, &trials[..trials.len().min(most)]);
    let Some((node, (_, victims))) = best else {
        return Err(scene.refusal(&lower, |units| fits_without(scene, room, units, &pod.ask)));
    };
    let room_of_node = scene.room_without(room, &victims);
    let fit = room_of_node.attempt(&pod.ask, [node]).map_err(NoPreemption::Unknown)?;
    let Some((_, Prediction::Fits(fit))) = fit.each().next() else {
        return Err(NoPreemption::DoesNotHelp);
    };
    let view = scene.cluster.view;
    let placed = placement(view, (key.into(), pod), (node, Vec::new()), fit.allocations);
    let placed = placed.ok_or(NoPreemption::ExtendedResource)?;
    Ok(preemption(&scene.units, &victims, (pod.priority, None), vec![placed]))
}

/// The nodes on which the pod may fit when units have left.
fn candidates<'a>(
    scene: &Scene<'a>,
    room: &Room<'a>,
    units: &BTreeSet<usize>,
    ask: &Ask,
) -> Result<Vec<&'a str>, NoPreemption> {
    // Where pods of other nodes leave, one with terms may fit on less nodes.
    if ask.has_terms() {
        let with_units: BTreeSet<&str> = scene.units.nodes().collect();
        return Ok(scene.nodes().filter(|node| with_units.contains(node)).collect());
    }
    let room = scene.room_without(room, units);
    let attempt = room.attempt(ask, scene.nodes()).map_err(NoPreemption::Unknown)?;
    Ok(attempt.fits())
}

/// The least harm that is possible on a node, the node, and its units in the order in which they are let
/// stay; `None` if nobody can leave there.
fn bound<'a>(
    scene: &Scene<'a>,
    lower: &Lower,
    node: &'a str,
) -> Option<(Harm, &'a str, Vec<usize>)> {
    let here = scene.units.on([node]);
    let here: BTreeSet<usize> = here.intersection(&lower.free).copied().collect();
    let least = here.iter().map(|unit| scene.units.harm(&[*unit])).min()?;
    Some((least, node, scene.reprieve_order(&here)))
}

/// The least harmful set of units, and its node.
fn least<'a>(
    scene: &Scene<'a>,
    room: &mut Room<'a>,
    ask: &Ask,
    trials: &[(Harm, &'a str, Vec<usize>)],
) -> Option<(&'a str, Found<Harm>)> {
    let mut best: Option<(&'a str, Found<Harm>)> = None;
    let mut tries = TRIES;
    let mut looked_at = Vec::new();
    for (bound, node, order) in trials {
        // The next ones are not better either.
        if best.as_ref().is_some_and(|(_, (harm, _))| harm < bound) {
            break;
        }
        let mut trial = NodeTrial { scene, room, ask, node };
        trial.set_all(order, true);
        if trial.suffices() {
            looked_at.push((*node, order));
            if let Some(found) = scene.first(order, &mut trial) {
                replace(&mut best, node, found);
            }
        }
        trial.set_all(order, false);
    }
    for (node, order) in looked_at {
        let mut trial = NodeTrial { scene, room, ask, node };
        trial.set_all(order, true);
        let known = best.as_ref().map(|(_, (harm, _))| harm.clone());
        if let Some(found) = scene.better(order, &mut trial, known, &mut tries) {
            replace(&mut best, node, found);
        }
        trial.set_all(order, false);
    }
    best
}

/// Keeps the less harmful set; of equal ones, that on the first node by name.
fn replace<'a>(best: &mut Option<(&'a str, Found<Harm>)>, node: &'a str, found: Found<Harm>) {
    let is_better =
        best.as_ref().is_none_or(|(known, (harm, _))| (&found.0, node) < (harm, *known));
    if is_better {
        *best = Some((node, found));
    }
}

fn fits_without<'a>(
    scene: &Scene<'a>,
    room: &Room<'a>,
    units: &BTreeSet<usize>,
    ask: &Ask,
) -> bool {
    let room = scene.room_without(room, units);
    room.attempt(ask, scene.nodes()).is_ok_and(|attempt| !attempt.fits().is_empty())
}
