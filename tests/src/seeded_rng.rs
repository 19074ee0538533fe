//! Random choices, the same in every run with the same `$DRANET_SEED` (7).

use std::{fmt, time::Duration};

use crate::setting;

/// `SplitMix64` (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct SeededRng {
    seed: u64,
    state: u64,
}

/// Prints the setting that repeats the choices.
impl fmt::Display for SeededRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DRANET_SEED={}", self.seed)
    }
}

impl SeededRng {
    /// The choices of `$DRANET_SEED`.
    ///
    /// # Errors
    ///
    /// Fails if the variable is not a number.
    pub fn from_environment() -> anyhow::Result<Self> {
        let seed = setting("DRANET_SEED", 7)?;
        Ok(Self { seed, state: seed })
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// True with a probability of one in `chances`.
    pub fn one_in(&mut self, chances: u64) -> bool {
        self.next().is_multiple_of(chances)
    }

    /// A random time below this one.
    pub fn below(&mut self, time: Duration) -> Duration {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        Duration::from_micros(self.next() % micros)
    }

    /// A random item.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// A random number below `count`.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count.max(1) as u64).unwrap_or_default()
    }
}
