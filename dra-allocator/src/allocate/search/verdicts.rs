//! Cached verdicts: which devices a request can take, independent of other choices.

use super::bits;

/// What is known about a device for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Yes,
    No,
}

/// The verdicts so far. Requests that select devices in the same way share them: `ask` is the index
/// of the first such request.
#[derive(Debug)]
pub(super) struct Verdicts {
    /// The number of words in a row.
    words: usize,
    /// Two rows per request: the candidates that it cannot take, and those that it can.
    rows: bits::Words,
}

impl Verdicts {
    pub(super) fn new(asks: usize, candidates: usize) -> Self {
        let words = bits::words(candidates);
        let mut rows = bits::Words::from_elem(0, 2 * asks * words);
        for rows in rows.chunks_mut((2 * words).max(1)) {
            bits::end(&mut rows[..words], candidates);
        }
        Self { words, rows }
    }

    /// The candidates that a request cannot take, as a set of bits.
    pub(super) fn refused(&self, ask: usize) -> &[u64] {
        &self.rows[2 * ask * self.words..][..self.words]
    }

    fn fit(&self, ask: usize) -> &[u64] {
        &self.rows[(2 * ask + 1) * self.words..][..self.words]
    }

    pub(super) fn known(&self, ask: usize, candidate: usize) -> Option<Verdict> {
        if bits::contains(self.fit(ask), candidate) {
            Some(Verdict::Yes)
        } else {
            bits::contains(self.refused(ask), candidate).then_some(Verdict::No)
        }
    }

    pub(super) fn note(&mut self, ask: usize, candidate: usize, verdict: Verdict) {
        let row = 2 * ask + usize::from(verdict == Verdict::Yes);
        self.rows[row * self.words + candidate / 64] |= 1 << (candidate % 64);
    }
}
