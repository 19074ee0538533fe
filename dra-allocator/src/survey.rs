//! One question to many nodes, answered once for all that are alike.
//!
//! Machines of one kind differ in names, and in the values of some attributes. Nodes of one
//! shape (`inventory/likeness.rs`) get answers that differ in names alone where the same of
//! their devices are in use, and where their devices agree in every attribute that the claims
//! mention: in selectors, of classes too, in constraints and in derived attributes. Nodes of
//! which that cannot be said are asked one by one: it is never a guess.

mod key;

use std::sync::Arc;

use self::key::Keys;
use crate::allocate::{Attempt, Limits, NoFit, Outcome, allocate};
use crate::claim::Claim;
use crate::hash::HashMap;
use crate::inventory::Inventory;
use crate::name::{DeviceId, PoolId};
use crate::node::NodeSelector;
use crate::settings::Settings;
use crate::slice::Slice;
use crate::state::AllocatedState;

/// Nodes with the same answer, and the answer as the first of them gets it.
#[derive(Debug)]
pub struct Group<'n> {
    /// The nodes; the first one was asked.
    pub nodes: Vec<&'n str>,
    /// What was answered.
    pub attempt: Attempt,
}

/// The answers of many nodes.
#[derive(Debug)]
pub struct Survey<'i, 'n> {
    inventory: &'i Inventory,
    groups: Vec<Group<'n>>,
}

/// Which devices claims would get on each of the nodes: what [`allocate()`] answers, node by
/// node. `limits` are those of one search.
pub fn survey<'i, 'n>(
    inventory: &'i Inventory,
    nodes: impl IntoIterator<Item = &'n str>,
    claims: &[Claim],
    state: &AllocatedState,
    settings: &Settings,
    limits: Limits<'_>,
) -> Survey<'i, 'n> {
    let ask = |node| {
        let attempt = allocate(inventory, node, claims, state, settings, limits);
        Group { nodes: vec![node], attempt }
    };
    let mut groups: Vec<Group<'n>> = Vec::new();
    let mut keys = Keys::new(inventory, claims, state, settings);
    let mut known: HashMap<Box<[usize]>, usize> = HashMap::default();
    for node in nodes {
        let Some(key) = keys.of(node) else {
            groups.push(ask(node));
            continue;
        };
        if let Some(number) = known.get(key) {
            groups[*number].nodes.push(node);
            continue;
        }
        let group = ask(node);
        // An error names devices in its text; it is asked for again.
        if !matches!(group.attempt.outcome, Outcome::Failed(_)) {
            known.insert(key.into(), groups.len());
        }
        groups.push(group);
    }
    Survey { inventory, groups }
}

impl<'n> Survey<'_, 'n> {
    /// The different answers.
    pub fn groups(&self) -> &[Group<'n>] {
        &self.groups
    }

    /// The answer of each node, in its own words.
    pub fn attempts(&self) -> impl Iterator<Item = (&'n str, Attempt)> {
        self.groups.iter().flat_map(move |group| {
            let words = Words::of(self.inventory, group);
            let nodes = group.nodes.iter();
            nodes.map(move |node| (*node, words.attempt(self.inventory, group, node)))
        })
    }
}

/// Where a name stands on a node: the number of its slice, and of its device in that.
type Place = (usize, usize);

/// The names in an answer, by where they stand on the node that was asked.
#[derive(Debug, Default)]
struct Words {
    /// By claim and result.
    devices: Vec<Vec<Place>>,
    /// By claim: whether it can be used on that node alone.
    is_local: Vec<bool>,
    /// The slices of invalid pools.
    pools: Vec<usize>,
}

impl Words {
    fn of(inventory: &Inventory, group: &Group<'_>) -> Self {
        let asked = group.nodes[0];
        let slices = inventory.place(asked).map_or(&[][..], |place| &place.slices);
        if group.nodes.len() == 1 {
            return Self::default();
        }
        match &group.attempt.outcome {
            Outcome::Allocated(claims) => {
                let results = claims.iter().map(|claim| claim.results.iter());
                let local = Some(NodeSelector::of_node(&asked.into()));
                Self {
                    devices: results
                        .map(|results| results.map(|result| place(slices, &result.device)))
                        .map(Iterator::collect)
                        .collect(),
                    is_local: claims.iter().map(|claim| claim.node_selector == local).collect(),
                    pools: Vec::new(),
                }
            }
            Outcome::NoFit(NoFit::InvalidPools(pools)) => {
                let slice = |pool: &PoolId| slices.iter().position(|slice| slice.pool == *pool);
                let pools = pools.iter().filter_map(slice).collect();
                Self { pools, ..Self::default() }
            }
            Outcome::NoFit(NoFit::NoSolution) | Outcome::Failed(_) | Outcome::OverBudget => {
                Self::default()
            }
        }
    }

    /// The answer in the names of a node of the group.
    fn attempt(&self, inventory: &Inventory, group: &Group<'_>, node: &str) -> Attempt {
        let Attempt { outcome, steps, is_exact } = &group.attempt;
        let slices = inventory.place(node).map_or(&[][..], |place| &place.slices);
        let outcome = match outcome {
            _ if node == group.nodes[0] => outcome.clone(),
            Outcome::Allocated(claims) => {
                let node = node.into();
                let claims = claims.iter().zip(self.devices.iter().zip(&self.is_local));
                let claims = claims.map(|(claim, (devices, is_local))| {
                    let mut claim = claim.clone();
                    for (result, (slice, device)) in claim.results.iter_mut().zip(devices) {
                        result.device = slices[*slice].devices[*device].id.clone();
                    }
                    if *is_local {
                        claim.node_selector = Some(NodeSelector::of_node(&node));
                    }
                    claim
                });
                Outcome::Allocated(claims.collect())
            }
            Outcome::NoFit(NoFit::InvalidPools(_)) => {
                let pools = self.pools.iter().map(|slice| slices[*slice].pool.clone());
                Outcome::NoFit(NoFit::InvalidPools(pools.collect()))
            }
            same => same.clone(),
        };
        Attempt { outcome, steps: *steps, is_exact: *is_exact }
    }
}

/// Where a device stands; nodes that are compared have no devices but their own.
fn place(slices: &[Arc<Slice>], id: &DeviceId) -> Place {
    let mut slices = slices.iter().enumerate();
    let found = slices.find_map(|(number, slice)| {
        let device = slice.devices.iter().position(|known| known.id == *id);
        device.map(|device| (number, device))
    });
    found.unwrap_or_default()
}
