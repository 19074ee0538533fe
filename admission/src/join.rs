//! The ways to tie GPUs to NICs in one claim, each of which holds where live
//! attribute values and the graph agree.
//!
//! A join says by which *ways* a block of devices may be near ([`form::Way`]);
//! `form` writes them down as requests and constraints.

mod attributes;
mod cells;
pub(crate) mod form;
pub(crate) mod pinned;
mod preferred;
mod whole;

use crate::demand::Demand;
use crate::nearness::Nearness;
use cluster_model::gpu_drivers::GpuDriver;
use cluster_model::machines::Machine;
use form::Form;
use k8s_openapi::api::resource::v1::CapacityRequirements;

/// The join that ties nothing: any devices, as none can be near.
pub(crate) const UNALIGNED: &str = "any";

/// Names of the device classes that a claim draws from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Classes {
    pub(crate) gpu: String,
    pub(crate) nic: String,
}

/// What joins are proposed from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) demand: &'a Demand,
    /// The same by plain counts, where that can be said.
    pub(crate) counts: Option<&'a Demand>,
    pub(crate) driver: &'static GpuDriver,
    pub(crate) machines: &'a [Machine<'a>],
    /// The rail of the NICs, where it is given; the machines have no others.
    pub(crate) rail: Option<i64>,
    /// What the claim takes of each NIC, where the pod shares them; the machines have no others.
    pub(crate) capacity: Option<&'a CapacityRequirements>,
}

/// A way to meet the demand that a join proposes.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Name of the join.
    pub(crate) join: &'static str,
    /// Why it ties the right devices, for a person.
    pub(crate) why: String,
    /// What the devices are promised to share.
    pub(crate) nearness: Nearness,
    /// The blocks that the claim asks for.
    pub(crate) demand: Demand,
    /// How they are tied.
    pub(crate) form: Form,
    /// For each machine of the question, whether it can serve.
    pub(crate) serves: Vec<bool>,
}

impl Candidate {
    /// How many nodes can serve.
    pub(crate) fn nodes(&self, machines: &[Machine<'_>]) -> usize {
        let serving = machines.iter().zip(&self.serves).filter(|(_, serves)| **serves);
        serving.map(|(machine, _)| machine.nodes.len()).sum()
    }
}

/// What binds at this nearness, best join first.
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

/// Returns true if pairs leave devices unused and gain nothing: no machine has a NIC that is
/// nearer than those that the pairs leave out. Or, where pods share NICs, if a machine has GPUs
/// that the pairs leave without one: these could share the NICs of others.
pub(crate) fn pairs_strand(question: Question<'_>) -> bool {
    let leaves_gpus = |machine: &Machine<'_>| machine.partners().len() < machine.devices.gpus.len();
    if question.capacity.is_some() && question.machines.iter().any(leaves_gpus) {
        return true;
    }
    !question.machines.iter().any(Machine::has_nearer_partners)
}

/// Claims for named cells, where nothing else binds at this nearness.
pub(crate) use pinned::propose as pinned;
/// Any devices, where near ones are only preferred.
pub(crate) use preferred::unaligned;
pub(crate) use preferred::{WEAKEST, propose as preferred};
