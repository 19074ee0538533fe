//! How fast an error counter grows. A few errors are normal; many in a short time are a fault of the
//! cable, the slot or the device. Pure; time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Errors are counted over this time.
const WINDOW: Duration = Duration::from_mins(10);
/// Least time between two values that are kept.
const STEP: Duration = Duration::from_secs(20);

/// A counter over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Rate {
    /// Values, oldest first.
    values: VecDeque<(Instant, u64)>,
    is_bad: bool,
}

impl Rate {
    /// Records the counter's value. It is bad after it has grown by `many` within the window, and
    /// good again after it has grown by less than a tenth of that. A counter that went back was
    /// reset, with its device.
    pub(super) fn observe(&mut self, value: u64, many: u64, now: Instant) {
        if self.values.back().is_some_and(|(_, last)| value < *last) {
            self.values.clear();
        }
        while self
            .values
            .pop_front_if(|(at, _)| now.saturating_duration_since(*at) > WINDOW)
            .is_some()
        {}
        let grown = self.values.front().map_or(0, |(_, first)| value - first);
        self.is_bad = grown >= if self.is_bad { many.div_ceil(10) } else { many };
        if self.values.back().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= STEP) {
            self.values.push_back((now, value));
        }
    }

    /// Whether it grows fast, or did until a while ago.
    pub(super) fn is_bad(&self) -> bool {
        self.is_bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_a_problem_if_they_are_many_in_ten_minutes() {
        let start = Instant::now();
        let mut rate = Rate::default();
        let mut after = |minutes: u64, value| {
            rate.observe(value, 100, start + Duration::from_mins(minutes));
            rate.is_bad()
        };
        assert!(!after(0, 5_000), "what was counted before is of the past");
        assert!(!after(5, 5_099));
        assert!(after(6, 5_100));
        assert!(after(9, 5_110), "it stays bad while it grows");
        assert!(after(16, 5_120));
        assert!(!after(30, 5_121), "it has been quiet");
        assert!(!after(31, 3), "the device was reset");
        assert!(after(32, 200));
    }

    #[test]
    fn few_values_are_kept() {
        let (start, mut rate) = (Instant::now(), Rate::default());
        for second in 0..3600 {
            rate.observe(second, 1_000_000, start + Duration::from_secs(second));
        }
        assert!(rate.values.len() <= 31, "{}", rate.values.len());
    }
}
