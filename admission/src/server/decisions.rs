//! Runs decisions on separate threads, a limited number at a time. If all are busy, a
//! request waits for a moment and is then refused instead of being answered too late. If the webhook
//! knows kube-apiserver by its certificate, half of the slots are for it only.

use serve::turns::{Caller, Turns};
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

/// How long a request waits for a slot. The API server waits for five seconds in all, of
/// which writing a template may take two.
const PATIENCE: Duration = Duration::from_secs(1);

/// No decision was made.
#[derive(Debug, thiserror::Error)]
pub(super) enum DecisionError {
    /// Too many decisions are running.
    #[error("admission is busy: {at_once} decisions are being made; try again")]
    Busy { at_once: usize },
    /// The decision panicked, which is a bug.
    #[error("internal error in admission; its log has the details")]
    Failed,
}

/// Runs decisions.
#[derive(Clone, Debug)]
pub(super) struct Decisions {
    slots: Turns,
    at_once: usize,
    patience: Duration,
}

impl Decisions {
    /// As many at a time as there are processors. If some clients are preferred, at least one for them
    /// and one for others.
    pub(super) fn new(prefers: bool) -> Self {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let (at_once, reserved) =
            if prefers { (processors.max(2), processors.div_ceil(2)) } else { (processors, 0) };
        Self { slots: Turns::new(at_once, reserved), at_once, patience: PATIENCE }
    }

    /// Runs a decision when a slot is free.
    pub(super) async fn make<T: Send + 'static>(
        &self,
        caller: Caller,
        decide: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, DecisionError> {
        let busy = DecisionError::Busy { at_once: self.at_once };
        let slot = self.slots.take(caller, 1);
        let Ok(Ok(slot)) = tokio::time::timeout(self.patience, slot).await else {
            return Err(busy);
        };
        // The slot belongs to the decision, which may outlive the request.
        let decided = tokio::task::spawn_blocking(move || {
            let answer = decide();
            drop(slot);
            answer
        });
        decided.await.map_err(|_| DecisionError::Failed)
    }

    /// Waits for a decision that another request is running, for a limited time.
    pub(super) async fn shared<T>(
        &self,
        decision: impl Future<Output = Result<T, DecisionError>>,
    ) -> Result<T, DecisionError> {
        let decided = tokio::time::timeout(2 * self.patience, decision).await;
        decided.unwrap_or(Err(DecisionError::Busy { at_once: self.at_once }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex, mpsc};
    use tokio::sync::oneshot;

    fn one_at_a_time(patience: Duration) -> Decisions {
        Decisions { slots: Turns::new(1, 0), at_once: 1, patience }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_are_refused_while_all_slots_are_busy() {
        let decisions = one_at_a_time(Duration::ZERO);
        let (started, has_started) = oneshot::channel();
        let (release, released) = mpsc::channel::<()>();
        let first = {
            let decisions = decisions.clone();
            tokio::spawn(async move {
                let wait = move || {
                    started.send(()).unwrap();
                    released.recv().unwrap();
                };
                decisions.make(Caller::Unknown, wait).await
            })
        };
        has_started.await.unwrap();
        let refused = decisions.make(Caller::Unknown, || ()).await;
        assert!(matches!(refused, Err(DecisionError::Busy { at_once: 1 })), "{refused:?}");
        release.send(()).unwrap();
        first.await.unwrap().unwrap();
        one_at_a_time(PATIENCE).make(Caller::Unknown, || ()).await.unwrap();
        decisions.make(Caller::Unknown, || ()).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn decisions_of_others_never_keep_the_api_server_waiting() {
        let decisions = Decisions { patience: Duration::ZERO, ..Decisions::new(true) };
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let mut others = Vec::new();
        loop {
            let (started, has_started) = oneshot::channel();
            let (decisions, released) = (decisions.clone(), Arc::clone(&released));
            let other = tokio::spawn(async move {
                let wait = move || {
                    started.send(()).unwrap();
                    let _ended = released.lock().unwrap().recv();
                };
                decisions.make(Caller::Unknown, wait).await
            });
            if has_started.await.is_err() {
                break;
            }
            others.push(other);
        }
        assert!(!others.is_empty(), "others have slots too");
        decisions.make(Caller::Known, || ()).await.unwrap();
        drop(release);
        for other in others {
            other.await.unwrap().unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panicking_decision_frees_its_slot() {
        let decisions = one_at_a_time(PATIENCE);
        let failed = decisions.make(Caller::Unknown, || panic!("a defect")).await;
        assert!(matches!(failed, Err::<(), _>(DecisionError::Failed)), "{failed:?}");
        assert_eq!(decisions.make(Caller::Unknown, || 1).await.unwrap(), 1);
    }
}
