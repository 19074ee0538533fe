//! Liveness: whether a process's main loop still turns. A process can answer requests while its loop
//! waits forever for a reply that was lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The turns of a loop. Clones share them. Until a limit is set, nothing is expected.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Mutex<Option<Turns>>>);

#[derive(Clone, Copy, Debug)]
struct Turns {
    last: Instant,
    limit: Duration,
}

impl Progress {
    /// From now on, two turns may be at most `limit` apart.
    pub fn expect_within(&self, limit: Duration, now: Instant) {
        *self.lock() = Some(Turns { last: now, limit });
    }

    /// Records a turn.
    pub fn turned(&self, now: Instant) {
        if let Some(turns) = self.lock().as_mut() {
            turns.last = now;
        }
    }

    /// What is wrong; `None` if the last turn is recent enough.
    pub fn complaint(&self, now: Instant) -> Option<String> {
        let Turns { last, limit } = (*self.lock())?;
        let passed = now.saturating_duration_since(last);
        (passed > limit).then(|| {
            let (passed, limit) = (passed.as_secs(), limit.as_secs());
            format!("the main loop has not turned for {passed} s; at most {limit} s are normal")
        })
    }

    /// A panic elsewhere cannot leave the value inconsistent, since each change is one assignment.
    fn lock(&self) -> MutexGuard<'_, Option<Turns>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_does_not_turn_is_complained_about() {
        let (progress, start) = (Progress::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(progress.complaint(at(1000)), None, "nothing is expected yet");
        progress.expect_within(Duration::from_mins(1), start);
        assert_eq!(progress.complaint(at(60)), None);
        assert_eq!(
            progress.complaint(at(61)).as_deref(),
            Some("the main loop has not turned for 61 s; at most 60 s are normal")
        );
        progress.clone().turned(at(50));
        assert_eq!(progress.complaint(at(110)), None);
        assert!(progress.complaint(at(111)).is_some());
    }
}
