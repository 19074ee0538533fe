//! Checks of a request and a device that do not depend on other choices. Each is computed once,
//! when the search first meets the pair.

use super::super::problem::{PreparedAsk, Problem};
use super::halt::Halt;
use super::state::Search;
use super::verdicts::Verdict;
use crate::device::Device;

impl<'a> Search<'_, 'a> {
    /// Returns whether the request can take the device at all.
    pub(super) fn verdict(&mut self, ask: usize, candidate: usize) -> Result<Verdict, Halt> {
        match self.verdicts.known(self.problem.asks[ask].equivalent, candidate) {
            Some(known) => Ok(known),
            None => self.judge(ask, candidate),
        }
    }

    fn judge(&mut self, ask: usize, candidate: usize) -> Result<Verdict, Halt> {
        let problem = self.problem;
        let prepared = &problem.asks[ask];
        let claim = problem.claims[prepared.claim].claim;
        let device = self.device(candidate);
        let fits = problem.is_selectable(claim, prepared, &problem.candidates[candidate])?
            // The free capacity of a shared device changes during the search; errors in amounts do
            // not.
            && (self.has_capacity(ask, candidate)? || self.is_shareable(device))
            && self.can_be_operated(candidate)
            && (self.draws_before_taints(device) || !self.is_tainted_for(device, prepared));
        let verdict = if fits { Verdict::Yes } else { Verdict::No };
        self.verdicts.note(prepared.equivalent, candidate, verdict);
        Ok(verdict)
    }

    pub(super) fn device(&self, candidate: usize) -> &'a Device {
        self.problem.candidates[candidate].device
    }

    pub(super) fn is_shareable(&self, device: &Device) -> bool {
        self.problem.settings.gates.consumable_capacity && device.allows_multiple_allocations()
    }

    pub(super) fn is_tainted_for(&self, device: &Device, ask: &PreparedAsk<'_>) -> bool {
        self.problem.settings.gates.device_taints && ask.ask.untolerated(device).is_some()
    }

    /// Returns true if it matters that Kubernetes checks counters before taints: with quirk
    /// `counters_by_pool_name`, the first device of any pool with that name decides which counters
    /// exist.
    pub(super) fn draws_before_taints(&self, device: &Device) -> bool {
        self.problem.settings.quirks.counters_by_pool_name && !device.consumes_counters().is_empty()
    }

    /// Returns true if the node declares the feature that devices with skipped node operations
    /// need.
    pub(super) fn can_be_operated(&self, candidate: usize) -> bool {
        let feature = "DRAOptionalNodeOperations";
        let declared = &self.problem.node.declared_features;
        self.problem.candidates[candidate].slice.skip_node_operations.is_empty()
            || (self.problem.settings.gates.optional_node_operations
                && declared.iter().any(|declared| **declared == *feature))
    }

    /// Returns true if the device has the capacity that the request takes, given what is in use and
    /// being allocated.
    pub(super) fn has_capacity(&mut self, ask: usize, candidate: usize) -> Result<bool, Halt> {
        let Problem { settings, candidates, in_use, asks, claims, .. } = self.problem;
        let (prepared, device) = (&asks[ask], candidates[candidate].device);
        let asked = prepared.ask.capacity.as_deref();
        if !settings.gates.consumable_capacity || (asked.is_none() && device.capacity.is_empty()) {
            return Ok(true);
        }
        let in_use = in_use[candidates[candidate].pool];
        let fits =
            self.shares.fits((prepared.equivalent, asked), (candidate, device), in_use, settings);
        fits.map_err(|source| {
            Problem::capacity_error(claims[prepared.claim].claim, prepared, device, source).into()
        })
    }
}
