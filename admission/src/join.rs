//! The ways to tie GPUs to NICs in one claim, each of which holds where live
//! attribute values and the graph agree.

pub(crate) mod cells;
pub(crate) mod partner;

use crate::intent::Intent;
use cluster_model::node_devices::NodeDevices;
use k8s_openapi::api::resource::v1::{DeviceConstraint, DeviceRequest};
use topology_graph::PciAddress;

/// Names of the device classes that a claim draws from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Classes {
    pub(crate) gpu: String,
    pub(crate) nic: String,
}

/// What a join is proposed from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) intent: &'a Intent,
    pub(crate) classes: &'a Classes,
    pub(crate) nodes: &'a [NodeDevices<'a>],
}

/// A claim that a join proposes.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Name of the join.
    pub(crate) join: &'static str,
    /// Why it ties the right devices, for a person.
    pub(crate) why: String,
    pub(crate) requests: Vec<DeviceRequest>,
    pub(crate) constraints: Vec<DeviceConstraint>,
    /// Those of the requests that are for NICs.
    pub(crate) nic_requests: Vec<String>,
    /// For each node in the question, the NICs that the claim can select
    /// there; empty where the node cannot serve.
    pub(crate) selectable_nics: Vec<Vec<PciAddress>>,
}

impl Candidate {
    /// How many nodes can serve.
    pub(crate) fn serving(&self) -> usize {
        self.selectable_nics.iter().filter(|nics| !nics.is_empty()).count()
    }
}

/// The claims that the joins propose, best join first.
pub(crate) fn candidates(question: Question<'_>) -> Vec<Candidate> {
    [partner::propose(question), cells::propose(question)].into_iter().flatten().collect()
}
