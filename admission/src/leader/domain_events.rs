//! Events on pods, and on their job, whose `ComputeDomain` cannot be created.

use super::Leader;
use crate::needed_domain::NeededDomain;
use crate::pod_event::{self, beginning};
use cluster_model::names::EVENT_COMPUTE_DOMAIN;
use cluster_model::view::ObjectKey;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use std::collections::{BTreeMap, BTreeSet};

/// The number of concurrent writes.
const TOGETHER: usize = 16;
/// The most bytes of a reason. The note of an event has at most 1,024 bytes
/// (`NoteLengthLimit` in `pkg/apis/core/validation/events.go`).
const REASON_MAX: usize = 700;

/// The events that have been sent: UIDs of objects, and notes.
pub(super) type Told = BTreeSet<(String, String)>;

/// An event that is due: the object that it is about, and its note.
type DueEvent = (ObjectReference, String);

impl Leader {
    /// Sends the events about `ComputeDomain`s that are missing. Returns true if all were sent.
    pub(super) async fn report_missing(
        &self,
        needed: &[NeededDomain],
        missing: &BTreeMap<ObjectKey, String>,
        told: &mut Told,
    ) -> bool {
        let due = due(needed, missing, told);
        let recorder = pod_event::recorder(&self.templates.client);
        let sent: Vec<_> = stream::iter(due)
            .map(async |(about, note)| {
                let event = pod_event::warning("Create", EVENT_COMPUTE_DOMAIN, &note);
                let outcome = recorder.publish(&event, &about).await;
                (about.uid.unwrap_or_default(), note, outcome)
            })
            .buffer_unordered(TOGETHER)
            .collect()
            .await;
        let mut is_sent = true;
        for (uid, note, outcome) in sent {
            match outcome {
                Ok(()) => _ = told.insert((uid, note)),
                // A pod may name an owner that can have no event.
                Err(kube::Error::Api(status)) if is_final(status.code) => {
                    tracing::debug!(status.message, "An event is refused");
                    told.insert((uid, note));
                }
                Err(error) => {
                    tracing::debug!(%error, "Failed to send an event");
                    is_sent = false;
                }
            }
        }
        is_sent
    }
}

/// Whether the API server gives the same answer to the same request: all codes of the client's errors
/// but `Too Many Requests`.
fn is_final(code: u16) -> bool {
    (400..500).contains(&code) && code != 429
}

/// The events that have not been sent, each object once. Forgets those whose object no longer waits.
fn due(
    needed: &[NeededDomain],
    missing: &BTreeMap<ObjectKey, String>,
    told: &mut Told,
) -> Vec<DueEvent> {
    let mut wanted: BTreeMap<(String, String), ObjectReference> = BTreeMap::new();
    for domain in needed {
        let Some(why) = missing.get(&domain.key) else { continue };
        let why = beginning(why, REASON_MAX);
        let note = format!(
            "ComputeDomain {} does not exist, and the pods of the job wait for its channel: {why}; \
             admission tries again",
            domain.key.name
        );
        let (namespace, (pod, uid)) = (&domain.key.namespace, &domain.pod);
        let owner = pod_event::about_owner(namespace, &domain.owner);
        for about in [pod_event::about_pod(namespace, pod, uid), owner] {
            wanted.insert((about.uid.clone().unwrap_or_default(), note.clone()), about);
        }
    }
    told.retain(|event| wanted.contains_key(event));
    let due = wanted.into_iter().filter(|(event, _)| !told.contains(event));
    due.map(|((_, note), about)| (about, note)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    fn needed(pod: &str) -> NeededDomain {
        let owner = OwnerReference {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            name: "train".to_owned(),
            uid: "job".to_owned(),
            ..OwnerReference::default()
        };
        NeededDomain {
            key: ObjectKey { namespace: "n".to_owned(), name: "d".to_owned() },
            pod: (pod.to_owned(), pod.to_owned()),
            group: "g".to_owned(),
            owner,
            size: 2,
        }
    }

    #[test]
    fn pods_and_their_job_are_told_once_for_each_reason() {
        let all = [needed("a"), needed("b")];
        let missing = |why: &str| BTreeMap::from([(all[0].key.clone(), why.to_owned())]);
        let mut told = Told::new();
        let tell = |why: &str, told: &mut Told| {
            let due = due(&all, &missing(why), told);
            told.extend(due.iter().map(|(it, note)| (it.uid.clone().unwrap(), note.clone())));
            due.into_iter().map(|(about, _)| about.name.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(tell("quota", &mut told), ["a", "b", "train"]);
        assert_eq!(tell("quota", &mut told), [""; 0]);
        assert_eq!(tell("policy", &mut told), ["a", "b", "train"]);
        let note = due(&all, &missing(&"é".repeat(2_000)), &mut told).pop().unwrap().1;
        assert!(note.ends_with("; admission tries again") && note.len() <= 1_024, "{note}");
        assert_eq!(due(&all, &BTreeMap::new(), &mut told), []);
        assert_eq!(told, Told::new());
    }
}
