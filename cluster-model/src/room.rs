//! The room that a cluster has for pods: the one place that decides whether a pod fits on a node.
//!
//! [`Ask`] is what a pod asks for, [`Nodes`] what nodes have besides devices, and
//! [`ClusterView`] the devices. A [`Room`] answers as kube-scheduler 1.37 would: what happens to one
//! pod on each node ([`Room::attempt`]), why not ([`WhyNot`]), and how many equal pods fit at the same
//! time ([`Room::places`]). A hypothesis is a copy: pods are added ([`Room::take`]), claims leave
//! ([`Room::without`]), or nothing is in use ([`Room::emptied`]).

mod amounts;
mod ask;
mod attempt;
mod claims;
mod domain;
mod eviction;
mod extended;
mod interner;
mod leaving;
mod node_facts;
mod nodes;
mod places;
mod ports;
mod preempt;
mod scores;
mod spread;
mod spread_constraint;
mod terms;
mod volume_ask;
mod volume_wish;
mod volumes;
mod weighted_term;
mod why_not;

pub use amounts::{Amounts, requests};
pub use ask::Ask;
pub use attempt::{Alike, Attempt};
pub use claims::{OpenClaim, PodClaims, are_allocated, made_claims, pod_claims};
pub use eviction::Eviction;
pub use extended::Extended;
pub use interner::Interner;
pub use node_facts::{NodeFacts, Tolerated};
pub use nodes::{Nodes, PodKey};
pub use places::{Placed, Places};
pub use preempt::{Delay, Preemption, weight};
pub use scores::{Images, Preferences, Scores};
pub use terms::{Labels, Term};
pub use why_not::{VolumeProblem, WhyNot};

use crate::predict::{STEPS_MAX, hold, work_max};
use crate::view::{ClusterView, ObjectKey};
use dra_allocator::{
    AllocatedState, Budget, Claim, ClaimAllocation, ClaimName, Explanation, GatherError, Limits,
    Outcome, allocate, explain,
};
use nodes::{Usage, WaitingPod};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The room of a cluster. Clone it to try a hypothesis.
#[derive(Clone, Debug)]
pub struct Room<'a> {
    view: &'a ClusterView,
    nodes: &'a Nodes,
    budget: &'a Budget<'a>,
    /// The devices in use.
    state: AllocatedState,
    /// Pods that were added here.
    added: Vec<Placed>,
    /// What these use, by node.
    used: HashMap<Arc<str>, Usage>,
    /// Pods for which others are evicted: they hold room against pods of no higher priority.
    nominated: Vec<Nominated<'a>>,
    /// Pods that have left.
    left: BTreeSet<PodKey>,
    /// Claims that have given back their devices.
    gone: BTreeSet<ClaimName>,
    /// Whether pods with a node count as using nothing.
    is_idle: bool,
}

/// A pod that is to come to a node.
#[derive(Clone, Debug)]
struct Nominated<'a> {
    pod: &'a PodKey,
    node: &'a Arc<str>,
    ask: &'a Arc<Ask>,
}

impl<'a> Room<'a> {
    /// The current cluster: bound pods use their nodes, allocated devices are in use. Tenants write
    /// the expressions of claims: `budget` limits what they take.
    pub fn new(view: &'a ClusterView, nodes: &'a Nodes, budget: &'a Budget<'a>) -> Self {
        Self::counting((view, nodes), budget, |_| true)
    }

    /// The same without pods of groups that are being bound: who places groups counts these itself.
    pub fn for_groups(view: &'a ClusterView, nodes: &'a Nodes, budget: &'a Budget<'a>) -> Self {
        Self::counting((view, nodes), budget, |pod| !pod.is_grouped)
    }

    /// The current cluster, with the pods that are being bound for which `counts` holds.
    fn counting(
        (view, nodes): (&'a ClusterView, &'a Nodes),
        budget: &'a Budget<'a>,
        counts: impl Fn(&WaitingPod) -> bool,
    ) -> Self {
        let mut room = Self {
            view,
            nodes,
            budget,
            state: view.inventory().state().clone(),
            added: Vec::new(),
            nominated: Vec::new(),
            used: HashMap::new(),
            left: BTreeSet::new(),
            gone: BTreeSet::new(),
            is_idle: false,
        };
        room.add_being_bound(counts);
        room
    }

