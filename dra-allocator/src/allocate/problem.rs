//! The input of a search: the claims, what their requests need, and the node's devices.

use std::sync::Arc;

use smallvec::SmallVec;

use super::capacity::CapacityError;
use super::constraint::Kind;
use super::error::AllocateError;
use crate::budget::Budget;
use crate::claim::{Ask, Claim, Class};
use crate::device::Device;
use crate::inventory::Pool;
use crate::node::Node;
use crate::settings::Settings;
use crate::slice::Slice;
use crate::state::PoolState;

/// A device that the search may try; candidates are in search order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) device: &'a Device,
    pub(super) slice: &'a Slice,
    /// The index of its pool.
    pub(super) pool: usize,
}

/// A request without subrequests, or a subrequest.
#[derive(Debug)]
pub(super) struct PreparedAsk<'a> {
    pub(super) claim: usize,
    /// The index of its request in the claim.
    pub(super) request: usize,
    /// The name of the request if this is a subrequest.
    pub(super) parent: Option<&'a Arc<str>>,
    pub(super) ask: &'a Ask,
    pub(super) class: &'a Class,
    /// The index of the first request or subrequest that selects devices in the same way.
    pub(super) equivalent: usize,
    /// The number of devices that it needs.
    pub(super) count: i64,
    /// The devices for mode `All`.
    pub(super) all: Vec<usize>,
    /// The indices of the claim's constraints that bind it.
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

/// A request: the range of its alternatives.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreparedRequest {
    pub(super) first_ask: usize,
    pub(super) asks: usize,
    pub(super) prioritized: bool,
}

/// A claim: the ranges of its requests and constraints.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreparedClaim<'a> {
    pub(super) claim: &'a Claim,
    pub(super) first_request: usize,
    pub(super) first_constraint: usize,
}

/// Everything that a search needs.
#[derive(Debug)]
pub(super) struct Problem<'a> {
    pub(super) settings: &'a Settings,
    pub(super) budget: &'a Budget<'a>,
    pub(super) node: &'a Node,
    pub(super) pools: &'a [Pool<'a>],
    /// What is in use of each pool.
    pub(super) in_use: SmallVec<[PoolState<'a>; 4]>,
    /// The devices of complete pools, in search order.
    pub(super) candidates: Vec<Candidate<'a>>,
    // An attempt is short, and allocating a list costs as much as a search step. Each list
    // therefore covers all claims, and short lists are stored inline.
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
