//! Events on pods whose claim could not be prepared, with the reason. The kubelet reports
//! it too, in one event with the failures of all drivers. This event stays when another
//! driver fails later, and is not repeated at each attempt.

use crate::model::claim::{ClaimRef, PodRef};
use crate::publish::events::{Notice, event};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use process::chain::Chain;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Event reason for a claim that could not be prepared.
const REASON: &str = "NICsNotPrepared";

/// Sends events on pods of one node. Clones share what was sent.
#[derive(Clone)]
pub(super) struct PodEvents {
    client: Client,
    node: String,
    reported: Reported,
}

impl PodEvents {
    /// Sends as the driver of this node.
    pub(super) fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned(), reported: Reported::default() }
    }

    /// Reports on each of the claim's pods why it is not prepared. Returns at once.
    pub(super) fn say(&self, claim: &ClaimRef, pods: Vec<PodRef>, reason: &str) {
        if !self.reported.is_new(&claim.uid, reason) {
            return;
        }
        let notice = Notice::warning(REASON, reason);
        let events = pods.into_iter().map(|pod| ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(claim.namespace.clone()),
            name: Some(pod.name),
            uid: Some(pod.uid),
            ..ObjectReference::default()
        });
        let events: Vec<Event> =
            events.map(|pod| event(pod, &self.node, "Preparing", &notice)).collect();
        let api = Api::namespaced(self.client.clone(), &claim.namespace);
        tokio::spawn(create(api, events));
    }

    /// Forgets what was reported: the claim is prepared or gone, so the next failure is
    /// new.
    pub(super) fn forget(&self, uid: &str) {
        self.reported.forget(uid);
    }
}

async fn create(api: Api<Event>, events: Vec<Event>) {
    for event in events {
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            let pod = event.regarding.and_then(|pod| pod.name).unwrap_or_default();
            tracing::warn!(pod, error = %Chain(&error), "Event not written");
        }
    }
}

/// The latest reason that was sent, by claim.
#[derive(Clone, Debug, Default)]
struct Reported(Arc<Mutex<BTreeMap<String, String>>>);

impl Reported {
    fn is_new(&self, uid: &str, reason: &str) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reported.insert(uid.to_owned(), reason.to_owned()).is_none_or(|before| before != reason)
    }

    fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_reason_is_reported_once() {
        let reported = Reported::default();
        assert!(reported.is_new("u-1", "held"));
        assert!(!reported.is_new("u-1", "held"));
        assert!(reported.is_new("u-2", "held"));
        assert!(reported.is_new("u-1", "no interface"));
        assert!(reported.is_new("u-1", "held"));
        reported.forget("u-1");
        assert!(reported.is_new("u-1", "held"));
    }
}
