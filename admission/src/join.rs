//! Joins: methods to tie GPUs to NICs in one claim. A join is valid where the published attribute
//! values agree with the graph.
//!
//! A join lists the *ways* in which the devices of a block may be near each other ([`form::Way`]);
//! `form` writes them as requests and constraints.

mod attributes;
mod cells;
pub(crate) mod form;
pub(crate) mod pinned;
mod preferred;
mod whole;

use crate::demand::Demand;
use crate::nearness::Nearness;
use crate::nic_class::NicClass;
use cluster_model::gpu_drivers::GpuDriver;
use cluster_model::machines::Machine;
use form::Form;
use k8s_openapi::api::resource::v1::CapacityRequirements;

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
    /// The rail of the NICs, if set; `machines` then have no other NICs.
    pub(crate) rail: Option<i64>,
    /// What the NICs are for; `machines` have no others.
    pub(crate) nic_class: &'a NicClass,
    /// The capacity that the claim requests from each NIC, if the pod shares them; `machines` then
    /// have no other NICs.
    pub(crate) capacity: Option<&'a CapacityRequirements>,
}

/// A claim that a join proposes for the demand.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// The name of the join.
    pub(crate) join: &'static str,
    /// Explains to the user why it ties the right devices.
    pub(crate) why: String,
    /// The nearness that it guarantees.
    pub(crate) nearness: Nearness,
    /// The blocks that the claim requests.
    pub(crate) demand: Demand,
    /// How the blocks are tied.
    pub(crate) form: Form,
    /// For each machine of the question, whether it can serve the claim.
    pub(crate) serves: Vec<bool>,
}

impl Candidate {
    /// The number of nodes that can serve the claim.
    pub(crate) fn nodes(&self, machines: &[Machine<'_>]) -> usize {
        let serving = machines.iter().zip(&self.serves).filter(|(_, serves)| **serves);
        serving.map(|(machine, _)| machine.nodes.len()).sum()
    }
}

/// The candidates that require this nearness, best join first.
pub(crate) fn required(question: Question<'_>, nearness: Nearness) -> Vec<Candidate> {
    // A pair has one GPU; a larger block has no partners.
    if nearness == Nearness::Partner && question.demand.gpus > 1 {
        return Vec::new();
    }
    let mut candidates = attributes::propose(question, nearness);
    candidates.extend(whole::propose(question, nearness));
    candidates.extend(cells::propose(question, nearness));
    candidates
}

/// Returns true if pairs only leave devices unused: no machine has paired NICs that are nearer
/// than its other NICs. If pods share NICs, also returns true if a machine has GPUs without a
/// pair, which could share the NICs of others.
pub(crate) fn pairs_strand(question: Question<'_>) -> bool {
    let leaves_gpus = |machine: &Machine<'_>| machine.partners().len() < machine.devices.gpus.len();
    if question.capacity.is_some() && question.machines.iter().any(leaves_gpus) {
        return true;
    }
    !question.machines.iter().any(Machine::has_nearer_partners)
}

/// Claims for named cells, if no other join works at this nearness.
pub(crate) use pinned::propose as pinned;
pub(crate) use preferred::propose as preferred;
/// Any devices, for preferred alignment.
pub(crate) use preferred::unaligned;
