//! Counts how many equal pods fit on nodes at the same time: devices by the allocator, allocated one
//! pod after another as the scheduler would; besides them everything that [`Room::attempt`] checks.

use super::Room;
use super::ask::Ask;
use super::attempt::ResolvedAsk;
use super::domain::{Domain, Share};
use crate::predict::{STEPS_MAX, hold};
use dra_allocator::{AllocatedState, Claim, ClaimAllocation, Limits, Outcome, survey};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Places on one node for pods of a kind, and the devices that each pod would get in turn.
#[derive(Debug)]
pub struct Places<'n> {
    /// The node.
    pub node: &'n str,
    /// For how many pods.
    pub count: usize,
    /// For how many, but for their devices.
    most: usize,
    devices: Vec<Vec<ClaimAllocation>>,
}

/// A pod that was added to a room.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The node.
    pub node: Arc<str>,
    /// What it asks for.
    pub ask: Arc<Ask>,
    /// The devices that it got here.
    pub devices: Vec<ClaimAllocation>,
}

impl Room<'_> {
    /// How many pods of a kind fit on these nodes at the same time.
    pub fn count<'n>(&self, ask: &Ask, nodes: impl IntoIterator<Item = &'n str>) -> usize {
        let places = self.places(ask, nodes, usize::MAX);
        places.iter().fold(0, |sum, places| sum.saturating_add(places.count))
    }

    /// Places for pods of a kind, node by node, until there are `enough`. There is none if a claim of
    /// the pod is unknown, or if the scheduler would fail on it.
    pub fn places<'n>(
        &self,
        ask: &Ask,
        nodes: impl IntoIterator<Item = &'n str>,
        enough: usize,
    ) -> Vec<Places<'n>> {
        self.beside_nominated(ask).places_here(ask, nodes, enough)
    }

    fn places_here<'n>(
        &self,
        ask: &Ask,
        nodes: impl IntoIterator<Item = &'n str>,
        enough: usize,
    ) -> Vec<Places<'n>> {
        let Ok(resolved) = self.resolve(ask) else { return Vec::new() };
        let mut places: Vec<_> = nodes
            .into_iter()
            .filter_map(|node| {
                let most = self.times(node, &resolved).ok()?;
                // What a pod changes itself is counted below.
                let fixed = resolved.spreading.iter().filter(|spread| !spread.counts_itself());
                let why = self.why_not_spread(node, fixed);
                if why.or_else(|| self.why_not_beside(node, &resolved)).is_some() {
                    return None;
                }
                Some(Places { node, count: most, most, devices: Vec::new() })
            })
            .collect();
        let shared_volumes = resolved.volumes.as_ref().ok().filter(|it| it.are_shared());
        // A domain is only chosen after all of them are counted.
        let is_shared = !resolved.domains.is_empty()
            || !resolved.spreading.is_empty()
            || shared_volumes.is_some();
        let enough = if is_shared { usize::MAX } else { enough };
        if self.with_devices(&resolved, &mut places, enough).is_none() {
            return Vec::new();
        }
        for domain in &resolved.domains {
            self.share(domain, &mut places);
        }
        for spread in resolved.spreading.iter().filter(|spread| spread.counts_itself()) {
            let counts = places.iter_mut();
            let counts = counts.map(|it| (self.label(it.node, spread.key()), &mut it.count));
            spread.share(&mut counts.collect::<Vec<_>>());
        }
        places.retain(|places| places.count > 0);
        if let Some(volumes) = shared_volumes {
            self.share_volumes(volumes, &mut places);
        }
        places
    }

    /// Adds up to `count` pods of a kind on these nodes; returns how many fit.
    pub fn take<'n>(
        &mut self,
        ask: &Arc<Ask>,
        count: usize,
        nodes: impl IntoIterator<Item = &'n str>,
    ) -> usize {
        if count == 0 {
            return 0;
        }
        let mut left = count;
        for places in self.places(ask, nodes, count) {
            let here = places.count.min(left);
            left -= here;
            let node: Arc<str> = places.node.into();
            let mut devices = places.devices.into_iter();
            for _ in 0..here {
                self.put(&node, ask, devices.next().unwrap_or_default());
            }
        }
        count - left
    }

    /// Adds a pod to a node, with these devices.
    pub fn put(&mut self, node: &Arc<str>, ask: &Arc<Ask>, devices: Vec<ClaimAllocation>) {
        self.used.entry(Arc::clone(node)).or_default().add(ask.usage(), 1);
        hold(&mut self.state, &devices);
        self.added.push(Placed { node: Arc::clone(node), ask: Arc::clone(ask), devices });
    }

    /// The pods that were added, in order.
    pub fn placed(&self) -> &[Placed] {
        &self.added
    }

    /// Limits places by a term that selects the pods themselves: to the smallest domain, where the scheduler
    /// is free to choose, and may begin there.
    fn share(&self, domain: &Domain<'_>, places: &mut Vec<Places<'_>>) {
        match domain.share() {
            None => {}
            Some(Share::OneEach) => {
                let mut seen = BTreeSet::new();
                for it in places.iter_mut().filter(|it| it.count > 0) {
                    if let Some(value) = self.label(it.node, domain.key()) {
                        it.count = usize::from(seen.insert(value));
                    }
                }
            }
            Some(Share::OneDomain) => {
                let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
                for it in places.iter() {
                    let value = self.label(it.node, domain.key()).unwrap_or_default();
                    let sum = sums.entry(value).or_default();
                    *sum = sum.saturating_add(it.count);
                }
                sums.retain(|_, sum| *sum > 0);
                let smallest = sums.into_iter().min_by_key(|(_, sum)| *sum).map(|(value, _)| value);
                places.retain(|it| self.label(it.node, domain.key()) == smallest);
            }
        }
    }

    /// Limits places by devices. `None` if the scheduler would fail on a claim.
    fn with_devices(
        &self,
        resolved: &ResolvedAsk<'_>,
        places: &mut [Places<'_>],
        enough: usize,
    ) -> Option<()> {
        let mut state = self.state.clone();
        let nodes: Vec<&str> = places.iter().map(|places| places.node).collect();
        let mut of_node: HashMap<&str, &mut Places<'_>> =
            places.iter_mut().map(|places| (places.node, places)).collect();
        for (nodes, claims) in self.by_claims(resolved, nodes.into_iter()) {
            if claims.is_empty() {
                continue;
            }
            for node in &nodes {
                if let Some(places) = of_node.get_mut(node) {
                    places.count = 0;
                }
            }
            self.fill(&claims, &nodes, (&mut of_node, &mut state), enough)?;
        }
        Some(())
    }

    /// Allocates each pod's devices in turn, on all nodes in step, so that equal nodes need only one
    /// allocation.
    fn fill(
        &self,
        claims: &[Claim],
        nodes: &[&str],
        (places, state): (&mut HashMap<&str, &mut Places<'_>>, &mut AllocatedState),
        enough: usize,
    ) -> Option<()> {
        let (inventory, settings) = (self.view.inventory(), self.view.settings());
        let mut open = nodes.to_vec();
        let mut total = 0;
        while !open.is_empty() && total < enough {
            let limits = Limits::within(STEPS_MAX, self.budget);
            let answers = survey(inventory, open.drain(..), claims, state, settings, limits);
            let mut next = Vec::new();
            let mut got = Vec::new();
            for (node, attempt) in answers.attempts() {
                let allocations = match attempt.outcome {
                    Outcome::Allocated(allocations) => allocations,
                    Outcome::Failed(_) => return None,
                    Outcome::NoFit(_) | Outcome::OverBudget => continue,
                };
                let Some(places) = places.get_mut(node) else { continue };
                if !takes_devices(&allocations) {
                    places.count = places.most;
                    continue;
                }
                got.push(allocations.clone());
                places.devices.push(allocations);
                places.count += 1;
                total += 1;
                if places.count < places.most {
                    next.push(node);
                }
            }
            for allocations in &got {
                hold(state, allocations);
            }
            open = next;
        }
        Some(())
    }
}

/// Whether these allocations leave fewer devices for others.
fn takes_devices(allocations: &[ClaimAllocation]) -> bool {
    let mut results = allocations.iter().flat_map(|allocation| &allocation.results);
    results.any(|result| !result.admin_access)
}
