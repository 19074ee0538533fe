//! What happens when a part is down, hangs or has a wrong clock.

use super::Attempt;

pub(super) const ATTEMPTS: &[Attempt] = &[];
