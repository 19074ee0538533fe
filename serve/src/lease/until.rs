//! The time until which this process leads.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// A time that each renewal moves.
#[derive(Debug)]
pub(super) struct Until(Mutex<State>);

#[derive(Debug)]
struct State {
    at: Instant,
    /// Work that found the time past. It goes on if a renewal was only late to be seen.
    waits: Option<Waker>,
}

impl Until {
    pub(super) fn new(at: Instant) -> Self {
        Self(Mutex::new(State { at, waits: None }))
    }

    pub(super) fn set(&self, at: Instant) {
        let mut state = self.state();
        state.at = at;
        if let Some(waker) = state.waits.take() {
            waker.wake();
        }
    }

    /// What is left of it; zero afterwards.
    pub(super) fn left(&self) -> Duration {
        self.state().at.saturating_duration_since(Instant::now())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the steps of `work` before that time, and none afterwards. A process that was stopped for
    /// longer finds a response that has come meanwhile, and would go on with it before any timer ends it.
    pub(super) async fn poll_before<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            if self.left().is_zero() {
                self.state().waits = Some(context.waker().clone());
                return Poll::Pending;
            }
            work.as_mut().poll(context)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn no_step_is_made_afterwards() {
        let hour = Duration::from_hours(1);
        let until = Until::new(Instant::now() + hour);
        let steps = Cell::new(0);
        let mut work = pin!(until.poll_before(async {
            loop {
                steps.set(steps.get() + 1);
                futures::pending!();
            }
        }));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut poll = || work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        assert!(poll() && poll());
        assert_eq!(steps.get(), 2);
        until.set(Instant::now());
        assert!(poll() && until.left().is_zero());
        assert_eq!(steps.get(), 2);
        // Whatever woke it may not come again.
        until.set(Instant::now() + hour);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(poll());
        assert_eq!(steps.get(), 3);
    }
}
