//! A view that watches write and decisions read, without either waiting for the other.
//!
//! A reader gets an immutable view and keeps it until its decision is made. A change is made in
//! place if no reader has the view. Otherwise it waits for readers to finish, and after
//! [`WAIT_MAX`] it is made in a copy. A copy shares most of the view by pointers, but not its
//! tables: for a large cluster, copying takes milliseconds on the thread of the watch.

use crate::clock::HeardTime;
use crate::view::{ClusterView, Revision};
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How long changes wait for readers before the view is copied.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// The interval between checks whether readers have finished.
const LOOK: Duration = Duration::from_millis(10);

type Change = Box<dyn FnOnce(&mut ClusterView) + Send>;

/// A view that watches write and handlers read.
#[derive(Clone, Default)]
pub struct SharedView(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The view that readers get. It is locked to copy or replace the pointer, and for one change
    /// in place, which takes some microseconds.
    current: Mutex<Arc<ClusterView>>,
    /// Changes that are not in the view yet, in order, each with the time at which it arrived.
    waiting: Mutex<VecDeque<(Instant, Change)>>,
    /// Held by the thread that makes changes. No thread waits for it: the holder makes the changes
    /// of others too.
    writer: Mutex<()>,
    delayed: Notify,
    /// The revision of the view that readers get.
    revision: watch::Sender<Revision>,
    /// The time when the API server last sent something, by kind.
    heard: Mutex<BTreeMap<String, Instant>>,
    /// The time at the API server, as of its last answer that said it.
    time: Mutex<Option<HeardTime>>,
}

impl std::fmt::Debug for SharedView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedView").finish_non_exhaustive()
    }
}

impl From<ClusterView> for SharedView {
    fn from(view: ClusterView) -> Self {
        let revision = watch::Sender::new(view.revision());
        let current = Mutex::new(Arc::new(view));
        Self(Arc::new(Shared { current, revision, ..Shared::default() }))
    }
}

impl SharedView {
    /// The view as it is now.
    pub fn read(&self) -> Arc<ClusterView> {
        Arc::clone(&lock(&self.0.current))
    }

    /// Returns when a part of the view differs from its state at revision `seen`, which a decision
    /// was made from. Readers then get the change.
    pub async fn changed_since<T: PartialEq>(
        &self,
        seen: Revision,
        part: impl Fn(Revision) -> T + Send,
    ) {
        let mut revisions = self.0.revision.subscribe();
        // This fails only when the sender is dropped, and `self` holds it.
        revisions.wait_for(|now| part(*now) != part(seen)).await.ok();
    }

    /// The time since the API server last sent something, by kind: an object of the first list, an
    /// event, or the end of a list. Nodes change at least every five minutes
    /// (`nodeStatusReportFrequency` of the kubelet), so a higher age of `nodes` means that its
    /// watch hangs. Other kinds can be quiet for hours.
    pub fn ages(&self, now: Instant) -> Vec<(String, Duration)> {
        let heard = lock(&self.0.heard);
        let ages = heard.iter().map(|(kind, at)| (kind, now.saturating_duration_since(*at)));
        ages.map(|(kind, age)| (kind.clone(), age)).collect()
    }

    /// The time at the API server; that of this machine before the API server has said it.
    pub fn now(&self) -> Timestamp {
        let heard = *lock(&self.0.time);
        heard.map_or_else(Timestamp::now, |heard| heard.now(Instant::now()))
    }

    /// Notes the time that the API server has now.
    pub fn set_time(&self, time: Timestamp) {
        *lock(&self.0.time) = Some(HeardTime { at: Instant::now(), time });
    }

    pub(crate) fn hear(&self, kind: &str) {
        let mut heard = lock(&self.0.heard);
        match heard.get_mut(kind) {
            Some(at) => *at = Instant::now(),
            None => _ = heard.insert(kind.to_owned(), Instant::now()),
        }
    }

    /// Makes a change, now or as soon as possible.
    pub(crate) fn change(&self, change: impl FnOnce(&mut ClusterView) + Send + 'static) {
        lock(&self.0.waiting).push_back((Instant::now(), Box::new(change)));
        self.settle(WAIT_MAX);
    }

    /// Makes all waiting changes now, after those that another thread is making.
    pub(crate) fn settle_now(&self) {
        let _writer = lock(&self.0.writer);
        self.settle_once(Duration::ZERO);
    }

