//! Events on pods whose claim could not be prepared: why not, where a person looks
//! first. The kubelet says it too, in one event with all drivers' failures; this one
//! stays when another driver fails later, and is said once and not at each try.

use crate::prepare::claim::{ClaimRef, PodRef};
use crate::publish::events::{Notice, event};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, Client};
use process::chain::Chain;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What is said of a claim that could not be prepared.
const REASON: &str = "NICsNotPrepared";

/// Says events on pods of one node; clones share what was said.
#[derive(Clone)]
pub(super) struct PodEvents {
    client: Client,
    node: String,
    said: Said,
}

impl PodEvents {
    /// As the driver of this node.
    pub(super) fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned(), said: Said::default() }
    }

    /// Says on each of the claim's pods why it is not prepared. Nobody waits for it.
    pub(super) fn say(&self, claim: &ClaimRef, pods: Vec<PodRef>, reason: &str) {
        if !self.said.is_new(&claim.uid, reason) {
            return;
        }
        let notice = Notice::warning(REASON, reason);
        let pod_of = |pod: PodRef| ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(claim.namespace.clone()),
            name: Some(pod.name),
            uid: Some(pod.uid),
            ..ObjectReference::default()
        };
        let events = pods.into_iter().map(pod_of);
        let events: Vec<Event> =
            events.map(|pod| event(pod, &self.node, "Preparing", &notice)).collect();
        let api = Api::namespaced(self.client.clone(), &claim.namespace);
        tokio::spawn(create(api, events));
    }

    /// The claim is prepared, or is no more: what comes next is news.
    pub(super) fn forget(&self, uid: &str) {
        self.said.forget(uid);
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

/// What was said last, by claim.
#[derive(Clone, Debug, Default)]
struct Said(Arc<Mutex<BTreeMap<String, String>>>);

impl Said {
    fn is_new(&self, uid: &str, reason: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.insert(uid.to_owned(), reason.to_owned()).is_none_or(|before| before != reason)
    }

    fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_until_something_changes() {
        let said = Said::default();
        assert!(said.is_new("u-1", "held"));
        assert!(!said.is_new("u-1", "held"));
        assert!(said.is_new("u-2", "held"));
        assert!(said.is_new("u-1", "no interface"));
        assert!(said.is_new("u-1", "held"));
        said.forget("u-1");
        assert!(said.is_new("u-1", "held"));
    }
}
