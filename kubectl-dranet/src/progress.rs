//! Shows progress on standard error if something takes longer than a second, and only on
//! a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

/// Time before progress is shown.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between updates.
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

    /// Reports that this many objects of a kind have been read.
    pub(crate) fn read(&mut self, what: &str, number: usize) {
        if !self.is_terminal || Instant::now() < self.next {
            return;
        }
        let _ = write!(stderr(), "\r\x1b[Kreading {what}: {number}");
        self.is_shown = true;
        self.next = Instant::now() + PERIOD;
    }

    /// Clears the line.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
