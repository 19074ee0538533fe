//! When the driver gives the code that it does not run back to the kernel: some time after the loop's
//! last turn. A claim that is prepared causes a turn, so claims that follow each other find their
//! code mapped.

use process::memory;
use std::future::pending;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// How long the loop must rest first.
const REST: Duration = Duration::from_secs(5);

/// How long code is kept at least, however often the loop rests.
const KEPT: Duration = Duration::from_secs(30);

/// What is known about the code in memory.
#[derive(Debug, Default)]
pub(super) struct Code {
    /// The last turn since it was given back.
    ran: Option<Instant>,
    given_back: Option<Instant>,
}

impl Code {
    /// Records a turn.
    pub(super) fn ran(&mut self, now: Instant) {
        self.ran = Some(now);
    }

    /// When it is given back next; `None` if it has not run since.
    fn due(&self) -> Option<Instant> {
        let rested = self.ran? + REST;
        Some(self.given_back.map_or(rested, |last| rested.max(last + KEPT)))
    }

    /// Waits until it is due.
    pub(super) async fn rested(&self) {
        match self.due() {
            Some(due) => sleep_until(due.into()).await,
            None => pending().await,
        }
    }

    /// Gives it back, and memory that was freed since the last turn.
    pub(super) fn give_back(&mut self, now: Instant) {
        memory::give_back();
        memory::give_back_code();
        *self = Self { ran: None, given_back: Some(now) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn code_is_given_back_once_after_turns_and_kept_for_a_while() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut code = Code::default();
        assert_eq!(code.due(), None, "nothing has run");
        assert!(code.rested().now_or_never().is_none());
        code.ran(at(0));
        code.ran(at(2));
        assert_eq!(code.due(), Some(at(7)), "five seconds after the last turn");
        code.give_back(at(7));
        assert_eq!(code.due(), None, "nothing has run since");
        code.ran(at(8));
        assert_eq!(code.due(), Some(at(37)), "not more than twice a minute");
        code.ran(at(36));
        assert_eq!(code.due(), Some(at(41)), "the loop has not rested");
    }
}
