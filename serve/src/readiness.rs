//! Readiness: the set of conditions that are still awaited.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Ready as soon as nothing is awaited.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    waiting: Arc<Mutex<BTreeSet<String>>>,
    less: Arc<Notify>,
}

/// An awaited condition; dropping it marks the condition as met.
#[derive(Debug)]
pub struct Wait {
    what: String,
    waiting: Arc<Mutex<BTreeSet<String>>>,
    less: Arc<Notify>,
}

impl Readiness {
    /// Delays readiness until the returned guard is dropped.
    pub fn wait_for(&self, what: impl Into<String>) -> Wait {
        let what = what.into();
        lock(&self.waiting).insert(what.clone());
        Wait { what, waiting: Arc::clone(&self.waiting), less: Arc::clone(&self.less) }
    }

    /// The awaited conditions, sorted; empty when ready.
    pub fn waiting(&self) -> Vec<String> {
        lock(&self.waiting).iter().cloned().collect()
    }

    /// Returns when nothing is awaited.
    pub async fn ready(&self) {
        loop {
            let mut less = std::pin::pin!(self.less.notified());
            // From here on no notification is missed.
            less.as_mut().enable();
            if self.waiting().is_empty() {
                return;
            }
            less.await;
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        waiting.remove(&self.what);
        self.less.notify_waiters();
        tracing::debug!(what = self.what, remaining = waiting.len(), "Ready");
    }
}

/// A panic elsewhere cannot leave the set inconsistent, since each change is one call.
fn lock(waiting: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_every_guard_is_dropped() {
        let readiness = Readiness::default();
        let nodes = readiness.wait_for("nodes");
        let slices = readiness.wait_for("slices");
        assert_eq!(readiness.waiting(), ["nodes", "slices"]);
        drop(nodes);
        assert_eq!(readiness.waiting(), ["slices"]);
        drop(slices);
        assert!(readiness.waiting().is_empty());
    }

    #[tokio::test]
    async fn ready_returns_when_the_last_guard_is_dropped() {
        let readiness = Readiness::default();
        let nodes = readiness.wait_for("nodes");
        let waiter = tokio::spawn({
            let readiness = readiness.clone();
            async move { readiness.ready().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(nodes);
        waiter.await.unwrap();
    }
}
