//! Writes that are tried again and again, each time after a longer pause.

use cluster_model::view::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The last attempts for objects.
#[derive(Debug)]
pub(super) struct Attempts {
    first: Duration,
    longest: Duration,
    last: BTreeMap<ObjectKey, Attempt>,
}

#[derive(Debug)]
struct Attempt {
    next: Instant,
    pause: Duration,
    /// Why it failed, for people.
    failed: Option<String>,
}

impl Attempts {
    /// None yet. The pause after the first attempt doubles each time, up to the longest.
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, last: BTreeMap::new() }
    }

    /// Forgets all but those for these objects.
    pub(super) fn keep<'k>(&mut self, objects: impl Iterator<Item = &'k ObjectKey>) {
        let objects: BTreeSet<&ObjectKey> = objects.collect();
        self.last.retain(|key, _| objects.contains(key));
    }

    /// The outcome of the last attempt; `None` if it is time for the next.
    pub(super) fn too_early(&self, key: &ObjectKey, now: Instant) -> Option<Result<(), &str>> {
        let last = self.last.get(key).filter(|attempt| attempt.next > now)?;
        Some(last.failed.as_deref().map_or(Ok(()), Err))
    }

    /// Records an attempt. Returns true if it failed, and for another reason than the last one.
    pub(super) fn record(&mut self, key: &ObjectKey, failed: Option<&str>, now: Instant) -> bool {
        let last = self.last.get(key);
        let is_new = failed.is_some() && last.and_then(|last| last.failed.as_deref()) != failed;
        let pause = last.map_or(self.first, |last| (last.pause * 2).min(self.longest));
        let failed = failed.map(str::to_owned);
        self.last.insert(key.clone(), Attempt { next: now + pause, pause, failed });
        is_new
    }

    /// The time until something may be tried again.
    pub(super) fn next(&self, now: Instant) -> Option<Duration> {
        let next = self.last.values().map(|attempt| attempt.next).filter(|next| *next > now).min();
        next.map(|next| next.duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_created_again_and_again_is_created_more_and_more_rarely() {
        let key = ObjectKey { namespace: "n".to_owned(), name: "a".to_owned() };
        let begin = Instant::now();
        let mut attempts = Attempts::new(Duration::from_secs(10), Duration::from_mins(5));
        let (mut now, mut count) = (begin, 0);
        while now < begin + Duration::from_hours(1) {
            assert_eq!(attempts.too_early(&key, now), None);
            assert!(!attempts.record(&key, None, now));
            count += 1;
            assert_eq!(attempts.too_early(&key, now), Some(Ok(())));
            now += attempts.next(now).unwrap();
        }
        assert_eq!(count, 16, "10, 20, 40, 80, 160 and then 300 seconds apart");
        assert!(attempts.record(&key, Some("a quota"), now), "it is said once");
        assert!(!attempts.record(&key, Some("a quota"), now));
        assert!(attempts.record(&key, Some("a policy"), now));
        assert_eq!(attempts.too_early(&key, now), Some(Err("a policy")));
        attempts.keep([].into_iter());
        assert_eq!((attempts.too_early(&key, now), attempts.next(now)), (None, None));
    }
}
