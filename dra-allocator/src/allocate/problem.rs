//! What a search is about: the claims, what their requests need, and the devices of the node.

use std::sync::Arc;

use smallvec::SmallVec;

use super::capacity::CapacityError;
use super::constraint::Kind;
use super::error::AllocateError;
use crate::claim::{Ask, Claim, Class};
use crate::device::Device;
use crate::inventory::Pool;
use crate::node::Node;
use crate::settings::Settings;
use crate::slice::Slice;
use crate::state::PoolState;

/// A device that the search may try, in the order of the search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) device: &'a Device,
    pub(super) slice: &'a Slice,
    /// The number of its pool.
    pub(super) pool: usize,
}

/// A request without subrequests, or a subrequest.
#[derive(Debug)]
pub(super) struct PreparedAsk<'a> {
    pub(super) claim: usize,
    /// The number of its request in the claim.
    pub(super) request: usize,
    /// The name of the request, where this is a subrequest.
    pub(super) parent: Option<&'a Arc<str>>,
    pub(super) ask: &'a Ask,
    pub(super) class: &'a Class,
    /// The first ask that judges devices as this one does.
    pub(super) equivalent: usize,
    /// How many devices it needs.
    pub(super) count: i64,
    /// The devices of a request for all.
    pub(super) all: Vec<usize>,
    /// The numbers of the claim's constraints that bind it.
    pub(super) constraints: Vec<usize>,
}

impl PreparedAsk<'_> {
    /// `request` or `request/subrequest`.
    pub(super) fn full_name(&self) -> Arc<str> {
        match self.parent {
            None => self.ask.name.clone(),
            Some(parent) => format!("{parent}/{}", self.ask.name).into(),
        }
    }
}

/// A request: where its asks are.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreparedRequest {
    pub(super) first_ask: usize,
    pub(super) asks: usize,
    pub(super) prioritized: bool,
}

/// A claim: where its requests and constraints are.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreparedClaim<'a> {
    pub(super) claim: &'a Claim,
    pub(super) first_request: usize,
    pub(super) first_constraint: usize,
}

/// All that a search needs.
#[derive(Debug)]
pub(super) struct Problem<'a> {
    pub(super) settings: &'a Settings,
    pub(super) node: &'a Node,
    pub(super) pools: &'a [Pool<'a>],
    /// By pool: what is in use of it.
    pub(super) in_use: SmallVec<[PoolState<'a>; 4]>,
    /// The devices of complete pools.
    pub(super) candidates: Vec<Candidate<'a>>,
    // An attempt is short, and a list on the heap costs as much as a step of the search. So the
    // lists are those of all claims together, and short ones lie here.
    pub(super) claims: SmallVec<[PreparedClaim<'a>; 2]>,
    pub(super) requests: SmallVec<[PreparedRequest; 4]>,
    pub(super) constraints: SmallVec<[(Kind, &'a Arc<str>); 2]>,
    pub(super) asks: SmallVec<[PreparedAsk<'a>; 2]>,
}

impl Problem<'_> {
    /// The requests of a claim.
    pub(super) fn requests_of(&self, claim: &PreparedClaim<'_>) -> &[PreparedRequest] {
        &self.requests[claim.first_request..][..claim.claim.requests.len()]
    }

    pub(super) fn capacity_error(
        claim: &Claim,
        ask: &PreparedAsk<'_>,
        device: &Device,
        source: CapacityError,
    ) -> AllocateError {
        AllocateError::Capacity {
            claim: claim.name.clone(),
            request: ask.ask.name.clone(),
            device: device.id.clone(),
            source,
        }
    }
}
