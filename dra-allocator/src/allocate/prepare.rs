//! Checks claims before the search and computes what their requests need.
//!
//! Follows the first half of `Allocate`, and `validateDeviceRequest`, in `allocator_*.go`.

use std::sync::Arc;

use super::capacity;
use super::constraint::Kind;
use super::error::{AllocateError, Failure};
use super::limits::MAX_DEVICES;
use super::problem::{Candidate, PreparedAsk, PreparedClaim, PreparedRequest, Problem};
use crate::budget::Budget;
use crate::claim::{AllocationMode, Ask, Claim, ConstraintKind, Request};
use crate::inventory::{Inventory, Pool, PoolHealth};
use crate::node::Node;
use crate::settings::Settings;
use crate::state::AllocatedState;

/// The deepest search that fits on a thread's stack.
const MAX_DEPTH: usize = 2000;

/// [`MAX_DEVICES`] with the type of counts.
const MAX_COUNT: i64 = 32;

/// Checks claims and computes what their requests need.
pub(super) fn prepare<'a>(
    inventory: &'a Inventory,
    node: &'a Node,
    pools: &'a [Pool<'a>],
    claims: &'a [Claim],
    state: &'a AllocatedState,
    settings: &'a Settings,
    budget: &'a Budget<'a>,
) -> Result<Problem<'a>, Failure> {
    let candidates = candidates(pools);
    let in_use = pools.iter().map(|pool| state.pool(pool.id)).collect();
    let (claims_done, requests, constraints, asks) = Default::default();
    let mut problem = Problem {
        settings,
        budget,
        node,
        pools,
        in_use,
        candidates,
        claims: claims_done,
        requests,
        constraints,
        asks,
    };
    for claim in claims {
        problem.add_claim(inventory, claim)?;
    }
    let depth = problem.depth();
    if depth > MAX_DEPTH {
        return Err(AllocateError::TooDeep(depth).into());
    }
    Ok(problem)
}

fn candidates<'a>(pools: &[Pool<'a>]) -> Vec<Candidate<'a>> {
    let slices = pools.iter().flat_map(|pool| &pool.slices);
    let count = slices.map(|slice| slice.devices.len()).sum();
    let mut candidates = Vec::with_capacity(count);
    for (pool, gathered) in pools.iter().enumerate() {
        for &slice in &gathered.slices {
            candidates.extend(slice.devices.iter().map(|device| Candidate { device, slice, pool }));
        }
    }
    candidates
}

impl<'a> Problem<'a> {
    fn add_claim(&mut self, inventory: &'a Inventory, claim: &'a Claim) -> Result<(), Failure> {
        let number = self.claims.len();
        let (first_request, first_constraint) = (self.requests.len(), self.constraints.len());
        let mut least = 0;
        for request in &claim.requests {
            let prepared = self.add_request(inventory, number, claim, request)?;
            let asks = &self.asks[prepared.first_ask..];
            let adding = asks.iter().map(|ask| ask.count).min().unwrap_or_default();
            if adding > MAX_COUNT.saturating_sub(least) {
                return Err(AllocateError::TooManyDevices {
                    claim: claim.name.clone(),
                    request: request.name.clone(),
                    adding,
                    already: least,
                }
                .into());
            }
            least = least.saturating_add(adding);
            self.requests.push(prepared);
        }
        self.add_constraints(claim)?;
        self.claims.push(PreparedClaim { claim, first_request, first_constraint });
        Ok(())
    }

    fn add_constraints(&mut self, claim: &'a Claim) -> Result<(), Failure> {
        let no_distinct = self.settings.quirks.no_distinct_attribute;
        for (index, constraint) in claim.constraints.iter().enumerate() {
            self.constraints.push(match &constraint.kind {
                ConstraintKind::Match(name) => (Kind::Match, name),
                ConstraintKind::Distinct(name) if !no_distinct => (Kind::Distinct, name),
                ConstraintKind::Distinct(_) | ConstraintKind::Unknown => {
                    let claim = claim.name.clone();
                    return Err(AllocateError::UnknownConstraint { claim, index }.into());
                }
            });
        }
        Ok(())
    }

    fn add_request(
        &mut self,
        inventory: &'a Inventory,
        number: usize,
        claim: &'a Claim,
        request: &'a Request,
    ) -> Result<PreparedRequest, Failure> {
        let prioritized = request.is_prioritized();
        if prioritized && !self.settings.gates.prioritized_list {
            return Err(disabled(claim, &request.name, "has subrequests", "DRAPrioritizedList"));
        }
        // The stable allocator does not check capacity.
        let capacity_matters = !self.settings.quirks.permutations;
        let mut asks = request.asks().iter();
        if capacity_matters
            && !self.settings.gates.consumable_capacity
            && let Some(ask) = asks.find(|ask| ask.capacity.is_some())
        {
            let gate = "DRAConsumableCapacity";
            return Err(disabled(claim, &ask.name, "has capacity requests", gate));
        }
        if request.asks().is_empty() {
            return Err(AllocateError::NoClass {
                claim: claim.name.clone(),
                request: request.name.clone(),
            }
            .into());
        }
        let first_ask = self.asks.len();
        for ask in request.asks() {
            let parent = prioritized.then_some(&request.name);
            let mut prepared = self.prepared_ask(inventory, claim, (number, parent), ask)?;
            prepared.equivalent = self.equivalent(&prepared);
            self.asks.push(prepared);
        }
        Ok(PreparedRequest { first_ask, asks: request.asks().len(), prioritized })
    }

