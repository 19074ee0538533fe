//! Claims whose addresses differ from their statuses. The threads that renew leases report
//! them; the task that writes statuses fetches them.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// UIDs of the claims, until they are fetched.
#[derive(Debug, Default)]
pub(super) struct Changes {
    uids: Mutex<BTreeSet<String>>,
    wake: Notify,
}

impl Changes {
    /// Adds a claim.
    pub(super) fn add(&self, uid: &str) {
        self.lock().insert(uid.to_owned());
        self.wake.notify_one();
    }

    /// Waits until there are any, and takes all of them.
    pub(super) async fn next(&self) -> BTreeSet<String> {
        loop {
            let uids = mem::take(&mut *self.lock());
            if !uids.is_empty() {
                return uids;
            }
            self.wake.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.uids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn each_change_is_returned_once() {
        let changes = Changes::default();
        assert_eq!(changes.next().now_or_never(), None);
        for uid in ["b", "a", "b"] {
            changes.add(uid);
        }
        let both = ["a", "b"].map(str::to_owned).into();
        assert_eq!(changes.next().now_or_never(), Some(both));
        assert_eq!(changes.next().now_or_never(), None);
    }
}
