//! Random choices that can be repeated.

/// A generator of random numbers (xorshift64*), so that a failure can be repeated.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let value = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(value).unwrap() % limit.max(1)
    }

    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for index in (1..all.len()).rev() {
            all.swap(index, self.below(index + 1));
        }
    }
}
