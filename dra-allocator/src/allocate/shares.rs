//! Capacity during a search: what requests take of devices, and what is being taken.
//!
//! The allocating side of `consumable_capacity.go`.

use super::capacity::{Asked, CapacityError, Demand, demand};
use crate::device::Device;
use crate::quantity::Quantity;
use crate::settings::Settings;
use crate::state::PoolState;

/// What is known of a request and a device.
#[derive(Clone, Debug)]
enum Known {
    NotAsked,
    /// The device lacks a capacity that is asked for.
    Lacking,
    Demand(Demand),
}

/// Demands and shares of all candidates; filled when first asked.
#[derive(Debug)]
pub(super) struct Shares {
    candidates: usize,
    /// By ask and candidate.
    demands: Vec<Known>,
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
    /// For so many candidates.
    pub(super) fn new(candidates: usize) -> Self {
        Self { candidates, demands: Vec::new(), taking: Vec::new() }
    }

    fn at(&mut self, ask: usize, candidate: usize) -> &mut Known {
        let needed = (ask + 1) * self.candidates;
        if self.demands.len() < needed {
            self.demands.resize(needed, Known::NotAsked);
            self.taking.resize(self.candidates, Taking::default());
        }
        &mut self.demands[ask * self.candidates + candidate]
    }

    /// Whether a device has what an ask takes, beside what is in use and being taken.
    pub(super) fn fits(
        &mut self,
        (ask, asked): (usize, Asked<'_>),
        (candidate, device): (usize, &Device),
        in_use: PoolState<'_>,
        settings: &Settings,
    ) -> Result<bool, CapacityError> {
        let known = self.at(ask, candidate);
        if matches!(known, Known::NotAsked) {
            let in_use = in_use.capacity_in_use(&device.id.device).unwrap_or_default();
            let demand = demand(asked, device, in_use, settings)?;
            *known = demand.map_or(Known::Lacking, Known::Demand);
        }
        let Known::Demand(demand) = &self.demands[ask * self.candidates + candidate] else {
            return Ok(false);
        };
        let taking = &self.taking[candidate];
        Ok(demand.fits((taking.shares > 0).then_some(&*taking.sums)))
    }

    /// Takes a share that was found to fit, where anything is asked or there to be taken.
    pub(super) fn take(&mut self, ask: usize, candidate: usize) {
        // Where nothing is asked or there to be taken, nobody asked whether it fits.
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

    /// Gives a share back.
    pub(super) fn give_back(&mut self, ask: usize, candidate: usize) {
        let Self { demands, taking, candidates } = self;
        let (taking, amounts) =
            (&mut taking[candidate], amounts(&demands[ask * *candidates + candidate]));
        taking.shares -= 1;
        for (sum, (amount, _)) in taking.sums.iter_mut().zip(amounts) {
            *sum -= amount.nanos();
        }
    }

    /// What a share takes that was taken, in the order of the device's capacities.
    pub(super) fn amounts(&self, ask: usize, candidate: usize) -> impl Iterator<Item = Quantity> {
        let known = self.demands.get(ask * self.candidates + candidate);
        known.map_or(&[][..], amounts).iter().map(|(amount, _)| *amount)
    }

    /// Whether a share of the device is being taken.
    pub(super) fn is_taking(&self, candidate: usize) -> bool {
        self.taking.get(candidate).is_some_and(|taking| taking.shares > 0)
    }
}

/// What a request takes of each capacity, and what is left.
fn amounts(known: &Known) -> &[(Quantity, i128)] {
    match known {
        Known::Demand(demand) => &demand.amounts,
        Known::NotAsked | Known::Lacking => &[],
    }
}
