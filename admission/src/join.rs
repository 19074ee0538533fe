//! Joins: methods to tie GPUs to NICs in one claim. A join is valid where the published attribute
//! values agree with the graph.
//!
//! A join lists the *ways* in which the devices of a block may be near each other ([`form::Way`]);
//! `form` writes them as requests and constraints.

mod across;
mod attributes;
mod cells;
pub(crate) mod form;
pub(crate) mod pinned;
mod pinned_cell;
mod preferred;
pub(crate) mod seen;
mod ways;
mod whole;

use crate::demand::Demand;
use crate::fleet::Fleet;
use crate::nearness::Nearness;
use crate::promise::{Levels, Promises};
use cluster_model::machines::Machine;
use form::Form;
use topology_graph::Cell;

/// The join without constraints: any devices, since none can be near.
pub(crate) const UNALIGNED: &str = "any";

/// The reason why a pod gets any devices, if no machine can serve near ones.
pub(crate) const FAR: &str = "no node can align them";

/// A claim that a join proposes for the demand.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'m> {
    /// The name of the join.
    pub(crate) join: &'static str,
    /// Explains to the user why it ties the right devices.
    pub(crate) why: String,
    /// The nearness that it guarantees on most nodes.
    pub(crate) nearness: Nearness,
    /// What it does on each machine.
    pub(crate) promises: Promises<'m>,
    /// The blocks that the claim requests.
    pub(crate) demand: Demand,
    /// How the blocks are tied.
    pub(crate) form: Form,
    /// Why some pods get devices that are not near.
    pub(crate) far_because: &'static str,
    /// The rungs of its ladder, to which those of remembered machines can be added.
    pub(crate) rungs: Option<Rungs<'m>>,
}

impl<'m> Candidate<'m> {
    /// A claim for the blocks of the fleet's demand.
    pub(crate) fn new(
        fleet: Fleet<'_, 'm>,
        (join, why): (&'static str, String),
        form: Form,
        promises: Promises<'m>,
    ) -> Self {
        Self {
            join,
            why,
            nearness: promises.on_most(fleet),
            promises,
            demand: fleet.demand().clone(),
            form,
            far_because: FAR,
            rungs: None,
        }
    }

    /// The same with these ways to divide devices among NUMA nodes, before any devices. `None` if the
    /// claim is not for any devices at last.
    pub(crate) fn across(&self, across: Vec<form::Across>) -> Option<Self> {
        let form = self.form.with_across(&across)?;
        let rungs = self.rungs.as_ref().map(|rungs| rungs.with_across(across));
        let why = format!(
            "{}; where no NUMA node has enough, those with the fewest paths between NUMA nodes",
            self.why
        );
        Some(Self { why, form, rungs, ..self.clone() })
    }

    /// The same, if it serves any machine.
    fn if_any_served(self) -> Option<Self> {
        self.promises.serve_any().then_some(self)
    }

    /// How near devices are that the search on a machine looks for first.
    pub(crate) fn searched_at(&self, machine: &Machine<'_>) -> Nearness {
        let promised = self.promises.on(machine).nearness();
        promised.or_else(|| self.rungs.as_ref()?.first_on(machine)).unwrap_or(self.nearness)
    }

    /// How many nodes can serve the claim: present ones, and remembered machines.
    pub(crate) fn nodes(&self, machines: &[Machine<'_>]) -> (usize, usize) {
        self.promises.nodes(machines)
    }

    /// Returns true if the claim is valid only on known shapes.
    pub(crate) fn needs_shapes(&self) -> bool {
        self.form.only.is_some()
            || self.form.ways().any(|way| match way {
                form::Way::Attribute { only, .. } => only.is_some(),
                form::Way::Cell(_) | form::Way::Across(_) => true,
                form::Way::Pinned(_) | form::Way::Late(_) | form::Way::Any => false,
            })
    }

    /// Returns true if the claim lists shapes or devices although the pod takes a part of a machine.
    pub(crate) fn lists_shapes(&self) -> bool {
        self.needs_shapes() && self.join != "whole"
    }
}

/// The cells of a machine at a level, with devices that are not published now.
pub(super) fn full_cells(machine: &Machine<'_>, nearness: Nearness) -> Vec<Cell> {
    let topology = machine.devices.topology;
    match nearness {
        Nearness::Level(level) => topology.cells_of_all(level),
        Nearness::Partner => machine.all_partners(),
    }
}

/// The candidates in which each machine has the nearness of its level, best join first. They have
/// at most `room` alternatives.
pub(crate) fn required<'m>(
    fleet: Fleet<'_, 'm>,
    levels: &Levels<'m>,
    room: usize,
) -> Vec<Candidate<'m>> {
    let mut candidates = attributes::propose(fleet, levels);
    candidates.extend(attributes::mixed(fleet, levels, room));
    candidates.extend(cells::propose(fleet, levels, room));
    candidates
}

pub(crate) use across::{by_numa, of_all, of_blocks};
/// Claims for named cells, if no other join works at this nearness.
pub(crate) use pinned::{machine_types, propose as pinned};
use preferred::Rungs;
/// Any devices, for preferred alignment.
pub(crate) use preferred::unaligned;
pub(crate) use preferred::{Preferred, counts, extended, propose as preferred};
/// The candidates for whole machines in which each machine has the nearness of its level.
pub(crate) use whole::propose as whole;
