//! Checks whether a request may have a device, whether it is free or not.

use super::error::{AllocateError, Failure, SelectorFailure, SelectorPlace};
use super::problem::{Candidate, PreparedAsk, Problem};
use crate::cel::Selector;
use crate::claim::Claim;
use crate::device::Device;
use crate::inventory::GatherError;
use crate::slice::SliceTarget;

impl Problem<'_> {
    /// Returns true if a device passes the selectors and belongs to the node (`isSelectable`).
    pub(super) fn is_selectable(
        &self,
        claim: &Claim,
        ask: &PreparedAsk<'_>,
        candidate: &Candidate<'_>,
    ) -> Result<bool, Failure> {
        let device = candidate.device;
        if !self.settings.gates.binds_devices() && !device.binding_conditions().is_empty() {
            return Ok(false);
        }
        let class = ask.class.selectors.iter();
        if !self.passes(class, || SelectorPlace::Class(ask.class.name.clone()), device)? {
            return Ok(false);
        }
        let own = ask.ask.selectors.iter().flatten();
        if !self.passes(own, || SelectorPlace::Claim(claim.name.clone()), device)? {
            return Ok(false);
        }
        if candidate.slice.target != SliceTarget::PerDevice {
            return Ok(true);
        }
        let Some(target) = device.target() else { return Ok(false) };
        target.matches(self.node).map_err(|source| {
            let slice = candidate.slice.name.to_string();
            let device = device.id.device.to_string();
            AllocateError::from(GatherError::Device { device, slice, source }).into()
        })
    }

    fn passes<'s>(
        &self,
        selectors: impl Iterator<Item = &'s Selector>,
        place: impl Fn() -> SelectorPlace,
        device: &Device,
    ) -> Result<bool, Failure> {
        for (index, selector) in selectors.enumerate() {
            let failure = |source| AllocateError::Selector { place: place(), index, source };
            let compiled = selector.compiled(self.budget);
            let compiled = compiled.map_err(|e| failure(SelectorFailure::Compile(e)))?;
            let passes = compiled.matches_with(device, self.settings, self.budget);
            let passes = passes.map_err(|source| {
                failure(SelectorFailure::Runtime { device: device.id.clone(), source })
            })?;
            if !passes {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
