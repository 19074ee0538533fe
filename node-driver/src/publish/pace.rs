//! Rate limit for publications, and for reads of the machine: a burst, then a steady rate.
//! Pure; time is an argument.
//!
//! A flapping link must not make every node of a cluster write slices endlessly, and routes
//! that change all the time must not make the driver read the machine endlessly. Yet each
//! change should reach the API within about a second, no matter how much changes.
//! Upstream's limit, five at once and one every two seconds, is slower.

use std::time::{Duration, Instant};

/// Publications or reads that may follow each other at once.
const BURST: u32 = 10;
/// Time until one more is allowed.
const REFILL: Duration = Duration::from_secs(1);

/// A token bucket.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// When the bucket was or will be full.
    full: Instant,
}

impl Pace {
    /// A full bucket.
    pub(crate) fn new(now: Instant) -> Self {
        Self { full: now }
    }

    /// Takes a token.
    pub(crate) fn spend(&mut self, now: Instant) {
        self.full = self.full.max(now) + REFILL;
    }

    /// Time until there is a token.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.full.saturating_duration_since(now).saturating_sub(REFILL * (BURST - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_a_steady_rate() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::new(start);
        for _ in 0..BURST {
            assert_eq!(pace.wait(start), Duration::ZERO);
            pace.spend(start);
        }
        assert_eq!(pace.wait(start), REFILL);
        assert_eq!(pace.wait(start + REFILL / 2), REFILL / 2);
        assert_eq!(pace.wait(start + REFILL), Duration::ZERO);
        pace.spend(start + REFILL);
        assert_eq!(pace.wait(start + REFILL), REFILL);
        assert_eq!(pace.wait(at(60)), Duration::ZERO, "a quiet minute fills the bucket");
        let mut permits = 0;
        while pace.wait(at(60)).is_zero() {
            pace.spend(at(60));
            permits += 1;
        }
        assert_eq!(permits, BURST, "and not more than that");
    }
}
