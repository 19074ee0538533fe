//! Runs one allocation on many nodes and shares the result between equivalent nodes.
//!
//! Machines of one kind differ in names and in the values of some attributes. Nodes of one shape
//! (`likeness.rs`) get results that differ only in names if two conditions hold: the same of their
//! devices are in use, and their devices agree in every attribute that the claims mention, in
//! selectors (including those of classes), constraints and derived attributes. If this cannot be
//! established for a node, the node is searched separately. A shared result is never a guess.

mod key;

use std::sync::Arc;

use self::key::Keys;
use crate::allocate::{Attempt, Limits, NoFit, Outcome, allocate};
use crate::budget::Budget;
use crate::claim::Claim;
use crate::hash::HashMap;
use crate::inventory::Inventory;
use crate::name::DeviceId;
use crate::node::NodeSelector;
use crate::settings::Settings;
use crate::slice::Slice;
use crate::state::AllocatedState;

/// Nodes with the same result. The result is in the names of the first node.
#[derive(Debug)]
pub struct Group<'n> {
    /// The nodes; the search ran on the first one.
    pub nodes: Vec<&'n str>,
    /// The result.
    pub attempt: Attempt,
}

/// The results of many nodes.
#[derive(Debug)]
pub struct Survey<'i, 'n> {
    inventory: &'i Inventory,
    groups: Vec<Group<'n>>,
}

/// Predicts which devices claims get on each node, as [`allocate()`] does node by node. `limits`
/// apply to each search. Once their budget is spent, no further result is known.
pub fn survey<'i, 'n>(
    inventory: &'i Inventory,
    nodes: impl IntoIterator<Item = &'n str>,
    claims: &[Claim],
    state: &AllocatedState,
    settings: &Settings,
    limits: Limits<'_>,
) -> Survey<'i, 'n> {
    let unlimited = Budget::unlimited();
    let budget = limits.budget.unwrap_or(&unlimited);
    let mut groups: Vec<Group<'n>> = Vec::new();
    let mut keys = Keys::new(inventory, claims, state, settings, budget);
    let mut known: HashMap<Box<[usize]>, usize> = HashMap::default();
    for node in nodes {
        let key = keys.of(node);
        if let Some(number) = key.and_then(|key| known.get(key)) {
            groups[*number].nodes.push(node);
            continue;
        }
        let attempt = allocate(inventory, node, claims, state, settings, limits);
        // The text of an error names devices, so errors are computed per node.
        if let Some(key) = key
            && !matches!(attempt.outcome, Outcome::Failed(_))
        {
            known.insert(key.into(), groups.len());
        }
        groups.push(Group { nodes: vec![node], attempt });
    }
    Survey { inventory, groups }
}

impl<'n> Survey<'_, 'n> {
    /// The distinct results.
    pub fn groups(&self) -> &[Group<'n>] {
        &self.groups
    }

    /// The result of each node, in its own names.
    pub fn attempts(&self) -> impl Iterator<Item = (&'n str, Attempt)> {
        self.groups.iter().flat_map(move |group| {
            let words = Words::new(self.inventory, group);
            let nodes = group.nodes.iter();
            nodes.map(move |node| (*node, words.attempt(self.inventory, group, node)))
        })
    }
}

/// The position of a name on a node: index of its slice, and index of its device in the slice.
type Place = (usize, usize);

/// The names in a result, as positions on the node that was searched.
#[derive(Debug, Default)]
struct Words {
    /// By claim and result.
    devices: Vec<Vec<Place>>,
    /// By claim: true if it can be used on that node only.
    is_local: Vec<bool>,
    /// The slices of invalid pools.
    pools: Vec<usize>,
}

impl Words {
    fn new(inventory: &Inventory, group: &Group<'_>) -> Self {
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
                let pools = pools
                    .iter()
                    .filter_map(|pool| slices.iter().position(|slice| slice.pool == *pool))
                    .collect();
                Self { pools, ..Self::default() }
            }
            Outcome::NoFit(NoFit::NoSolution) | Outcome::Failed(_) | Outcome::OverBudget => {
                Self::default()
            }
        }
    }

    /// The result in the names of a node of the group.
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

/// The position of a device. Compared nodes have only devices local to them.
fn place(slices: &[Arc<Slice>], id: &DeviceId) -> Place {
    let mut slices = slices.iter().enumerate();
    let found = slices.find_map(|(number, slice)| {
        let device = slice.devices.iter().position(|known| known.id == *id);
        device.map(|device| (number, device))
    });
    found.unwrap_or_default()
}
