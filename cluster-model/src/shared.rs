//! A view that watches write and decisions read, without either waiting for the other.
//!
//! A reader gets the view as it is and keeps it for as long as it decides: nothing changes
//! under it. A change is made in place where no reader has the view; otherwise it waits for
//! readers to finish, and after [`WAIT_MAX`] it is made in a copy. Most of a view is shared
//! by pointers, but its tables are not: a copy of a large cluster takes milliseconds, on the
//! thread of the watch.

use crate::view::{ClusterView, Revision};
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How long changes wait for readers before the view is copied.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// How often it is looked whether readers have finished.
const LOOK: Duration = Duration::from_millis(10);

type Change = Box<dyn FnOnce(&mut ClusterView) + Send>;

/// A view that watches write and handlers read.
#[derive(Clone, Default)]
pub struct SharedView(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// What readers get. It is locked for copying or replacing the pointer, and for one change
    /// in place, of some microseconds.
    current: Mutex<Arc<ClusterView>>,
    /// Changes that are not in the view yet, in their order, and since when each waits.
    waiting: Mutex<VecDeque<(Instant, Change)>>,
    /// Who makes changes. Nobody waits for it: whoever has it makes those of others too.
    writer: Mutex<()>,
    delayed: Notify,
    /// Of the view that readers get.
    revision: watch::Sender<Revision>,
    /// When the API server last sent something of each kind.
    heard: Mutex<BTreeMap<String, Instant>>,
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

    /// Returns when a part of the view is another than at a revision: that of the view which was
    /// decided from. Readers get the change then.
    pub async fn changed_since<T: PartialEq>(
        &self,
        seen: Revision,
        part: impl Fn(Revision) -> T + Send,
    ) {
        let mut revisions = self.0.revision.subscribe();
        // It ends by an error when nobody can change the view any more, which this one can.
        revisions.wait_for(|now| part(*now) != part(seen)).await.ok();
    }

    /// How long ago the API server last sent something of each kind: an object of the
    /// first list, an event, the end of a list. Nodes change at least every five minutes
    /// (`nodeStatusReportFrequency` of the kubelet), so that an age of `nodes` above that
    /// means a watch that hangs; the other kinds can be quiet for hours.
    pub fn ages(&self, now: Instant) -> Vec<(String, Duration)> {
        let heard = lock(&self.0.heard);
        let age = |at: &Instant| now.saturating_duration_since(*at);
        heard.iter().map(|(kind, at)| (kind.clone(), age(at))).collect()
    }

    pub(crate) fn hear(&self, kind: &str) {
        let mut heard = lock(&self.0.heard);
        match heard.get_mut(kind) {
            Some(at) => *at = Instant::now(),
            None => _ = heard.insert(kind.to_owned(), Instant::now()),
        }
    }

    /// Makes a change, now or as soon as it can.
    pub(crate) fn change(&self, change: impl FnOnce(&mut ClusterView) + Send + 'static) {
        lock(&self.0.waiting).push_back((Instant::now(), Box::new(change)));
        self.settle(WAIT_MAX);
    }

    /// Makes every change that waits now, after those that another thread is making.
    pub(crate) fn settle_now(&self) {
        let _writer = lock(&self.0.writer);
        self.settle_once(Duration::ZERO);
    }

    /// Looks after changes that wait for readers, for ever.
    pub(crate) async fn keep_settled(&self) {
        loop {
            self.0.delayed.notified().await;
            while !lock(&self.0.waiting).is_empty() {
                tokio::time::sleep(LOOK).await;
                self.settle(WAIT_MAX);
            }
        }
    }

    /// Makes the changes that wait, in a copy of the view if readers have it and the first
    /// change has waited for `wait_max`.
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
            // One that came while this was the writer.
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

    /// Makes changes as long as no reader has the view, and returns whether none is left. The
    /// lock is free between two of them: a reader waits for one change at most.
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
        // Outside the lock: the last reader to go frees the old view.
        drop((old, read));
        true
    }
}

/// What a panicking holder left is whole: every change is one call.
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
    fn a_change_is_there_at_once_where_nobody_reads() {
        let shared = SharedView::default();
        let before = shared.read().epoch();
        set(&shared, 36);
        assert_eq!(shared.read().epoch(), before + 1);
    }

    #[test]
    fn a_reader_keeps_what_it_has_and_others_get_the_change() {
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
    async fn a_change_is_told_when_readers_get_it() {
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
            () = settled => {}
        }
    }
}
