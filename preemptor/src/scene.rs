//! A round of decisions: the cluster, its room, and who may leave.

use super::decision::{Cluster, NoPreemption, Rules};
use super::place_score::PlaceScore;
use super::search::{Found, Improvement, Trial, reprieve};
use super::units::{Harm, Units};
use cluster_model::names::label;
use cluster_model::room::Room;
use cluster_model::view::ObjectKey;
use dra_allocator::Budget;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// What all decisions of a round share.
pub(crate) struct Scene<'a> {
    pub(crate) cluster: Cluster<'a>,
    pub(crate) rules: &'a Rules,
    pub(crate) units: Units<'a>,
    pub(crate) places: PlaceScore,
    /// The nodes on which nothing is decided: those of preemptions that have begun, and their fabrics.
    busy: HashSet<&'a str>,
}

/// The units that a pod of a priority could displace.
#[derive(Default)]
pub(crate) struct Lower {
    /// Those that may leave.
    pub(crate) free: BTreeSet<usize>,
    /// Those that may not because of a `PodDisruptionBudget`.
    budgeted: BTreeSet<usize>,
    /// Those that may not because of the rules.
    forbidden: BTreeSet<usize>,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(cluster: Cluster<'a>, rules: &'a Rules, units: Units<'a>) -> Self {
        let busy = busy_nodes(cluster);
        Self { cluster, rules, units, places: PlaceScore::default(), busy }
    }

