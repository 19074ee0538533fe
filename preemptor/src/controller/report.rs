//! Events, on the pods that get devices and on those that leave.

use super::Controller;
use crate::protocol::record::{Begun, RecordedPod, placed};
use crate::protocol::step::{End, StopReason};
use crate::{PodId, Preemption, Refusal};
use cluster_model::view::ObjectKey;
use dra_allocator::DeviceId;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::collections::BTreeMap;

/// Reporting controller of the events.
const REPORTER: &str = "dranet-preemptor";
/// The most pods and devices that a text names.
const NAMED: usize = 8;

/// Sends the controller's events.
pub(super) fn recorder(client: &Client) -> Recorder {
    let source = Reporter { controller: REPORTER.to_owned(), instance: None };
    Recorder::new(client.clone(), source)
}

impl Controller {
    /// Reports who is evicted for whom, or would be.
    pub(super) async fn report_decided(&self, decided: &Preemption) {
        let text = decided_text(decided);
        let (reason, note) = match (self.settings.dry_run, decided.moves) {
            (true, false) => ("WouldPreempt", format!("would evict {text}")),
            (false, false) => ("Preempts", format!("evicts {text}")),
            (true, true) => ("WouldMove", format!("would move {text}")),
            (false, true) => ("Moves", format!("moves {text}")),
        };
        for placement in &decided.placements {
            let pod = &placement.pod;
            self.event(&pod.key, &pod.uid, EventType::Normal, reason, &note).await;
        }
    }

    /// Reports why nobody leaves for a pod.
    pub(super) async fn report_refusal(&self, refusal: &Refusal) {
        let Refusal { pod: PodId { key, uid }, why } = refusal;
        let note = format!("nobody is evicted for it: {why}");
        self.event(key, uid, EventType::Warning, why.reason(), &note).await;
    }

    /// Reports to a pod that it is evicted.
    pub(super) async fn report_evicted(&self, begun: &Begun, victim: &RecordedPod) {
        let pods = names(begun.record.pods.iter().map(|pod| pod.key().to_string()));
        let (reason, note) = if begun.record.moves {
            let note = format!(
                "evicted so that {pods} gets its devices; another node has room for this pod"
            );
            ("Moved", note)
        } else {
            let priority = begun.record.priority;
            let note = format!("evicted for {pods} of priority {priority}, which gets its devices");
            ("Preempted", note)
        };
        self.event(&victim.key(), &victim.uid, EventType::Normal, reason, &note).await;
    }

    /// Reports the end of a preemption to its pods.
    pub(super) async fn report_end(&self, begun: &Begun, end: &End, evicted: usize) {
        let (kind, reason, note) = match end {
            End::Bound => {
                let nodes = names(begun.nodes().into_iter().map(str::to_owned));
                let note = format!("has got its devices on {nodes} by preemption");
                (EventType::Normal, "PreemptionBound", note)
            }
            End::Released => (
                EventType::Normal,
                "PreemptionReleased",
                "its devices are free and no longer kept for it (--keep=rules)".to_owned(),
            ),
            End::Stopped(why) => {
                (EventType::Warning, "PreemptionStopped", stopped_text(why, begun, evicted))
            }
        };
        for pod in &begun.record.pods {
            self.event(&pod.key(), &pod.uid, kind, reason, &note).await;
        }
    }

    async fn event(&self, pod: &ObjectKey, uid: &str, kind: EventType, reason: &str, note: &str) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: kind,
            reason: reason.to_owned(),
            note: Some(note.to_owned()),
            action: "Preempt".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &about).await {
            tracing::debug!(%pod, %error, "Failed to send an event");
        }
    }
}

/// Who leaves, and for what: `team/low-3 for gpu-2 and mlx5_1 on node-7`.
fn decided_text(decided: &Preemption) -> String {
    let victims = decided.victims.iter().flat_map(|victim| &victim.pods);
    let victims = names(victims.map(|pod| pod.pod.key.to_string()));
    let mut by_pool: BTreeMap<String, Vec<DeviceId>> = BTreeMap::new();
    for device in placed(decided) {
        by_pool.entry(device.pool.to_string()).or_default().push(device);
    }
    let places = by_pool.into_iter().map(|(pool, devices)| {
        format!("{} on {pool}", names(devices.iter().map(|device| device.device.to_string())))
    });
    format!("{victims} for {}", names(places))
}

fn stopped_text(why: &StopReason, begun: &Begun, evicted: usize) -> String {
    let count = begun.record.victims.len();
    match evicted {
        0 => format!("preemption is given up before anyone was evicted: {why}"),
        _ => format!("preemption is given up after {evicted} of {count} pods were evicted: {why}"),
    }
}

/// Joins names with commas and `and`; of many, the first ones.
fn names(all: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = all.collect();
    if all.len() > NAMED {
        let more = all.len() - NAMED;
        all.truncate(NAMED);
        all.push(format!("{more} more"));
    }
    match all.split_last() {
        None => "nobody".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_for_people() {
        let text = |count: usize| names((0..count).map(|it| it.to_string()));
        assert_eq!(text(0), "nobody");
        assert_eq!(text(1), "0");
        assert_eq!(text(2), "0 and 1");
        assert_eq!(text(3), "0, 1 and 2");
        assert_eq!(text(20), "0, 1, 2, 3, 4, 5, 6, 7 and 12 more");
    }
}
