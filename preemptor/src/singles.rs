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
    type Harm = Harm;

    fn set(&mut self, unit: usize, leaves: bool) {
        self.scene.units.set(self.room, unit, leaves);
    }

    fn suffices(&mut self) -> bool {
        matches!(self.room.why_not(self.node, self.ask), Ok(None))
    }

    fn with_place(&mut self, harm: Harm) -> Harm {
        let Ok(attempt) = self.room.attempt(self.ask, [self.node]) else { return harm };
        let fit = attempt.each().next();
        let allocations = match &fit {
            Some((_, Prediction::Fits(fit))) => &*fit.allocations,
            Some((_, Prediction::No(_))) | None => &[],
        };
        harm.at(self.scene.places.loss(self.room, [(self.node, allocations)]))
    }
}

/// The preemption for a pod that fits on no node of this room.
pub(crate) fn decide<'a>(
    scene: &Scene<'a>,
    room: &Room<'a>,
    (key, pod): (&PodKey, &WaitingPod),
) -> Result<Preemption, NoPreemption> {
    let lower = scene.lower(pod.priority);
    let nodes = candidates(scene, room, &pod.ask)?.into_iter();
    let mut order: Vec<_> =
        nodes.filter_map(|node| Some((node, cheapest(scene, &lower, node)?))).collect();
    order.sort_by(|(one, a), (other, b)| scene.units.compare(*a, *b).then(one.cmp(other)));
    let best = Search { scene, ask: &pod.ask, free: &lower.free, best: None }
        .run(&mut room.clone(), &order);
    let Some((node, (_, victims))) = best else {
        return Err(scene.refusal(&lower, |units| fits_without(scene, room, units, &pod.ask)));
    };
    preemption_on(scene, room, (key, pod), (node, &victims))
}

/// The preemption by which a pod gets a node when these units have left.
pub(crate) fn preemption_on<'a>(
    scene: &Scene<'a>,
    room: &Room<'a>,
    (key, pod): (&PodKey, &WaitingPod),
    (node, victims): (&str, &[usize]),
) -> Result<Preemption, NoPreemption> {
    let room_of_node = scene.room_without(room, victims);
    let fit = room_of_node.attempt(&pod.ask, [node]).map_err(NoPreemption::Unknown)?;
    let Some((_, Prediction::Fits(fit))) = fit.each().next() else {
        return Err(NoPreemption::DoesNotHelp);
    };
    let view = scene.cluster.view;
    let placed = placement(view, (key.into(), pod), (node, Vec::new()), fit.allocations);
    let placed = placed.ok_or(NoPreemption::ExtendedResource)?;
    Ok(preemption(&scene.units, victims, (pod.priority, None), vec![placed]))
}

/// The nodes on which the pod may fit when units have left: at most those on which it does when they are
/// empty.
fn candidates<'a>(
    scene: &Scene<'a>,
    room: &Room<'a>,
    ask: &Ask,
) -> Result<Vec<&'a str>, NoPreemption> {
    // The pods that are there decide where one with terms may be.
    if ask.has_terms() {
        return Ok(scene.nodes().collect());
    }
    let attempt = room.emptied().attempt(ask, scene.nodes()).map_err(NoPreemption::Unknown)?;
    Ok(attempt.fits())
}

/// The unit of a node that can leave with the least harm.
fn cheapest(scene: &Scene<'_>, lower: &Lower, node: &str) -> Option<usize> {
    let here = scene.units.on(node).iter().filter(|unit| lower.free.contains(unit));
    here.copied().min_by(|one, other| scene.units.compare(*one, *other))
}

/// The search for the least harmful set of units, and its node.
struct Search<'t, 'a> {
    scene: &'t Scene<'a>,
    ask: &'t Ask,
    /// The units that may leave.
    free: &'t BTreeSet<usize>,
    best: Option<(&'a str, Found<Harm>)>,
}

impl<'a> Search<'_, 'a> {
    /// Searches these nodes, each with its cheapest unit, in this order.
    fn run(
        mut self,
        room: &mut Room<'a>,
        nodes: &[(&'a str, usize)],
    ) -> Option<(&'a str, Found<Harm>)> {
        let most = NODES_MIN.max(self.scene.nodes().count() / NODES_PART);
        let mut open = Vec::new();
        for (node, cheapest) in nodes {
            let bound = self.scene.units.harm(&[*cheapest]);
            // The next ones are not better either.
            if open.len() == most || self.harm().is_some_and(|harm| *harm < bound) {
                break;
            }
            let order = self.order(node);
            let mut trial = NodeTrial { scene: self.scene, room, ask: self.ask, node };
            trial.set_all(&order, true);
            if trial.suffices() {
                let found = self.scene.first(&order, &mut trial, self.harm());
                self.keep(node, found);
                open.push((*node, order.clone()));
            }
            trial.set_all(&order, false);
        }
        let mut tries = TRIES;
        for (node, order) in open {
            let mut trial = NodeTrial { scene: self.scene, room, ask: self.ask, node };
            trial.set_all(&order, true);
            let found = self.scene.better(&order, &mut trial, self.harm().cloned(), &mut tries);
            self.keep(node, found);
            trial.set_all(&order, false);
        }
        self.best
    }

    /// The least harm so far.
    fn harm(&self) -> Option<&Harm> {
        self.best.as_ref().map(|(_, (harm, _))| harm)
    }

    /// The units of a node that may leave, in the order in which they are let stay.
    fn order(&self, node: &str) -> Vec<usize> {
        let here = self.scene.units.on(node).iter().copied();
        self.scene.reprieve_order(here.filter(|unit| self.free.contains(unit)))
    }

    /// Keeps the less harmful set; of equal ones, that on the first node by name.
    fn keep(&mut self, node: &'a str, found: Option<Found<Harm>>) {
        let Some(found) = found else { return };
        let known = self.best.as_ref().map(|(known, (harm, _))| (harm, *known));
        if known.is_none_or(|known| (&found.0, node) < known) {
            self.best = Some((node, found));
        }
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
