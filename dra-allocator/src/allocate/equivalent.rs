//! Finds requests that select devices in the same way, so that the search evaluates each device
//! once for all of them.

use std::ptr;
use std::sync::Arc;

use super::problem::{PreparedAsk, Problem};
use crate::cel::Selector;
use crate::claim::Ask;

impl Problem<'_> {
    /// The first request or subrequest that selects devices as `ask` does: same class, selectors,
    /// tolerations and capacity.
    pub(super) fn equivalent(&self, ask: &PreparedAsk<'_>) -> usize {
        self.asks
            .iter()
            .position(|other| {
                ptr::eq(other.class, ask.class)
                    && other.ask.tolerations == ask.ask.tolerations
                    && is_same_capacity(other.ask, ask.ask)
                    && other.ask.selectors.len() == ask.ask.selectors.len()
                    && expressions(other.ask).eq(expressions(ask.ask))
            })
            .unwrap_or(self.asks.len())
    }
}

fn expressions(ask: &Ask) -> impl Iterator<Item = &Arc<str>> {
    ask.selectors.iter().flatten().map(Selector::expression)
}

/// Returns true if both request the same amounts in the same notation, since policies compare the
/// notation.
fn is_same_capacity(a: &Ask, b: &Ask) -> bool {
    let (Some(a), Some(b)) = (&a.capacity, &b.capacity) else {
        return a.capacity.is_none() && b.capacity.is_none();
    };
    let mut pairs = a.iter().zip(b);
    a.len() == b.len()
        && pairs.all(|((a, amount), (b, other))| a == b && amount.is_same_form(other))
}
