//! Random choices, the same in every run with the same `$DRANET_SEED` (7).

use std::{fmt, time::Duration};

use crate::{random::Random, setting};

/// Random choices, and the seed from which they follow.
#[derive(Clone, Debug)]
pub struct SeededRng {
    seed: u64,
    random: Random,
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
        // Small seeds differ in few bits, and 0 is none.
        Ok(Self { seed, random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1) })
    }

    /// True with a probability of one in `chances`.
    pub fn one_in(&mut self, chances: u64) -> bool {
        self.random.bits().is_multiple_of(chances)
    }

    /// A random time below this one.
    pub fn below(&mut self, time: Duration) -> Duration {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        Duration::from_micros(self.random.bits() % micros)
    }

    /// A random item.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// A random number below `count`.
    pub fn index(&mut self, count: usize) -> usize {
        self.random.below(count.max(1))
    }
}
