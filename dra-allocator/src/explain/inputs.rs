//! The input of an allocation attempt.

use std::sync::Arc;

use crate::allocate::{Limits, Outcome, allocate};
use crate::budget::Budget;
use crate::claim::{Ask, Claim, Request};
use crate::inventory::Inventory;
use crate::settings::Settings;
use crate::state::AllocatedState;

/// The input of an allocation attempt, without the claims.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptInputs<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) node: &'a str,
    pub(super) state: &'a AllocatedState,
    pub(super) settings: &'a Settings,
    pub(super) limits: Limits<'a>,
    pub(super) budget: &'a Budget<'a>,
}

impl AttemptInputs<'_> {
    pub(super) fn fits(&self, claims: &[Claim]) -> bool {
        let Self { inventory, node, state, settings, limits, .. } = *self;
        let attempt = allocate(inventory, node, claims, state, settings, limits);
        matches!(attempt.outcome, Outcome::Allocated(_))
    }
}

/// `request` or `request/subrequest`.
pub(super) fn full_name(request: &Request, ask: &Ask) -> Arc<str> {
    if request.is_prioritized() {
        format!("{}/{}", request.name, ask.name).into()
    } else {
        request.name.clone()
    }
}
