//! Progress of a comparison on standard error, and its time limit.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use simulator::compare::Observer;

/// Time between two updates on a terminal.
const ON_TERMINAL: Duration = Duration::from_secs(1);
/// Time between two lines elsewhere.
const IN_LOG: Duration = Duration::from_mins(1);

/// Shows progress, and ends the comparison at its time limit.
#[derive(Debug)]
pub(crate) struct Progress {
    begin: Instant,
    limit: Option<Duration>,
    is_terminal: bool,
    last: Mutex<Instant>,
}

impl Progress {
    /// Starts the clock. `limit` is in seconds.
    pub(crate) fn start(limit: Option<u64>) -> Self {
        let begin = Instant::now();
        let limit = limit.map(Duration::from_secs);
        Self { begin, limit, is_terminal: stderr().is_terminal(), last: Mutex::new(begin) }
    }

    /// Removes the line from a terminal.
    pub(crate) fn clear(&self) {
        if self.is_terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }

    /// Returns true if a line is due.
    fn is_due(&self) -> bool {
        let period = if self.is_terminal { ON_TERMINAL } else { IN_LOG };
        let Ok(mut last) = self.last.try_lock() else { return false };
        let is_due = last.elapsed() >= period;
        if is_due {
            *last = Instant::now();
        }
        is_due
    }
}

impl Observer for Progress {
    fn ended(&self, replays: usize, all: usize) {
        if !self.is_due() {
            return;
        }
        let line = line(replays, all, self.begin.elapsed(), self.limit);
        let (before, after) = if self.is_terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        // A replay must not fail because standard error is closed.
        let _ = write!(stderr(), "{before}{line}{after}");
    }

    fn goes_on(&self) -> bool {
        self.limit.is_none_or(|limit| self.begin.elapsed() < limit)
    }
}

/// The number of finished replays, and an estimate of the remaining minutes.
fn line(replays: usize, all: usize, took: Duration, limit: Option<Duration>) -> String {
    let rest = u32::try_from(all.saturating_sub(replays)).unwrap_or(u32::MAX);
    let each = took / u32::try_from(replays).unwrap_or(u32::MAX).max(1);
    let left = each.saturating_mul(rest);
    let left = limit.map_or(left, |limit| left.min(limit.saturating_sub(took)));
    format!("{replays} of {all} replays, about {} min left", left.as_secs().div_ceil(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_from_finished_replays() {
        let took = Duration::from_mins(10);
        assert_eq!(line(20, 80, took, None), "20 of 80 replays, about 30 min left");
        let limit = Some(Duration::from_mins(15));
        assert_eq!(line(20, 80, took, limit), "20 of 80 replays, about 5 min left");
        assert_eq!(line(80, 80, took, limit), "80 of 80 replays, about 0 min left");
    }
}
