//! What the leader remembers besides the state in the API: how many pods it has evicted lately, and what
//! it has reported.

use super::follow::Followed;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// The time over which evictions are counted.
const MINUTE: Duration = Duration::from_mins(1);
/// The time over which moves are counted.
const HOUR: Duration = Duration::from_hours(1);
/// The pause between two searches for moves, which take long.
const MOVES_PAUSE: Duration = Duration::from_mins(1);
/// The pause after a refused eviction. It doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two tries of an eviction.
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// What the leader remembers.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) rate: Rate,
    pub(super) moves: Rate,
    /// When moves were searched for last.
    looked_for_moves: Option<Instant>,
    /// When evictions that were refused are tried again, and the pause until then.
    refusals: BTreeMap<String, (Instant, Duration)>,
    /// What was reported last about a pod, by UID.
    told: BTreeMap<String, String>,
    /// Preemptions whose devices were released before the pods were bound.
    pub(super) followed: Vec<Followed>,
}

/// Limits the number of evictions in a time.
#[derive(Debug)]
pub(super) struct Rate {
    most: usize,
    within: Duration,
    recent: VecDeque<Instant>,
}

impl Memory {
    pub(super) fn new(evictions_per_minute: NonZeroU32, moves_per_hour: u32) -> Self {
        Self {
            rate: Rate::new(evictions_per_minute.get(), MINUTE),
            moves: Rate::new(moves_per_hour, HOUR),
            looked_for_moves: None,
            refusals: BTreeMap::new(),
            told: BTreeMap::new(),
            followed: Vec::new(),
        }
    }

    /// Whether moves are searched for now; they are then.
    pub(super) fn may_look_for_moves(&mut self, now: Instant) -> bool {
        let last = self.looked_for_moves;
        let may = self.moves.has_left(now) && last.is_none_or(|last| now >= last + MOVES_PAUSE);
        if may {
            self.looked_for_moves = Some(now);
        }
        may
    }

    /// Whether evictions of this preemption are tried now.
    pub(super) fn may_try(&self, preemption: &str, now: Instant) -> bool {
        self.refusals.get(preemption).is_none_or(|(at, _)| now >= *at)
    }

    /// Remembers that a budget has refused an eviction.
    pub(super) fn refused(&mut self, preemption: &str, now: Instant) {
        let last = self.refusals.get(preemption).map(|(_, pause)| *pause);
        let pause = last.map_or(PAUSE, |last| (last * 2).min(PAUSE_MAX));
        self.refusals.insert(preemption.to_owned(), (now + pause, pause));
    }

    /// Forgets preemptions that have ended.
    pub(super) fn keep(&mut self, begun: &BTreeSet<&str>) {
        self.refusals.retain(|id, _| begun.contains(id.as_str()));
    }

    /// Whether a text about a pod has not been reported; it has been then.
    pub(super) fn is_new(&mut self, uid: &str, text: &str) -> bool {
        let known = self.told.insert(uid.to_owned(), text.to_owned());
        known.as_deref() != Some(text)
    }

    /// Forgets what was reported about other pods than these.
    pub(super) fn keep_told(&mut self, uids: &BTreeSet<&str>) {
        self.told.retain(|uid, _| uids.contains(uid.as_str()));
    }
}

impl Rate {
    fn new(most: u32, within: Duration) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self { most, within, recent: VecDeque::new() }
    }

    /// Counts evictions that are to come, if so many are allowed now: all of them, or more than are ever
    /// allowed at once without any other.
    pub(super) fn take(&mut self, pods: usize, now: Instant) -> bool {
        self.forget(now);
        let is_allowed = self.recent.is_empty() || self.recent.len() + pods <= self.most;
        if is_allowed {
            self.recent.extend(std::iter::repeat_n(now, pods));
        }
        is_allowed
    }

    /// Whether one eviction is allowed now.
    fn has_left(&mut self, now: Instant) -> bool {
        self.forget(now);
        self.recent.len() < self.most
    }

    fn forget(&mut self, now: Instant) {
        while self.recent.front().is_some_and(|at| now.duration_since(*at) >= self.within) {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_are_limited_per_minute() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut rate = Memory::new(NonZeroU32::new(3).unwrap(), 0).rate;
        assert!(rate.take(5, at(0)), "a large job alone");
        assert!(!rate.take(1, at(59)));
        assert!(rate.take(2, at(60)), "the others are a minute ago");
        assert!(!rate.take(2, at(70)));
        assert!(rate.take(1, at(70)));
        assert!(!rate.take(1, at(119)));
        assert!(rate.take(2, at(120)));
    }

    #[test]
    fn moves_are_limited_per_hour() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut memory = Memory::new(NonZeroU32::MIN, 2);
        assert!(memory.may_look_for_moves(at(0)));
        assert!(!memory.may_look_for_moves(at(59)), "a search takes long");
        assert!(memory.may_look_for_moves(at(60)));
        assert!(memory.moves.take(2, at(61)));
        assert!(!memory.may_look_for_moves(at(3_660)));
        assert!(memory.may_look_for_moves(at(3_661)));
        assert!(!Memory::new(NonZeroU32::MIN, 0).may_look_for_moves(at(0)), "off by default");
    }

    #[test]
    fn refused_evictions_are_tried_more_and_more_rarely() {
        let mut memory = Memory::new(NonZeroU32::MIN, 0);
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..6 {
            memory.refused("a", now);
            let pause =
                (1..60).find(|seconds| memory.may_try("a", now + Duration::from_secs(*seconds)));
            pauses.extend(pause);
            now += Duration::from_secs(pause.unwrap());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 15, 15]);
        assert!(memory.may_try("b", now), "each preemption for itself");
        memory.keep(&BTreeSet::new());
        assert!(memory.may_try("a", now));
    }
}
