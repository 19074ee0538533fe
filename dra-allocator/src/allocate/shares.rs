//! Capacity during a search: what requests take from devices, and what the search has taken.
//!
//! Follows the allocating side of `consumable_capacity.go`.

use super::capacity::{Asked, CapacityError, Demand, demand};
use crate::device::Device;
use crate::quantity::Quantity;
use crate::settings::Settings;
use crate::state::PoolState;

/// What is known about a request and a device.
#[derive(Clone, Debug)]
enum KnownDemand {
    NotAsked,
    /// The device lacks a requested capacity.
    Lacking,
    Demand(Demand),
}

/// The demands and taken shares of all candidates; computed on first use.
#[derive(Debug)]
pub(super) struct Shares {
    candidates: usize,
    /// By request and candidate.
    demands: Vec<KnownDemand>,
    /// By candidate.
    taking: Vec<Taking>,
}

/// The shares of a device that the search has taken.
#[derive(Clone, Debug, Default)]
struct Taking {
    shares: usize,
    /// In the order of the device's capacities.
    sums: Vec<i128>,
}

impl Shares {
    /// Creates shares for this number of candidates.
    pub(super) fn new(candidates: usize) -> Self {
        Self { candidates, demands: Vec::new(), taking: Vec::new() }
    }

    fn at(&mut self, ask: usize, candidate: usize) -> &mut KnownDemand {
        let needed = (ask + 1) * self.candidates;
        if self.demands.len() < needed {
            self.demands.resize(needed, KnownDemand::NotAsked);
            self.taking.resize(self.candidates, Taking::default());
        }
        &mut self.demands[ask * self.candidates + candidate]
    }

    /// Returns true if the device has the capacity that a request takes, given what is in use and
    /// taken.
    pub(super) fn fits(
        &mut self,
        (ask, asked): (usize, Asked<'_>),
        (candidate, device): (usize, &Device),
        in_use: PoolState<'_>,
        settings: &Settings,
    ) -> Result<bool, CapacityError> {
        let known = self.at(ask, candidate);
        if matches!(known, KnownDemand::NotAsked) {
            let in_use = in_use.capacity_in_use(&device.id.device).unwrap_or_default();
            let demand = demand(asked, device, in_use, settings)?;
            *known = demand.map_or(KnownDemand::Lacking, KnownDemand::Demand);
        }
        let KnownDemand::Demand(demand) = &self.demands[ask * self.candidates + candidate] else {
            return Ok(false);
        };
        let taking = &self.taking[candidate];
        Ok(demand.fits((taking.shares > 0).then_some(&*taking.sums)))
    }

    /// Takes a share. The caller has checked that it fits, unless there is no capacity to check.
    pub(super) fn take(&mut self, ask: usize, candidate: usize) {
        // Without a capacity to check, `fits` was not called for this pair.
        self.at(ask, candidate);
        let Self { demands, taking, candidates } = self;
        let (taking, amounts) =
            (&mut taking[candidate], amounts(&demands[ask * *candidates + candidate]));
        taking.shares += 1;
        taking.sums.resize(amounts.len(), 0);
        for (sum, (amount, _)) in taking.sums.iter_mut().zip(amounts) {
            *sum += amount.nanos();
        }
    }

    /// Releases a share.
    pub(super) fn give_back(&mut self, ask: usize, candidate: usize) {
        let Self { demands, taking, candidates } = self;
        let (taking, amounts) =
            (&mut taking[candidate], amounts(&demands[ask * *candidates + candidate]));
        taking.shares -= 1;
        for (sum, (amount, _)) in taking.sums.iter_mut().zip(amounts) {
            *sum -= amount.nanos();
        }
    }

    /// The amounts of a taken share, in the order of the device's capacities.
    pub(super) fn amounts(&self, ask: usize, candidate: usize) -> impl Iterator<Item = Quantity> {
        let known = self.demands.get(ask * self.candidates + candidate);
        known.map_or(&[][..], amounts).iter().map(|(amount, _)| *amount)
    }

    /// Returns true if the search has taken a share of the device.
    pub(super) fn is_taking(&self, candidate: usize) -> bool {
        self.taking.get(candidate).is_some_and(|taking| taking.shares > 0)
    }
}

/// The amount that a request takes of each capacity, and what is left.
fn amounts(known: &KnownDemand) -> &[(Quantity, i128)] {
    match known {
        KnownDemand::Demand(demand) => &demand.amounts,
        KnownDemand::NotAsked | KnownDemand::Lacking => &[],
    }
}