    /// Makes changes that had to wait for readers, forever.
    pub(crate) async fn keep_settled(&self) {
        loop {
            self.0.delayed.notified().await;
            while !lock(&self.0.waiting).is_empty() {
                tokio::time::sleep(LOOK).await;
                self.settle(WAIT_MAX);
            }
        }
    }

    /// Makes the waiting changes; in a copy of the view if readers have it and the first change has
    /// waited for `wait_max`.
    fn settle(&self, wait_max: Duration) {
        loop {
            {
                let _writer = match self.0.writer.try_lock() {
                    Ok(writer) => writer,
                    Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                    Err(TryLockError::WouldBlock) => return,
                };
                if !self.settle_once(wait_max) {
                    return self.0.delayed.notify_one();
                }
            }
            // A change may have arrived while this thread was the writer.
            if lock(&self.0.waiting).is_empty() {
                return;
            }
        }
    }

    /// Returns false if changes must wait for readers.
    fn settle_once(&self, wait_max: Duration) -> bool {
        let is_done = self.change_in_place() || self.change_copy(wait_max);
        let revision = self.read().revision();
        self.0.revision.send_if_modified(|told| mem::replace(told, revision) != revision);
        is_done
    }

    /// Makes changes as long as no reader has the view; returns true if none remains. The lock is
    /// released after each change, so a reader waits for at most one.
    fn change_in_place(&self) -> bool {
        loop {
            let mut current = lock(&self.0.current);
            let Some(view) = Arc::get_mut(&mut current) else { return false };
            let Some((_, change)) = lock(&self.0.waiting).pop_front() else { return true };
            change(view);
        }
    }

    /// Makes the changes in a copy of the view if the first of them has waited for `wait_max`.
    fn change_copy(&self, wait_max: Duration) -> bool {
        let Some(since) = lock(&self.0.waiting).front().map(|(since, _)| *since) else {
            return true;
        };
        if since.elapsed() < wait_max {
            return false;
        }
        let read = self.read();
        let mut copy = ClusterView::clone(&read);
        let waiting = mem::take(&mut *lock(&self.0.waiting));
        for (_, change) in waiting {
            change(&mut copy);
        }
        let old = mem::replace(&mut *lock(&self.0.current), Arc::new(copy));
        // Outside the lock, since this may free the old view.
        drop((old, read));
        true
    }
}

/// Locks a mutex, even if a holder panicked: every change is one call, so the data is consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dra_allocator::{MinorVersion, Settings};
    use futures::FutureExt;

    fn set(shared: &SharedView, minor: u8) {
        let settings = Settings::defaults_of(MinorVersion::new(minor).unwrap());
        shared.change(move |view| view.set_settings(settings));
    }

    #[test]
    fn without_readers_a_change_is_made_at_once() {
        let shared = SharedView::default();
        let before = shared.read().epoch();
        set(&shared, 36);
        assert_eq!(shared.read().epoch(), before + 1);
    }

    #[test]
    fn a_reader_keeps_its_view_and_others_get_the_change() {
        let shared = SharedView::default();
        let read = shared.read();
        let before = read.epoch();
        set(&shared, 36);
        assert_eq!(shared.read().epoch(), before, "it waits for the reader");
        shared.settle_now();
        assert_eq!((read.epoch(), shared.read().epoch()), (before, before + 1));
        drop(read);
        set(&shared, 37);
        assert_eq!(shared.read().epoch(), before + 2);
    }

    #[tokio::test]
    async fn changed_since_returns_when_readers_get_the_change() {
        let shared = SharedView::default();
        let seen = shared.read().revision();
        let changed = || shared.changed_since(seen, |it| it.epoch).now_or_never().is_some();
        assert!(!changed());
        let read = shared.read();
        set(&shared, 36);
        assert!(!changed(), "it waits for the reader");
        drop(read);
        shared.settle_now();
        assert!(changed());
        assert_ne!(shared.read().revision(), seen);
        assert!(shared.changed_since(seen, |it| it.claims).now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_change_is_made_when_the_reader_has_finished() {
        let shared = SharedView::default();
        let read = shared.read();
        let before = read.epoch();
        set(&shared, 36);
        drop(read);
        let settled = async {
            while shared.read().epoch() == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = shared.keep_settled() => unreachable!("it never ends"),
            settled = tokio::time::timeout(Duration::from_secs(10), settled) => settled.unwrap(),
        }
    }
}
