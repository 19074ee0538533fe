//! Runs the scheduler's search for the whole claim, on nodes that are empty or partly
//! busy: can it succeed, does it stay within the budget, and which order of the requests
//! would be cheaper.

use super::counts::needed;
use super::supply::{NodeSupply, Supply};
use super::{Check, Finding, WHOLE};
use crate::cost::free_sets;
use cluster_model::names::annotation;
use dra_allocator::claim::Request;
use dra_allocator::{AllocatedState, AttributeValue, Claim, Limits, NoFit, Outcome, allocate};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most distinct nodes on which searches run, most frequent first.
const NODES_MAX: usize = 16;

/// The result of a claim's searches.
enum Cost {
    /// Within the budget: the most steps.
    Steps(u64),
    /// Over the budget on this node.
    Over(String),
}

pub(super) fn check(supply: &Supply<'_>, max_steps: u64) -> Vec<Finding> {
    if supply.nodes.is_empty() || supply.parts.is_empty() {
        return Vec::new();
    }
    match empty(supply, supply.claim, max_steps) {
        Empty::Fits => {}
        Empty::Fails(error) => {
            let message = format!("the scheduler fails on it: {error}");
            return vec![Check::NeverTogether.found(WHOLE, message)];
        }
        Empty::Never => {
            let message = never_together(supply, max_steps);
            return vec![Check::NeverTogether.found(WHOLE, message)];
        }
    }
    match worst(supply, supply.claim, max_steps) {
        Cost::Steps(_) => Vec::new(),
        Cost::Over(node) => {
            let message = format!(
                "may take the scheduler more than {max_steps} steps on node {node} when it is half \
                 busy; {}",
                cheaper(supply, max_steps)
            );
            vec![Check::OverBudget.found(WHOLE, message)]
        }
    }
}

/// The result of the claim's search on empty nodes.
enum Empty {
    Fits,
    Never,
    Fails(String),
}

fn empty(supply: &Supply<'_>, claim: &Claim, max_steps: u64) -> Empty {
    let mut failure = None;
    for node in nodes(supply) {
        match run(supply, claim, node.node, &AllocatedState::new(), max_steps).0 {
            // A search that is too long is a separate finding.
            Outcome::Allocated(_) | Outcome::OverBudget => return Empty::Fits,
            Outcome::NoFit(NoFit::NoSolution | NoFit::InvalidPools(_)) => {}
            Outcome::Failed(error) => failure = Some(error.in_full()),
        }
    }
    failure.map_or(Empty::Never, Empty::Fails)
}

/// Names the constraint without which the claim would fit.
fn never_together(supply: &Supply<'_>, max_steps: u64) -> String {
    let what = "no node can meet it, even with nothing in use";
    let left_out = (0..supply.claim.constraints.len()).find(|index| {
        let mut claim = supply.claim.clone();
        claim.constraints.remove(*index);
        matches!(empty(supply, &claim, max_steps), Empty::Fits)
    });
    match left_out {
        Some(index) => {
            let attribute = supply.claim.constraints[index].kind.attribute().unwrap_or_default();
            format!("{what}; without constraint #{index} on `{attribute}` one could")
        }
        None => format!("{what}: each request could be met alone, not all together"),
    }
}

/// Suggests an order of the requests that stays within the budget.
fn cheaper(supply: &Supply<'_>, max_steps: u64) -> String {
    let orders = orders(&supply.claim.requests).into_iter().filter_map(|requests| {
        let claim = Claim { requests, ..supply.claim.clone() };
        match worst(supply, &claim, max_steps) {
            Cost::Steps(steps) => Some((steps, claim)),
            Cost::Over(_) => None,
        }
    });
    match orders.min_by_key(|(steps, _)| *steps) {
        Some((steps, claim)) => {
            let names: Vec<_> = claim.requests.iter().map(|request| &*request.name).collect();
            format!("in the order {} it takes at most {steps}", names.join(", "))
        }
        None => format!(
            "no order of the requests is cheap enough: ask for counts instead of pairs, for fewer \
             devices, or let the annotation {} choose",
            annotation::ALIGNED_NICS
        ),
    }
}

