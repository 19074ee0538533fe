//! What tenants try with pods, claims and templates.

use super::Attempt;

pub(super) const ATTEMPTS: &[Attempt] = &[];
