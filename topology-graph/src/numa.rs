//! NUMA nodes and CPU sets, in the kernel's text forms.
//!
//! A set is written as `%*pbl` does (`0-3,8`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::serde_as_text;

/// The number of a NUMA node. The kernel's `-1` is `None`, never a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NumaNode(pub u32);

/// The maximum length of a mask: `NR_CPUS` is at most 8192.
const MOST_WORDS: u32 = 8192 / u32::BITS;

/// A set of CPUs as ascending, disjoint, non-adjacent ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet(Vec<(u32, u32)>);

/// A text is not a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a CPU list (`0-3,8`)")]
pub struct ParseCpuSetError(String);

impl CpuSet {
    /// Returns true if the set has no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The set with one CPU.
    pub fn new(cpu: u32) -> Self {
        Self(vec![(cpu, cpu)])
    }

    /// The CPUs in ascending order; at most as many as a kernel supports.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let cpus = self.0.iter().flat_map(|&(first, last)| first..=last);
        cpus.take_while(|cpu| *cpu < MOST_WORDS * u32::BITS)
    }

    /// The CPUs of both sets.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        merge(self.0.iter().chain(&other.0).copied().collect())
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|&(first, _)| first)
    }

    /// Parses a mask as the kernel writes it: words of 32 bits, highest first.
    pub fn from_mask(mask: &str) -> Option<Self> {
        let words: Option<Vec<u32>> =
            mask.split(',').rev().map(|word| u32::from_str_radix(word, 16).ok()).collect();
        let words = (0..MOST_WORDS).zip(words?);
        Some(merge(
            words
                .flat_map(|(index, word)| {
                    let set = (0..u32::BITS).filter(move |bit| word & 1 << bit != 0);
                    set.map(move |bit| index * u32::BITS + bit)
                })
                .map(|cpu| (cpu, cpu))
                .collect(),
        ))
    }

    /// Writes the set as the kernel's mask: words of 32 bits, highest first.
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(1, |&(_, last)| last / u32::BITS + 1).min(MOST_WORDS);
        (0..words)
            .rev()
            .map(|index| format!("{:08x}", self.word(index)))
            .collect::<Vec<_>>()
            .join(",")
    }

    /// A word of the mask; the one with the index 0 has the lowest CPUs.
    fn word(&self, index: u32) -> u32 {
        let bits = (0..u32::BITS).filter(|bit| self.contains(index * u32::BITS + bit));
        bits.fold(0, |word, bit| word | 1 << bit)
    }

    /// Returns true if the CPU is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&cpu))
    }

    /// Returns true if every CPU of `other` is in this set.
    pub fn contains_all(&self, other: &Self) -> bool {
        other
            .0
            .iter()
            .all(|&(first, last)| self.0.iter().any(|&(from, to)| from <= first && last <= to))
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ranges: Option<Vec<_>> = match text {
            "" => Some(Vec::new()),
            _ => text.split(',').map(parse_range).collect(),
        };
        ranges.map(merge).ok_or_else(|| ParseCpuSetError(text.to_owned()))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for NumaNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

serde_as_text!(CpuSet);

fn parse_range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = (parse_cpu(first)?, parse_cpu(last)?);
    (range.0 <= range.1).then_some(range)
}

/// Parses digits. `parse` also accepts `+1`, which the kernel never writes.
fn parse_cpu(digits: &str) -> Option<u32> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn merge(mut ranges: Vec<(u32, u32)>) -> CpuSet {
    ranges.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(open) if first <= open.1.saturating_add(1) => open.1 = open.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    CpuSet(merged)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_as_sets() {
        for (text, set) in [("", ""), ("0-3,8", "0-3,8"), ("8,0-3", "0-3,8"), ("1,2,3", "1-3")] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), set);
        }
        for text in ["-", "3-1", "a", "1,", "+1", "1-2-3", "99999999999"] {
            assert_eq!(text.parse::<CpuSet>().ok(), None, "{text:?}");
        }
    }

    #[test]
    fn masks_are_words_of_32_bits() {
        for (mask, list) in
            [("000000ff,ffff0000,00ffffff", "0-23,48-71"), ("00000000", ""), ("1", "0")]
        {
            assert_eq!(CpuSet::from_mask(mask).unwrap().to_string(), list);
        }
        let cpus: CpuSet = "0-23,48-71".parse().unwrap();
        assert_eq!(cpus.mask(), "000000ff,ffff0000,00ffffff");
        assert_eq!(CpuSet::from_mask("x"), None);
    }

    #[test]
    fn containment_is_by_cpu() {
        let all: CpuSet = "0-7".parse().unwrap();
        let some: CpuSet = "1,4-5".parse().unwrap();
        assert!(all.contains_all(&some));
        assert!(!some.contains_all(&all));
    }

    proptest! {
        #[test]
        fn display_is_a_fixed_point(ranges in prop::collection::vec((0..99_u32, 0..9_u32), 0..9)) {
            let set = merge(ranges.into_iter().map(|(from, more)| (from, from + more)).collect());
            prop_assert_eq!(set.to_string().parse(), Ok(set));
        }
    }
}
