//! Counts how many equal pods fit on a fabric at the same time, node by node: devices by
//! the allocator, allocated one pod after another as the scheduler would; besides them
//! CPU, memory, taints and the pods' own selectors.

mod domain;

use super::amounts::Amounts;
use super::group::has_devices;
use super::nodes::Nodes;
use super::pods::Pods;
use super::requirements::PodRequirements;
use super::waiting::WaitingReason;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::names::label;
use cluster_model::predict::{STEPS_MAX, hold, work_max};
use cluster_model::view::ClusterView;
use dra_allocator::{
    AllocatedState, Budget, Claim, ClaimAllocation, Limits, Outcome, allocate, survey,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The cluster's free capacity, by fabric.
#[derive(Debug)]
pub struct ClusterCapacity<'a> {
    view: &'a ClusterView,
    budget: &'a Budget<'a>,
    pods: &'a Pods,
    nodes: &'a Nodes,
    fabrics: BTreeMap<String, FabricCapacity<'a>>,
    /// The lowest priority of a pod with a node.
    lowest: Option<i32>,
}

/// The nodes of one fabric with what is free. Clone it to try a hypothesis.
#[derive(Clone, Debug)]
pub struct FabricCapacity<'a> {
    view: &'a ClusterView,
    budget: &'a Budget<'a>,
    pods: &'a Pods,
    facts: &'a Nodes,
    nodes: Vec<Arc<str>>,
    free: Vec<Free>,
    state: AllocatedState,
    counted: HashMap<Arc<PodRequirements>, usize>,
    /// Pods that were added here, with the index of their node.
    taken: Vec<(usize, Arc<PodRequirements>)>,
}

/// What is free on a node; negative where pods of lower priority must give way.
#[derive(Clone, Debug, Default)]
struct Free {
    amounts: Amounts,
    pods: isize,
}

/// Places on one node for pods of a kind, and the devices that each pod would get in
/// turn.
#[derive(Debug)]
struct Places {
    node: usize,
    count: usize,
    devices: Vec<Vec<ClaimAllocation>>,
}

impl<'a> ClusterCapacity<'a> {
    /// The current cluster: bound pods use their nodes, allocated devices are in use. Tenants write
    /// the expressions of claims: `budget` limits what they take, for each group
    /// ([`Self::begin_group`]) and in all.
    pub fn new(
        view: &'a ClusterView,
        pods: &'a Pods,
        nodes: &'a Nodes,
        budget: &'a Budget<'a>,
    ) -> Self {
        let mut fabrics: BTreeMap<String, FabricCapacity<'a>> = BTreeMap::new();
        for name in view.inventory().node_names() {
            let (Some(node), Some(facts)) = (view.inventory().node(name), nodes.get(name)) else {
                continue;
            };
            let Some(fabric) = node.labels.get(label::NODE_FABRIC) else { continue };
            let fabric = fabrics.entry(fabric.to_string()).or_insert_with(|| FabricCapacity {
                view,
                budget,
                pods,
                facts: nodes,
                nodes: Vec::new(),
                free: Vec::new(),
                state: view.inventory().state().clone(),
                counted: HashMap::new(),
                taken: Vec::new(),
            });
            let mut amounts = facts.allocatable.clone();
            let usage = pods.usage(name);
            if let Some(usage) = usage {
                amounts.subtract(&usage.amounts, 1);
            }
            let used = usage.map_or(0, |usage| usage.pods);
            fabric.nodes.push(name.clone());
            fabric.free.push(Free { amounts, pods: signed(facts.pods) - signed(used) });
        }
        fabrics.values_mut().for_each(FabricCapacity::take_in_flight);
        Self { view, budget, pods, nodes, fabrics, lowest: pods.lowest_priority() }
    }

    /// Gives the next group its share of work.
    pub fn begin_group(&self) {
        self.budget.renew(work_max(self.view.inventory().node_names().count()));
    }

    /// Why the counts of this group are not known, if they are not.
    pub fn gave_up(&self) -> Option<WaitingReason> {
        match (self.budget.is_stopped(), self.budget.left()) {
            (true, _) => Some(WaitingReason::NotReached),
            (false, 0) => Some(WaitingReason::Expensive),
            (false, _) => None,
        }
    }

