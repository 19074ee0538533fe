//! What anyone tries who reaches a port.

use super::Attempt;

pub(super) const ATTEMPTS: &[Attempt] = &[];
