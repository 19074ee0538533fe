//! Processes that a test plays: what a death at each step would leave is noted, or the process dies there.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

/// The life of a process.
pub(crate) enum Life {
    /// It lives, and each step is heard: it is a fault point or an effect, and has not happened yet.
    Watched(Box<dyn Fn(&str) + Send + Sync>),
    /// It dies after so many steps.
    Limited(Mutex<usize>),
    /// It lives.
    Free,
}

/// What unwinds the stack of a process that dies. Nothing in it has an effect then but the locks of files,
/// which a kill releases too.
struct Death;

impl Life {
    /// That of a process that dies after so many steps, if that is limited.
    pub(super) fn of(steps: Option<usize>) -> Self {
        steps.map_or(Self::Free, |steps| Self::Limited(Mutex::new(steps)))
    }

    /// One more step.
    pub(crate) fn step(&self, point: &str) {
        match self {
            Self::Free => {}
            Self::Watched(heard) => heard(point),
            Self::Limited(left) => {
                let now = *left.lock().unwrap();
                if now == 0 {
                    resume_unwind(Box::new(Death));
                }
                *left.lock().unwrap() = now - 1;
            }
        }
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life").finish_non_exhaustive()
    }
}

/// Runs a process; `None` if it dies.
pub(super) fn run<T>(work: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(panic) if panic.is::<Death>() => None,
        Err(panic) => resume_unwind(panic),
    }
}
