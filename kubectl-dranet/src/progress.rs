//! A line on standard error while something takes longer than a second, on a terminal only.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

/// Before that nothing is shown.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two lines.
const PERIOD: Duration = Duration::from_millis(200);

/// What is being read, and how much of it.
#[derive(Debug)]
pub(crate) struct Progress {
    is_terminal: bool,
    next: Instant,
    is_shown: bool,
}

impl Progress {
    pub(crate) fn start() -> Self {
        let next = Instant::now() + PATIENCE;
        Self { is_terminal: stderr().is_terminal(), next, is_shown: false }
    }

    /// So many objects of a kind have been read.
    pub(crate) fn read(&mut self, what: &str, number: usize) {
        if !self.is_terminal || Instant::now() < self.next {
            return;
        }
        let _ = write!(stderr(), "\r\x1b[Kreading {what}: {number}");
        self.is_shown = true;
        self.next = Instant::now() + PERIOD;
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