    /// Adds the pods that have their devices and no node yet: the scheduler holds their room while it
    /// binds them, which takes long if devices have binding conditions (`assume` in
    /// `pkg/scheduler/schedule_one.go`).
    fn add_being_bound(&mut self, counts: impl Fn(&WaitingPod) -> bool) {
        for (key, pod) in self.nodes.waiting().filter(|(_, pod)| counts(pod)) {
            let node = pod.claims.iter().find_map(|name| {
                let claim = ObjectKey { namespace: key.namespace.to_string(), name: name.clone() };
                let known = self.view.claim(&claim).filter(|known| known.is_allocated)?;
                let (user, _) = known.pod.as_ref()?;
                let device = self.view.held_by(&claim).next();
                let device = device.filter(|_| **user == *key.name)?;
                self.view.node_of(device)
            });
            match (node, &pod.nominated) {
                (Some(node), _) => self.put(&node, &pod.ask, Vec::new()),
                (None, Some(node)) => {
                    self.nominated.push(Nominated { pod: key, node, ask: &pod.ask });
                }
                (None, None) => {}
            }
        }
    }

    /// The room that a pod has beside those for which others are evicted, if their priority is as high as
    /// its own (`addGENominatedPods` in `pkg/scheduler/framework/runtime/framework.go`). They hold no
    /// devices.
    fn beside_nominated(&self, ask: &Ask) -> Cow<'_, Self> {
        let before = self.nominated.iter().filter(|it| it.ask.priority >= ask.priority);
        let mut before = before.peekable();
        if before.peek().is_none() {
            return Cow::Borrowed(self);
        }
        let mut room = self.clone();
        room.nominated.clear();
        for Nominated { node, ask, .. } in before {
            room.put(node, ask, Vec::new());
        }
        Cow::Owned(room)
    }

    /// The same without a pod that is being bound: it does not take room from itself.
    #[must_use]
    pub fn besides(mut self, pod: &ObjectKey) -> Self {
        self.nominated
            .retain(|it| *it.pod.name != *pod.name || *it.pod.namespace != *pod.namespace);
        let mut waiting = self.nodes.waiting();
        let own =
            waiting.find(|(key, _)| *key.name == *pod.name && *key.namespace == *pod.namespace);
        let added = own.and_then(|(_, own)| {
            self.added.iter().position(|added| Arc::ptr_eq(&added.ask, &own.ask))
        });
        if let Some(index) = added {
            let Placed { node, ask, .. } = self.added.swap_remove(index);
            self.used.entry(node).or_default().add(ask.usage(), -1);
        }
        self
    }

    /// The cluster.
    pub fn view(&self) -> &'a ClusterView {
        self.view
    }

    /// The nodes with their pods.
    pub fn nodes(&self) -> &'a Nodes {
        self.nodes
    }

    /// The work that claims may take.
    pub fn budget(&self) -> &'a Budget<'a> {
        self.budget
    }

    /// The devices in use.
    pub fn in_use(&self) -> &AllocatedState {
        &self.state
    }

    /// The devices that pods with a node will get, whose allocations the view does not have yet:
    /// watches are not synchronized.
    pub fn in_flight(&self) -> Vec<ClaimAllocation> {
        let mut state = self.state.clone();
        let mut all = Vec::new();
        let mut bound: Vec<_> = self
            .nodes
            .pods()
            .filter_map(|(node, key, pod)| Some((node, key, pod.devices.as_deref()?)))
            .collect();
        bound.sort_unstable_by_key(|(node, key, _)| (*node, *key));
        for (node, key, (claims, ask)) in bound {
            if are_allocated(claims, &key.namespace, self.view) {
                continue;
            }
            let Ok(open) = ask.claims(self.view) else { continue };
            self.budget.renew(work_max(1));
            let limits = Limits::within(STEPS_MAX, self.budget);
            let (inventory, settings) = (self.view.inventory(), self.view.settings());
            let attempt = allocate(inventory, node, &open, &state, settings, limits);
            if let Outcome::Allocated(allocations) = attempt.outcome {
                hold(&mut state, &allocations);
                all.extend(allocations);
            }
        }
        all
    }

    /// The same with these devices in use as well.
    #[must_use]
    pub fn holding(mut self, allocations: &[ClaimAllocation]) -> Self {
        hold(&mut self.state, allocations);
        self
    }

    /// The same with nothing in use.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self {
            state: AllocatedState::new(),
            added: Vec::new(),
            nominated: Vec::new(),
            used: HashMap::new(),
            is_idle: true,
            ..self.clone()
        }
    }

    /// The same in which devices are as this view says.
    #[must_use]
    pub fn supposing<'b>(&self, view: &'b ClusterView) -> Room<'b>
    where
        'a: 'b,
    {
        Room { view, ..self.clone() }
    }

    /// Why the allocator finds no devices for claims on a node, in detail.
    ///
    /// # Errors
    /// The devices of the node contradict each other.
    pub fn explain(&self, node: &str, claims: &[Claim]) -> Result<Explanation, GatherError> {
        let limits = Limits::within(STEPS_MAX, self.budget);
        let (inventory, settings) = (self.view.inventory(), self.view.settings());
        explain(inventory, node, claims, &self.state, settings, limits)
    }

    fn label(&self, node: &str, key: &str) -> Option<&'a str> {
        self.view.node_label(node, key)
    }
}