/// Orders that often differ in cost: requests of a class together, classes in turn,
/// alternatives first; each also reversed.
fn orders(requests: &[Request]) -> Vec<Vec<Request>> {
    let mut classes: Vec<Option<&Arc<str>>> = Vec::new();
    for class in requests.iter().map(class) {
        if !classes.contains(&class) {
            classes.push(class);
        }
    }
    let turned: Vec<_> = classes.iter().rev().copied().collect();
    let mut orders = Vec::new();
    for classes in [classes, turned] {
        let groups: Vec<_> = classes
            .iter()
            .map(|wanted| -> Vec<Request> {
                requests.iter().filter(|request| class(request) == *wanted).cloned().collect()
            })
            .collect();
        let longest = groups.iter().map(Vec::len).max().unwrap_or_default();
        let in_turn = (0..longest).flat_map(|i| groups.iter().filter_map(move |it| it.get(i)));
        orders.push(in_turn.cloned().collect());
        orders.push(groups.concat());
    }
    for first in [true, false] {
        let mut order = requests.to_vec();
        order.sort_by_key(|request| request.is_prioritized() != first);
        orders.push(order);
    }
    orders
}

/// The class of a request, or of its first alternative.
fn class(request: &Request) -> Option<&Arc<str>> {
    request.asks().first().map(|ask| &ask.class)
}

/// The most steps over all nodes and states.
fn worst(supply: &Supply<'_>, claim: &Claim, max_steps: u64) -> Cost {
    let mut worst = 0;
    for node in nodes(supply) {
        for state in states(supply, node) {
            match run(supply, claim, node.node, &state, max_steps) {
                (Outcome::OverBudget, _) => return Cost::Over(node.node.to_owned()),
                (_, steps) => worst = worst.max(steps),
            }
        }
    }
    Cost::Steps(worst)
}

fn run(
    supply: &Supply<'_>,
    claim: &Claim,
    node: &str,
    state: &AllocatedState,
    max_steps: u64,
) -> (Outcome, u64) {
    let view = supply.view;
    let (claims, limits) = (std::slice::from_ref(claim), Limits::within(max_steps, supply.budget));
    let attempt = allocate(view.inventory(), node, claims, state, view.settings(), limits);
    (attempt.outcome, attempt.steps)
}

fn nodes<'s, 'a>(supply: &'s Supply<'a>) -> impl Iterator<Item = &'s NodeSupply<'a>> {
    let mut nodes: Vec<_> = supply.nodes.iter().collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.count));
    nodes.into_iter().take(NODES_MAX)
}

/// States with long searches: almost enough devices of each driver are free.
fn states(supply: &Supply<'_>, node: &NodeSupply<'_>) -> Vec<AllocatedState> {
    let mut drivers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, device) in node.devices.iter().enumerate() {
        if node.passing.iter().any(|of_part| of_part[index]) {
            drivers.entry(&device.id().driver).or_default().push(index);
        }
    }
    let mut free: Vec<BTreeSet<usize>> = vec![BTreeSet::new()];
    for devices in drivers.values() {
        let sets = free_of_driver(supply, node, devices);
        free = free
            .iter()
            .flat_map(|set| -> Vec<BTreeSet<usize>> {
                sets.iter().map(|more| set | more).collect()
            })
            .collect();
    }
    free.iter()
        .map(|free| {
            let mut state = AllocatedState::new();
            for index in drivers.values().flatten().filter(|index| !free.contains(index)) {
                state.insert(node.devices[*index].id().clone());
            }
            state
        })
        .collect()
}

fn free_of_driver(
    supply: &Supply<'_>,
    node: &NodeSupply<'_>,
    devices: &[usize],
) -> BTreeSet<BTreeSet<usize>> {
    let mut requests: BTreeMap<&str, usize> = BTreeMap::new();
    for (part, passing) in supply.parts.iter().zip(&node.passing) {
        if !devices.iter().any(|index| passing[*index]) {
            continue;
        }
        let most = requests.entry(part.request).or_default();
        *most = (*most).max(needed(part));
    }
    let wanted = requests.values().sum();
    let of_one = requests.values().min().copied().unwrap_or_default();
    free_sets(devices, &groups(supply, node, devices), wanted, of_one)
}

/// Groups the devices by their value of the attribute that the first constraint compares.
fn groups(supply: &Supply<'_>, node: &NodeSupply<'_>, devices: &[usize]) -> Vec<Vec<usize>> {
    let first = supply.claim.constraints.first().and_then(|it| it.kind.attribute());
    let mut groups: BTreeMap<Option<&AttributeValue>, Vec<usize>> = BTreeMap::new();
    for index in devices {
        let value = first.and_then(|name| node.devices[*index].attribute(name));
        groups.entry(value).or_default().push(*index);
    }
    groups.into_values().collect()
}