    fn prepared_ask(
        &self,
        inventory: &'a Inventory,
        claim: &'a Claim,
        (number, parent): (usize, Option<&'a Arc<str>>),
        ask: &'a Ask,
    ) -> Result<PreparedAsk<'a>, Failure> {
        let gates = &self.settings.gates;
        if !ask.derived_attributes.is_empty() && !gates.derived_attributes {
            let gate = "DRADerivedAttributes";
            return Err(disabled(claim, &ask.name, "has derived attributes", gate));
        }
        if let Some(index) = ask.selectors.iter().position(Option::is_none) {
            let (claim, request) = (claim.name.clone(), ask.name.clone());
            return Err(AllocateError::UnknownSelector { claim, request, index }.into());
        }
        if ask.admin_access.is_some() && !gates.admin_access {
            return Err(disabled(claim, &ask.name, "admin access is requested", "DRAAdminAccess"));
        }
        if ask.class.is_empty() {
            let (claim, request) = (claim.name.clone(), ask.name.clone());
            return Err(AllocateError::NoClass { claim, request }.into());
        }
        let class = inventory.class(&ask.class).ok_or_else(|| AllocateError::UnknownClass {
            claim: claim.name.clone(),
            request: ask.name.clone(),
            class: ask.class.clone(),
        })?;
        let request = parent.map_or(&ask.name, |parent| parent);
        let sub = parent.map(|_| &*ask.name);
        let constraints = claim.constraints.iter().enumerate();
        let constraints = constraints
            .filter(|(_, constraint)| constraint.binds(request, sub))
            .map(|(index, _)| index);
        let request_number = claim.requests.iter().position(|known| known.name == *request);
        let mut prepared = PreparedAsk {
            claim: number,
            request: request_number.unwrap_or_default(),
            parent,
            ask,
            class,
            equivalent: 0,
            count: 0,
            all: Vec::new(),
            constraints: constraints.collect(),
        };
        match &ask.mode {
            AllocationMode::ExactCount(count) => prepared.count = *count,
            AllocationMode::All => {
                prepared.all = self.all_devices(claim, &prepared)?;
                prepared.count = i64::try_from(prepared.all.len()).unwrap_or(i64::MAX);
            }
            AllocationMode::Unknown(mode) => {
                let (claim, request) = (claim.name.clone(), ask.name.clone());
                return Err(
                    AllocateError::UnknownMode { claim, request, mode: mode.clone() }.into()
                );
            }
        }
        Ok(prepared)
    }

    /// The devices of a request with mode `All`, including those in use: the request needs all of
    /// them.
    fn all_devices(&self, claim: &Claim, ask: &PreparedAsk<'_>) -> Result<Vec<usize>, Failure> {
        let mut all = Vec::new();
        let mut candidates = self.candidates.iter().enumerate().peekable();
        for (number, pool) in self.pools.iter().enumerate() {
            let problem = match pool.health {
                PoolHealth::Complete => None,
                PoolHealth::Incomplete { .. } => Some("being updated"),
                PoolHealth::Invalid(_) => Some("invalid"),
            };
            if let Some(problem) = problem {
                return Err(AllocateError::Pool {
                    claim: claim.name.clone(),
                    request: ask.ask.name.clone(),
                    pool: (*pool.id).clone(),
                    problem,
                }
                .into());
            }
            while let Some((index, candidate)) =
                candidates.next_if(|(_, candidate)| candidate.pool == number)
            {
                if self.is_selectable(claim, ask, candidate)?
                    && self.counts_for_all(claim, ask, candidate)?
                {
                    all.push(index);
                }
            }
        }
        Ok(all)
    }

    /// Returns true if a selected device counts for mode `All`. Its capacity must suffice. From
    /// 1.37 only its total capacity counts, so that a device without free capacity fails the
    /// request.
    fn counts_for_all(
        &self,
        claim: &Claim,
        ask: &PreparedAsk<'_>,
        candidate: &Candidate<'_>,
    ) -> Result<bool, Failure> {
        if !self.settings.gates.consumable_capacity {
            return Ok(true);
        }
        let device = candidate.device;
        let in_use = if self.settings.quirks.all_mode_drops_full_devices {
            let in_use = self.in_use[candidate.pool].capacity_in_use(&device.id.device);
            in_use.unwrap_or_default()
        } else {
            &[]
        };
        let asked = ask.ask.capacity.as_deref();
        let demand = capacity::demand(asked, device, in_use, self.settings);
        let demand = demand.map_err(|source| Self::capacity_error(claim, ask, device, source))?;
        Ok(demand.is_some_and(|demand| demand.fits(None)))
    }

    /// The maximum depth of the search: one level per device, and some for the steps from one
    /// request or claim to the next.
    fn depth(&self) -> usize {
        self.claims
            .iter()
            .map(|claim| {
                let requests = self.requests_of(claim);
                let needed = requests
                    .iter()
                    .map(|request| {
                        let asks = &self.asks[request.first_ask..][..request.asks];
                        let most = asks.iter().map(|ask| ask.count.clamp(0, MAX_COUNT)).max();
                        usize::try_from(most.unwrap_or_default()).unwrap_or(MAX_DEVICES) + 3
                    })
                    .sum::<usize>();
                needed.min(MAX_DEVICES + 3 * requests.len()) + 1
            })
            .sum()
    }
}

fn disabled(claim: &Claim, request: &Arc<str>, asks: &'static str, gate: &'static str) -> Failure {
    let (claim, request) = (claim.name.clone(), request.clone());
    AllocateError::Disabled { claim, request, asks, gate }.into()
}
