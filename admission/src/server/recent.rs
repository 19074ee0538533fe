//! Remembers pinned claims that this replica assigned so recently that no claim object
//! shows them yet, so that pods of a burst go to different cells.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an assignment counts. The resource claim controller creates claims within a
/// second unless it is overloaded. A longer time only spreads pods more.
const RECENT: Duration = Duration::from_secs(3);

/// Templates of pinned claims, and when a pod got each.
#[derive(Debug, Default)]
pub(super) struct RecentPins(Mutex<VecDeque<(Instant, String)>>);

impl RecentPins {
    /// Records that a pod got this template now.
    pub(super) fn add(&self, template: &str) {
        self.lock().push_back((Instant::now(), template.to_owned()));
    }

    /// How many pods got the template recently.
    pub(super) fn of(&self, template: &str) -> usize {
        self.lock().iter().filter(|(_, name)| name == template).count()
    }

    /// Locks the list, after removing expired entries.
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
