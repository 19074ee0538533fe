//! Which devices a request can take whatever else is chosen, as far as that was found out.

use std::sync::Arc;

use super::super::problem::PreparedAsk;
use super::bits;
use crate::cel::Selector;
use crate::claim::Ask;

/// What is known of a device for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Yes,
    No,
}

/// The verdicts so far. Requests that judge in the same way share theirs.
#[derive(Debug)]
pub(super) struct Verdicts {
    /// By ask: the first ask that judges devices in the same way.
    twins: Vec<usize>,
    /// The words of a row.
    words: usize,
    /// A row for each ask: the candidates that can be taken.
    fit: Vec<u64>,
    /// And those that cannot.
    refused: Vec<u64>,
}

impl Verdicts {
    pub(super) fn new(asks: &[PreparedAsk<'_>], candidates: usize) -> Self {
        let words = bits::words(candidates);
        let mut refused = vec![0; asks.len() * words];
        for row in refused.chunks_mut(words.max(1)) {
            bits::end(row, candidates);
        }
        Self {
            twins: (0..asks.len()).map(|ask| twin(asks, ask)).collect(),
            words,
            fit: vec![0; asks.len() * words],
            refused,
        }
    }

    /// The first ask that judges as this one.
    pub(super) fn twin(&self, ask: usize) -> usize {
        self.twins[ask]
    }

    /// The candidates that an ask cannot take, as a set of bits.
    pub(super) fn refused(&self, ask: usize) -> &[u64] {
        &self.refused[self.twins[ask] * self.words..][..self.words]
    }

    pub(super) fn known(&self, ask: usize, candidate: usize) -> Option<Verdict> {
        let row = self.twins[ask] * self.words;
        let is_in = |set: &[u64]| bits::contains(&set[row..row + self.words], candidate);
        if is_in(&self.fit) {
            Some(Verdict::Yes)
        } else {
            is_in(&self.refused).then_some(Verdict::No)
        }
    }

    pub(super) fn note(&mut self, ask: usize, candidate: usize, verdict: Verdict) {
        let set = match verdict {
            Verdict::Yes => &mut self.fit,
            Verdict::No => &mut self.refused,
        };
        set[self.twins[ask] * self.words + candidate / 64] |= 1 << (candidate % 64);
    }
}

/// The first ask that judges devices as this one does: of the same class, with the same
/// selectors, tolerations and capacity.
fn twin(asks: &[PreparedAsk<'_>], ask: usize) -> usize {
    let same = |a: &PreparedAsk<'_>, b: &PreparedAsk<'_>| {
        Arc::ptr_eq(&a.class, &b.class)
            && a.ask.tolerations == b.ask.tolerations
            && is_same_capacity(a.ask, b.ask)
            && a.ask.selectors.len() == b.ask.selectors.len()
            && expressions(a.ask).eq(expressions(b.ask))
    };
    asks[..ask].iter().position(|other| same(other, &asks[ask])).unwrap_or(ask)
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
