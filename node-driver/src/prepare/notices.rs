//! Collects what people must know about this node's claims and interfaces, until events on the
//! Node report it.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The most notices that are kept until they are reported.
const NOTICES_MAX: usize = 100;

/// The kind of a notice, which is the reason of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A setting of an interface or virtual function could not be restored.
    NotRestored,
    /// A claim that ended could not be undone; the driver tries again.
    NotUndone,
    /// The kernel names of a prepared device have changed.
    Renumbered,
    /// An interface is not in the pod that has its claim, but on the host.
    LeftPod,
    /// An interface has not come back from a pod.
    NotReturned,
    /// An interface had a setting that the kernel drops when the interface moves.
    NotKept,
    /// The checkpoint was damaged or lost, and is rebuilt.
    Rebuilt,
    /// A claim is forgotten, because all that was written about it is damaged.
    Lost,
    /// A claim was undone because neither its object nor its sandbox exists.
    Abandoned,
}

impl Subject {
    /// The reason of its event.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotRestored => "InterfaceNotRestored",
            Self::NotUndone => "ClaimNotUndone",
            Self::Renumbered => "RDMADeviceRenumbered",
            Self::LeftPod => "InterfaceLeftPod",
            Self::NotReturned => "InterfaceNotReturned",
            Self::NotKept => "InterfaceSettingLost",
            Self::Rebuilt => "CheckpointRebuilt",
            Self::Lost => "ClaimStateLost",
            Self::Abandoned => "AbandonedClaimUndone",
        }
    }
}

/// Notices by subject.
#[derive(Debug, Default)]
pub struct Notices {
    texts: Mutex<BTreeMap<Subject, Vec<String>>>,
    /// What was last said about each subject that may be tried often.
    said: Mutex<BTreeMap<String, String>>,
    more: Notify,
}

impl Notices {
    /// Adds a notice.
    pub(super) fn add(&self, subject: Subject, text: String) {
        let mut all = lock(&self.texts);
        let texts = all.entry(subject).or_default();
        if texts.len() < NOTICES_MAX {
            texts.push(text);
        }
        self.more.notify_one();
    }

    /// Adds a notice about something that is tried again and again, unless the last one about it
    /// had the same text. Returns whether it was added.
    pub(super) fn add_new(&self, subject: Subject, about: &str, text: String) -> bool {
        let before = lock(&self.said).insert(about.to_owned(), text.clone());
        let is_new = before.as_ref() != Some(&text);
        if is_new {
            self.add(subject, text);
        }
        is_new
    }

    /// Forgets what was said about something that works again.
    pub(super) fn settle(&self, about: &str) {
        lock(&self.said).remove(about);
    }

    /// Forgets what was said about parts of a claim, which are named with its UID at the end. It has
    /// left its pod, and the next pod's are other ones.
    pub(super) fn forget_parts(&self, uid: &str) {
        lock(&self.said).retain(|about, _| about == uid || !about.ends_with(uid));
    }

    /// Waits until there are notices, and takes all of them.
    pub async fn next(&self) -> BTreeMap<Subject, Vec<String>> {
        loop {
            let texts = mem::take(&mut *lock(&self.texts));
            if !texts.is_empty() {
                return texts;
            }
            self.more.notified().await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn notices_are_taken_once_and_their_number_is_limited() {
        let notices = Notices::default();
        notices.add(Subject::NotRestored, "a route".to_owned());
        notices.add(Subject::NotRestored, "an address".to_owned());
        notices.add(Subject::NotUndone, "a claim".to_owned());
        let taken = notices.next().await;
        assert_eq!(taken[&Subject::NotRestored], ["a route", "an address"]);
        assert_eq!(taken[&Subject::NotUndone], ["a claim"]);
        (0..2 * NOTICES_MAX).for_each(|it| notices.add(Subject::NotRestored, it.to_string()));
        assert_eq!(notices.next().await[&Subject::NotRestored].len(), NOTICES_MAX);
    }

    #[test]
    fn a_failure_that_repeats_is_said_once() {
        let notices = Notices::default();
        let say = |text: &str| notices.add_new(Subject::NotUndone, "u-1", text.to_owned());
        assert!(say("busy"));
        assert!(!say("busy"));
        assert!(say("full"));
        notices.settle("u-1");
        assert!(say("full"));
    }

    #[test]
    fn parts_of_a_claim_are_forgotten_and_the_claim_is_not() {
        let notices = Notices::default();
        let say = |about: &str| notices.add_new(Subject::LeftPod, about, "gone".to_owned());
        let all =
            ["interface rail0 of u-1", "RDMA numbers of u-1", "interface rail0 of u-2", "u-1"];
        assert!(all.iter().all(|about| say(about)));
        notices.forget_parts("u-1");
        assert_eq!(all.map(say), [true, true, false, false]);
    }
}
