//! Requests that judge devices in the same way, so that a search judges once for all of them.

use std::ptr;
use std::sync::Arc;

use super::problem::{PreparedAsk, Problem};
use crate::cel::Selector;
use crate::claim::Ask;

impl Problem<'_> {
    /// The first ask that judges devices as the next one does: of the same class, with the same
    /// selectors, tolerations and capacity.
    pub(super) fn equivalent(&self, ask: &PreparedAsk<'_>) -> usize {
        let same = |other: &PreparedAsk<'_>| {
            ptr::eq(other.class, ask.class)
                && other.ask.tolerations == ask.ask.tolerations
                && is_same_capacity(other.ask, ask.ask)
                && other.ask.selectors.len() == ask.ask.selectors.len()
                && expressions(other.ask).eq(expressions(ask.ask))
        };
        self.asks.iter().position(same).unwrap_or(self.asks.len())
    }
}

fn expressions(ask: &Ask) -> impl Iterator<Item = &Arc<str>> {
    ask.selectors.iter().flatten().map(Selector::expression)
}

/// Whether two ask for the same amounts, written in the same way: policies look at that.
fn is_same_capacity(a: &Ask, b: &Ask) -> bool {
    let (Some(a), Some(b)) = (&a.capacity, &b.capacity) else {
        return a.capacity.is_none() && b.capacity.is_none();
    };
    let mut pairs = a.iter().zip(b);
    a.len() == b.len()
        && pairs.all(|((a, amount), (b, other))| a == b && amount.is_same_form(other))
}
