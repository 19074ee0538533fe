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
    /// The assignments of the last seconds. Two choices at once would take the same cell, so
    /// a choice keeps this until its template is added.
    pub(super) fn lock(&self) -> Assignments<'_> {
        let mut pins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while pins.front().is_some_and(|(at, _)| at.elapsed() > RECENT) {
            pins.pop_front();
        }
        Assignments(pins)
    }
}

/// The recent assignments, locked for one choice.
#[derive(Debug)]
pub(super) struct Assignments<'p>(MutexGuard<'p, VecDeque<(Instant, String)>>);

impl Assignments<'_> {
    /// Records that a pod got this template now.
    pub(super) fn add(&mut self, template: &str) {
        self.0.push_back((Instant::now(), template.to_owned()));
    }

    /// How many pods got the template recently.
    pub(super) fn of(&self, template: &str) -> usize {
        self.0.iter().filter(|(_, name)| name == template).count()
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
        let mut assignments = pins.lock();
        assignments.add("a");
        assignments.add("b");
        let counts = ["a", "b", "c"].map(|template| assignments.of(template));
        assert_eq!(counts, [1, 1, 0]);
    }

    #[test]
    fn concurrent_pods_are_spread_over_cells() {
        let pins = RecentPins::default();
        let choose = || {
            let mut assignments = pins.lock();
            let template = if assignments.of("a") > assignments.of("b") { "b" } else { "a" };
            std::thread::yield_now();
            assignments.add(template);
        };
        std::thread::scope(|scope| (0..64).for_each(|_| drop(scope.spawn(choose))));
        let assignments = pins.lock();
        assert_eq!((assignments.of("a"), assignments.of("b")), (32, 32));
    }
}
