//! Joins: methods to tie GPUs to NICs in one claim. A join is valid where the published attribute
//! values agree with the graph.
//!
//! A join lists the *ways* in which the devices of a block may be near each other ([`form::Way`]);
//! `form` writes them as requests and constraints.

mod attributes;
mod cells;
pub(crate) mod form;
pub(crate) mod pinned;
mod pinned_cell;
mod preferred;
pub(crate) mod seen;
mod ways;
mod whole;

use crate::cost::{Empty, Trial};
use crate::demand::Demand;
use crate::gpu_sharing::SharedGpus;
use crate::nearness::Nearness;
use crate::nic_class::NicClass;
use cluster_model::gpu_drivers::GpuDriver;
use cluster_model::machines::Machine;
use form::Form;
use k8s_openapi::api::resource::v1::CapacityRequirements;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use topology_graph::{Cell, Level};

/// The join without constraints: any devices, since none can be near.
pub(crate) const UNALIGNED: &str = "any";

/// The names of the DeviceClasses of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Classes {
    pub(crate) gpu: String,
    pub(crate) nic: String,
}

/// The input from which joins are proposed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) demand: &'a Demand,
    /// The same demand as plain counts, if that is possible.
    pub(crate) counts: Option<&'a Demand>,
    pub(crate) driver: &'static GpuDriver,
    pub(crate) machines: &'a [Machine<'a>],
    /// The rails of the NICs, if any are set; `machines` then have no other NICs.
    pub(crate) rails: &'a [i64],
    /// What the NICs are for; `machines` have no others.
    pub(crate) nic_class: &'a NicClass,
    /// The capacity that the claim requests from each NIC, if the pod shares them; `machines` then
    /// have no other NICs.
    pub(crate) capacity: Option<&'a CapacityRequirements>,
    /// How the claim takes whole GPUs, if claims can share some of them.
    pub(crate) shared_gpus: Option<&'a SharedGpus>,
}

/// A claim that a join proposes for the demand.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// The name of the join.
    pub(crate) join: &'static str,
    /// Explains to the user why it ties the right devices.
    pub(crate) why: String,
    /// The nearness that it guarantees on most nodes.
    pub(crate) nearness: Nearness,
    /// For each machine of the question, the nearness that it guarantees there; for preferred
    /// alignment, the nearest that it tries. `None` if it does not serve the machine, or with any
    /// devices.
    pub(crate) levels: Vec<Option<Nearness>>,
    /// The blocks that the claim requests.
    pub(crate) demand: Demand,
    /// How the blocks are tied.
    pub(crate) form: Form,
    /// For each machine of the question, whether it can serve the claim.
    pub(crate) serves: Vec<bool>,
    /// Why some pods get devices that are not near.
    pub(crate) far_because: &'static str,
    /// The rungs of its ladder, to which those of remembered machines can be added.
    pub(crate) rungs: Option<Rungs>,
}

/// The reason why a pod gets any devices, if no machine can serve near ones.
pub(crate) const FAR: &str = "no node can align them";

impl Candidate {
    /// How many nodes can serve the claim: present ones, and remembered machines.
    pub(crate) fn nodes(&self, machines: &[Machine<'_>]) -> (usize, usize) {
        let serving = machines.iter().zip(&self.serves).filter(|(_, serves)| **serves);
        serving.fold((0, 0), |(present, all), (machine, _)| {
            let (more, more_in_all) = machine.weight();
            (present + more, all + more_in_all)
        })
    }

    /// The candidate without the machines on which the claim gets nothing, and without the levels of
    /// those on which it gets any devices only.
    pub(crate) fn only_where(mut self, trial: &Trial) -> Self {
        self.serves = trial.only(&self.serves, Empty::LastResort);
        for (level, empty) in self.levels.iter_mut().zip(&trial.empty) {
            *level = level.filter(|_| *empty == Empty::All);
        }
        self
    }

    /// Returns true if it gives near devices on any machine.
    pub(crate) fn is_near(&self) -> bool {
        self.levels.iter().any(Option::is_some)
    }

    /// Returns true if the claim is valid only on known shapes.
    pub(crate) fn needs_shapes(&self) -> bool {
        self.form.only.is_some()
            || self.form.ways.iter().any(|way| match way {
                form::Way::Attribute { only, .. } => only.is_some(),
                form::Way::Cell(_) => true,
                form::Way::Pinned(_) | form::Way::Any => false,
            })
    }
}

/// The nearness on most of the served nodes, and the level of each served machine.
pub(super) fn guarantee(
    question: Question<'_>,
    levels: &[Option<Nearness>],
    serves: &[bool],
) -> (Nearness, Vec<Option<Nearness>>) {
    let guaranteed: Vec<_> =
        levels.iter().zip(serves).map(|(level, serves)| level.filter(|_| *serves)).collect();
    let mut nodes: BTreeMap<Nearness, (usize, usize)> = BTreeMap::new();
    for (machine, level) in question.machines.iter().zip(&guaranteed) {
        let Some(level) = level else { continue };
        let (present, all) = machine.weight();
        let known = nodes.entry(*level).or_default();
        *known = (known.0 + present, known.1 + all);
    }
    let most = nodes.into_iter().max_by_key(|(level, nodes)| (*nodes, Reverse(*level)));
    (most.map_or(Nearness::Level(Level::Numa), |(level, _)| level), guaranteed)
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
pub(crate) fn required(
    question: Question<'_>,
    levels: &[Option<Nearness>],
    room: usize,
) -> Vec<Candidate> {
    let mut candidates = attributes::propose(question, levels);
    candidates.extend(attributes::mixed(question, levels, room));
    candidates.extend(cells::propose(question, levels, room));
    candidates
}

/// The candidates for whole machines in which each machine has the nearness of its level.
pub(crate) fn whole(question: Question<'_>, levels: &[Option<Nearness>]) -> Vec<Candidate> {
    whole::propose(question, levels)
}

/// Returns true if pairs only leave devices of the machine unused: the NICs of its pairs are not
/// nearer than its other NICs. If pods share NICs, also returns true if the machine has GPUs
/// without a pair, which could share the NICs of others.
pub(crate) fn pairs_strand(question: Question<'_>, machine: &Machine<'_>) -> bool {
    let leaves_gpus = machine.partners().len() < machine.devices.gpus.len();
    (question.capacity.is_some() && leaves_gpus) || !machine.has_nearer_partners()
}

/// Claims for named cells, if no other join works at this nearness.
pub(crate) use pinned::{machine_types, propose as pinned};
use preferred::Rungs;
/// Any devices, for preferred alignment.
pub(crate) use preferred::unaligned;
pub(crate) use preferred::{Preferred, counts, extended, propose as preferred};
