//! Sets of candidates, one bit each.

use smallvec::SmallVec;

/// Words of bits; inline for nodes with few devices.
pub(super) type Words = SmallVec<[u64; 4]>;

/// The number of bits in a word.
const WORD: usize = 64;

/// A set of numbers below a limit.
#[derive(Clone, Debug)]
pub(super) struct Bits {
    words: Words,
}

/// The number of words for a set of numbers below a limit.
pub(super) fn words(limit: usize) -> usize {
    limit.div_ceil(WORD)
}

impl Bits {
    /// An empty set. The bits from the limit to the end of the last word are set, so that searches
    /// stop there.
    pub(super) fn with_end(limit: usize) -> Self {
        let mut words = Words::from_elem(0, words(limit));
        end(&mut words, limit);
        Self { words }
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    pub(super) fn contains(&self, number: usize) -> bool {
        contains(&self.words, number)
    }

    pub(super) fn set(&mut self, number: usize, on: bool) {
        let (word, bit) = (number / WORD, 1 << (number % WORD));
        if on {
            self.words[word] |= bit;
        } else {
            self.words[word] &= !bit;
        }
    }
}

/// Sets the bits from the limit to the end of the last word.
pub(super) fn end(words: &mut [u64], limit: usize) {
    if let (Some(last), used @ 1..) = (words.last_mut(), limit % WORD) {
        *last |= u64::MAX << used;
    }
}

pub(super) fn contains(words: &[u64], number: usize) -> bool {
    words[number / WORD] >> (number % WORD) & 1 == 1
}

/// The first number, from `from` on, that is in neither set. Both sets must have the same length.
pub(super) fn first_in_neither(a: &[u64], b: &[u64], from: usize) -> Option<usize> {
    let mut mask = u64::MAX << (from % WORD);
    for word in from / WORD..a.len() {
        let open = !(a[word] | b[word]) & mask;
        if open != 0 {
            return usize::try_from(open.trailing_zeros()).ok().map(|bit| word * WORD + bit);
        }
        mask = u64::MAX;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_the_same_as_a_list(
            a in prop::collection::btree_set(0..200_usize, 0..200),
            b in prop::collection::btree_set(0..200_usize, 0..200),
            limit in 0..200_usize,
            from in 0..210_usize,
        ) {
            let set = |numbers: &BTreeSet<usize>| {
                let mut bits = Bits::with_end(limit);
                numbers.iter().filter(|n| **n < limit).for_each(|n| bits.set(*n, true));
                bits
            };
            let expected = (from..limit).find(|n| !a.contains(n) && !b.contains(n));
            let (a, b) = (set(&a), set(&b));
            prop_assert_eq!(first_in_neither(a.words(), b.words(), from), expected);
        }
    }
}