    /// The nodes on which a preemption may begin.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &'a str> {
        self.cluster.view.present_nodes().filter(|node| !self.busy.contains(node))
    }

    /// The nodes of each fabric, where nothing has begun. A node that the watch of nodes has not reported
    /// takes no pods yet.
    pub(crate) fn fabrics(&self) -> BTreeMap<&'a str, Vec<&'a str>> {
        let mut fabrics: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for node in self.nodes().filter(|node| self.cluster.nodes.facts(node).is_some()) {
            if let Some(fabric) = self.cluster.view.node_label(node, label::NODE_FABRIC) {
                fabrics.entry(fabric).or_default().push(node);
            }
        }
        fabrics
    }

    /// The room after pods have left that leave already, and with the pods that preemptions place which
    /// have begun.
    pub(crate) fn room(&self, budget: &'a Budget<'a>) -> Room<'a> {
        let Cluster { view, nodes, pods, begun, .. } = self.cluster;
        let mut room = Room::new(view, nodes, budget);
        let in_flight = room.in_flight();
        room = room.holding(&in_flight);
        let leaving = self.cluster.leaving();
        for (node, key, pod) in pods.bound() {
            if pod.is_leaving || leaving.contains(&*pod.uid) {
                room.let_leave(node, key);
            }
        }
        for placement in begun.iter().flat_map(|it| &it.placements) {
            let Some(pod) = pods.waiting_pod(&placement.pod.key) else { continue };
            let claims = placement.claims.iter();
            let open = claims.filter(|placed| {
                view.claim(&placed.claim).is_some_and(|claim| !claim.is_allocated)
            });
            let devices: Vec<_> = open.map(|placed| placed.allocation.clone()).collect();
            // Otherwise the room counts it as being bound.
            if !devices.is_empty() || placement.claims.is_empty() {
                room.put(&Arc::from(&*placement.node), &pod.kind, devices);
            }
        }
        room
    }

    /// A room when these units have left.
    pub(crate) fn room_without<'u>(
        &self,
        room: &Room<'a>,
        units: impl IntoIterator<Item = &'u usize>,
    ) -> Room<'a> {
        let mut room = room.clone();
        for unit in units {
            self.units.set(&mut room, *unit, true);
        }
        room
    }

    /// The units below a priority.
    pub(crate) fn lower(&self, priority: i32) -> Lower {
        let mut lower = Lower::default();
        for unit in self.units.below(priority) {
            let of_kind = if !self.units.get(unit).is_allowed {
                &mut lower.forbidden
            } else if !self.rules.may_violate_budgets && self.violates_a_budget(unit) {
                &mut lower.budgeted
            } else {
                &mut lower.free
            };
            of_kind.insert(unit);
        }
        lower
    }

    /// Why nobody leaves, if it does not suffice that all leave that may. `suffices` says whether it
    /// does that these leave.
    pub(crate) fn refusal(
        &self,
        lower: &Lower,
        mut suffices: impl FnMut(&BTreeSet<usize>) -> bool,
    ) -> NoPreemption {
        let Lower { free, budgeted, forbidden } = lower;
        if free.is_empty() && budgeted.is_empty() && forbidden.is_empty() {
            return NoPreemption::NobodyIsLower;
        }
        let with_budgets: BTreeSet<usize> = free.union(budgeted).copied().collect();
        let all: BTreeSet<usize> = with_budgets.union(forbidden).copied().collect();
        if !budgeted.is_empty() && suffices(&with_budgets) {
            let violated = budgeted.iter().flat_map(|unit| self.units.violated(&[*unit]));
            let violated: BTreeSet<ObjectKey> = violated.flatten().collect();
            NoPreemption::BudgetForbids(violated.into_iter().collect())
        } else if all.len() > free.len() && suffices(&all) {
            let pods = forbidden.iter().flat_map(|unit| &self.units.get(*unit).pods);
            NoPreemption::VictimsNotAllowed(pods.map(|leaver| leaver.key.into()).collect())
        } else {
            NoPreemption::DoesNotHelp
        }
    }

    /// The harm of a set of units; `None` if the rules do not allow it.
    pub(crate) fn allowed_harm(&self, units: &[usize]) -> Option<Harm> {
        let is_allowed = self.rules.may_violate_budgets
            || self.units.violated(units).iter().all(Option::is_none);
        is_allowed.then(|| self.units.harm(units))
    }

    /// The order in which units are let stay: those first whose eviction violates a budget, then the
    /// most important.
    pub(crate) fn reprieve_order(&self, units: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let mut all: Vec<usize> = units.into_iter().collect();
        if self.rules.may_violate_budgets {
            all.sort_by_key(|unit| (!self.violates_a_budget(*unit), *unit));
        }
        all
    }

    /// Whether the eviction of this unit alone violates a budget.
    fn violates_a_budget(&self, unit: usize) -> bool {
        self.units.violations(unit) > 0
    }

    /// The set that kube-scheduler's order leads to; `None` if it is not allowed, or more harmful than
    /// `best`. All of `order` leave before and after.
    pub(crate) fn first(
        &self,
        order: &[usize],
        trial: &mut impl Trial<Harm = Harm>,
        best: Option<&Harm>,
    ) -> Option<Found<Harm>> {
        let mut victims = reprieve(order, trial);
        victims.sort_unstable();
        let harm = self.allowed_harm(&victims);
        let harm = harm.filter(|harm| best.is_none_or(|best| harm <= best));
        let harm = harm.map(|harm| trial.with_place(harm));
        trial.set_all(order, true);
        Some((harm?, victims))
    }

    /// A set that is less harmful than `best`, if one is found within these tries.
    pub(crate) fn better(
        &self,
        order: &[usize],
        trial: &mut impl Trial<Harm = Harm>,
        best: Option<Harm>,
        tries: &mut usize,
    ) -> Option<Found<Harm>> {
        let harm = |units: &[usize]| self.allowed_harm(units);
        Improvement { order, trial, harm, best, tries }.search()
    }
}

/// The nodes on which nothing is decided: those of preemptions that have begun, and their fabrics.
fn busy_nodes(cluster: Cluster<'_>) -> HashSet<&str> {
    let placements = cluster.begun.iter().flat_map(|it| &it.placements);
    let nodes: HashSet<&str> = placements.map(|placement| &*placement.node).collect();
    if nodes.is_empty() {
        return nodes;
    }
    let view = cluster.view;
    let fabrics = nodes.iter().filter_map(|node| view.node_label(node, label::NODE_FABRIC));
    let fabrics: HashSet<&str> = fabrics.collect();
    let busy = view.present_nodes().filter(|node| {
        let fabric = view.node_label(node, label::NODE_FABRIC);
        nodes.contains(node) || fabric.is_some_and(|fabric| fabrics.contains(fabric))
    });
    busy.collect()
}
