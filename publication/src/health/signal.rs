//! A good or bad state over time, debounced. Pure; time is an argument.

use std::time::{Duration, Instant};

/// How long a state must stay good until it counts as good again.
const STEADY: Duration = Duration::from_secs(10);
/// The same for a state that flaps.
const STEADY_AFTER_FLAPPING: Duration = Duration::from_mins(2);
/// Number of falls within [`WINDOW`] from which a state counts as flapping.
const FLAPS: usize = 3;
/// How long a fall is remembered.
const WINDOW: Duration = Duration::from_mins(10);

/// One state over time.
#[derive(Clone, Debug)]
pub(super) struct Signal {
    is_bad: bool,
    /// When it last changed.
    since: Instant,
    /// Whether it has ever been bad.
    was_bad: bool,
    /// Its latest falls, oldest first.
    falls: Vec<Instant>,
}

impl Signal {
    /// A state that is seen for the first time. Its earlier history is unknown and does
    /// not count against it.
    pub(super) fn new(is_bad: bool, now: Instant) -> Self {
        let falls = if is_bad { vec![now] } else { Vec::new() };
        Self { is_bad, since: now, was_bad: is_bad, falls }
    }

    pub(super) fn observe(&mut self, is_bad: bool, now: Instant) {
        if is_bad == self.is_bad {
            return;
        }
        (self.is_bad, self.since) = (is_bad, now);
        self.falls.retain(|fall| now.duration_since(*fall) < WINDOW);
        if is_bad {
            self.was_bad = true;
            self.falls.push(now);
        }
    }

    /// Whether the state is bad, or was bad until just now.
    pub(super) fn is_bad(&self, now: Instant) -> bool {
        self.is_bad || self.good_at().is_some_and(|at| now < at)
    }

    /// Whether the state has gone bad repeatedly.
    pub(super) fn is_flapping(&self, now: Instant) -> bool {
        self.recent_falls(now) >= FLAPS && (self.is_bad || now < self.calm_at())
    }

    /// When the state will change without a further observation. A flapping state that is
    /// bad changes only with an observation.
    pub(super) fn next_change(&self, now: Instant) -> Option<Instant> {
        if self.is_bad {
            return None;
        }
        let calm = self.is_flapping(now).then(|| self.calm_at());
        self.good_at().into_iter().chain(calm).filter(|at| *at > now).min()
    }

    /// When a good state counts as good; `None` if it was never bad.
    fn good_at(&self) -> Option<Instant> {
        self.was_bad.then(|| self.since + STEADY)
    }

    fn calm_at(&self) -> Instant {
        self.since + STEADY_AFTER_FLAPPING
    }

    fn recent_falls(&self, now: Instant) -> usize {
        self.falls.iter().filter(|fall| now.duration_since(**fall) < WINDOW).count()
    }
}
