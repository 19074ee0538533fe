//! Numbers that look random and are the same in every run.

/// xorshift64 (Marsaglia, 2003). The seed is not 0.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from 0 to below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        // The remainder is below `end`, so it fits.
        usize::try_from(self.bits() % end as u64).unwrap_or_default()
    }

    /// One of the choices, of which there is at least one.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
