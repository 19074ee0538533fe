//! Pins that this replica gave so lately that no claim shows them yet: pods of a burst go to
//! different cells.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For how long a pin counts. The resource claim controller makes claims within a second
/// where it is not overloaded; a pin that counts longer than it need only spreads pods more.
const RECENT: Duration = Duration::from_secs(3);

/// Templates of pinned claims, each with when a pod got it.
#[derive(Debug, Default)]
pub(super) struct RecentPins(Mutex<VecDeque<(Instant, String)>>);

impl RecentPins {
    /// A pod got this template now.
    pub(super) fn add(&self, template: &str) {
        self.lock().push_back((Instant::now(), template.to_owned()));
    }

    /// How many pods got it lately.
    pub(super) fn of(&self, template: &str) -> usize {
        self.lock().iter().filter(|(_, name)| name == template).count()
    }

    /// The pins that count still.
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, String)>> {
        let mut pins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while pins.front().is_some_and(|(at, _)| at.elapsed() > RECENT) {
            pins.pop_front();
        }
        pins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_count_for_a_moment() {
        let pins = RecentPins::default();
        let old = Instant::now().checked_sub(2 * RECENT).unwrap();
        pins.0.lock().unwrap().push_back((old, "a".to_owned()));
        pins.add("a");
        pins.add("b");
        assert_eq!((pins.of("a"), pins.of("b"), pins.of("c")), (1, 1, 0));
    }
}