    /// The view.
    pub fn view(&self) -> &'a ClusterView {
        self.view
    }

    /// Returns true if a pod with a node has a lower priority than this.
    pub fn has_pods_below(&self, priority: i32) -> bool {
        self.lowest.is_some_and(|lowest| lowest < priority)
    }

    /// The fabric of a node.
    pub fn fabric_of(&self, node: &str) -> Option<String> {
        let node = self.view.inventory().node(node)?;
        node.labels.get(label::NODE_FABRIC).map(ToString::to_string)
    }

    /// All fabrics by name.
    pub fn fabrics_mut(&mut self) -> impl Iterator<Item = (&String, &mut FabricCapacity<'a>)> {
        self.fabrics.iter_mut()
    }

    /// One fabric.
    pub fn fabric(&mut self, name: &str) -> Option<&mut FabricCapacity<'a>> {
        self.fabrics.get_mut(name)
    }

    /// The same cluster with nothing in use.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let mut fabrics = self.fabrics.clone();
        for fabric in fabrics.values_mut() {
            fabric.empty(self.nodes);
        }
        let Self { view, budget, pods, nodes, .. } = *self;
        Self { view, budget, pods, nodes, fabrics, lowest: None }
    }
}

impl FabricCapacity<'_> {
    /// Adds pods that have a node but whose devices the view does not know yet.
    fn take_in_flight(&mut self) {
        for index in 0..self.nodes.len() {
            let node = self.nodes[index].clone();
            for (key, placed) in self.pods.on(&node) {
                let Some(devices) = &placed.devices else { continue };
                let (claims, kind) = &**devices;
                if has_devices(claims, &key.namespace, self.view) {
                    continue;
                }
                let Ok(open) = kind.claims(self.view) else { continue };
                self.budget.renew(work_max(1));
                let attempt = allocate(
                    self.view.inventory(),
                    &node,
                    &open,
                    &self.state,
                    self.view.settings(),
                    Limits::within(STEPS_MAX, self.budget),
                );
                if let Outcome::Allocated(allocations) = attempt.outcome {
                    hold(&mut self.state, &allocations);
                }
            }
        }
    }

    fn empty(&mut self, nodes: &Nodes) {
        self.state = AllocatedState::new();
        self.counted.clear();
        self.taken.clear();
        for (name, free) in self.nodes.iter().zip(&mut self.free) {
            let Some(facts) = nodes.get(name) else { continue };
            *free = Free { amounts: facts.allocatable.clone(), pods: signed(facts.pods) };
        }
    }

    /// The number of its nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// How many pods of a kind fit at the same time.
    pub fn count(&mut self, kind: &Arc<PodRequirements>) -> usize {
        if let Some(count) = self.counted.get(kind) {
            return *count;
        }
        let count = self.places(kind, usize::MAX, &[]).iter().map(|places| places.count).sum();
        // With a spent budget the count is too low.
        if self.budget.left() > 0 {
            self.counted.insert(kind.clone(), count);
        }
        count
    }

    /// The nodes that have room for pods of a kind, by number, and for how many at the same time.
    pub(crate) fn count_nodes(&self, kind: &Arc<PodRequirements>) -> Vec<(usize, usize)> {
        let places = self.places(kind, usize::MAX, &[]).into_iter();
        places.map(|places| (places.node, places.count)).collect()
    }

    /// Adds up to `count` pods of a kind; returns how many fit.
    pub fn take(&mut self, kind: &Arc<PodRequirements>, count: usize) -> usize {
        self.take_in(kind, count, &[])
    }

    /// The same on the nodes that are in all of these domains.
    pub fn take_in(
        &mut self,
        kind: &Arc<PodRequirements>,
        count: usize,
        within: &[LevelDomain],
    ) -> usize {
        if count == 0 {
            return 0;
        }
        let mut left = count;
        for places in self.places(kind, count, within) {
            let here = places.count.min(left);
            left -= here;
            let free = &mut self.free[places.node];
            free.amounts.subtract(&kind.requests, here);
            free.pods -= signed(here);
            places.devices.iter().take(here).for_each(|devices| hold(&mut self.state, devices));
            self.taken.extend((0..here).map(|_| (places.node, kind.clone())));
        }
        if left < count {
            self.counted.clear();
        }
        count - left
    }

    /// If all these pods fit at the same time (first fit, scarcest kind first), returns
    /// how many places of the scarcest kind are left then.
    pub fn fits(&mut self, needs: &[(Arc<PodRequirements>, usize)]) -> Option<usize> {
        let mut scarce: Vec<_> =
            needs.iter().map(|(kind, count)| (self.count(kind), kind, *count)).collect();
        scarce.sort_by_key(|(places, _, _)| *places);
        if scarce.iter().any(|(places, _, count)| places < count) {
            return None;
        }
        let (places, _, count) = *scarce.first()?;
        if scarce.len() > 1 {
            let mut trial = self.clone();
            if scarce.iter().any(|(_, kind, count)| trial.take(kind, *count) < *count) {
                return None;
            }
        }
        Some(places - count)
    }

    /// Places for pods of a kind, node by node, until there are `enough`.
    fn places(
        &self,
        kind: &Arc<PodRequirements>,
        enough: usize,
        within: &[LevelDomain],
    ) -> Vec<Places> {
        let Ok(claims) = kind.claims(self.view) else { return Vec::new() };
        let mut places: Vec<_> = (0..self.nodes.len())
            .filter(|node| self.is_within(*node, within))
            .filter_map(|node| self.bare_places(node, kind))
            .collect();
        let domains = self.domains(kind);
        for domain in &domains {
            domain.close(&mut places, |node| self.label(node, domain.key));
        }
        if !claims.is_empty() {
            // The domain is only chosen after all of them are counted.
            let enough = if domains.is_empty() { enough } else { usize::MAX };
            self.with_devices(&claims, &mut places, enough);
        }
        for domain in &domains {
            domain.share(&mut places, |node| self.label(node, domain.key));
        }
        places.retain(|places| places.count > 0);
        places
    }

    /// Places on a node for everything except devices.
    fn bare_places(&self, index: usize, kind: &PodRequirements) -> Option<Places> {
        let node = &self.nodes[index];
        let facts = self.facts.get(node)?;
        if facts.untolerated(&kind.tolerations).is_some() || !kind.placement.allows(self.view, node)
        {
            return None;
        }
        let Free { amounts, pods } = &self.free[index];
        let lower = kind.gives_way_below.and_then(|below| self.pods.usage_below(node, below));
        let count = match lower {
            None => kind.requests.times_in(amounts, fitting(*pods)),
            Some(lower) => {
                let mut amounts = amounts.clone();
                amounts.add(&lower.amounts);
                kind.requests.times_in(&amounts, fitting(pods.saturating_add_unsigned(lower.pods)))
            }
        };
        (count > 0).then(|| Places { node: index, count, devices: Vec::new() })
    }

    /// Allocates each pod's devices in turn, on all nodes in step, so that equal nodes
    /// need only one allocation.
    fn with_devices(&self, claims: &[Claim], places: &mut [Places], enough: usize) {
        let mut state = self.state.clone();
        let index: HashMap<&str, usize> =
            places.iter().enumerate().map(|(i, it)| (&*self.nodes[it.node], i)).collect();
        let mut open: Vec<&str> = places.iter().map(|it| &*self.nodes[it.node]).collect();
        let (inventory, settings) = (self.view.inventory(), self.view.settings());
        let mut total = 0;
        while !open.is_empty() && total < enough {
            let limits = Limits::within(STEPS_MAX, self.budget);
            let answers = survey(inventory, open.drain(..), claims, &state, settings, limits);
            let mut next = Vec::new();
            let mut got = Vec::new();
            for (node, attempt) in answers.attempts() {
                let Outcome::Allocated(allocations) = attempt.outcome else { continue };
                got.push(allocations.clone());
                let places = &mut places[index[node]];
                places.devices.push(allocations);
                total += 1;
                if places.devices.len() < places.count {
                    next.push(node);
                }
            }
            for allocations in &got {
                hold(&mut state, allocations);
            }
            open = next;
        }
        for places in places {
            places.count = places.devices.len();
        }
    }

    /// Whether a node, by its number, is in all of these domains.
    pub(crate) fn is_within(&self, node: usize, domains: &[LevelDomain]) -> bool {
        domains.iter().all(|domain| self.label(node, domain.level.label()) == Some(&*domain.name))
    }

    /// A label of a node, by its number.
    pub(crate) fn label(&self, node: usize, key: &str) -> Option<&str> {
        let node = self.view.inventory().node(&self.nodes[node])?;
        node.labels.get(key).map(|value| &**value)
    }
}

fn signed(pods: usize) -> isize {
    isize::try_from(pods).unwrap_or(isize::MAX)
}

/// A number of pods that fit; none if there are too many already.
fn fitting(pods: isize) -> usize {
    usize::try_from(pods).unwrap_or(0)
}
