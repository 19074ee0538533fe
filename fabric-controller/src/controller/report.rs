//! Reports to people: a condition on every pod that waits, an event on the first of the
//! group. A reason is reported when it has been the same for a moment, and again when it
//! changes: while the pods of a group are created, the reason differs at every look.

use crate::decide::Warning;
use crate::group::GroupKey;
use crate::{Action, Decision, Group, Member, WaitingReason};
use cluster_model::names::CONDITION_FABRIC;
use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter as EventSource};
use kube::{Api, Client};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// For how long a reason must be the same before it is reported: most are over by then.
const MOMENT: Duration = Duration::from_secs(2);
/// After how long a reason is reported even while it changes.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the same reason is reported in other words.
const AGAIN: Duration = Duration::from_mins(1);
/// Conditions that are written at a time.
const TOGETHER: usize = 8;
/// Who reports, in events.
const REPORTER: &str = "dranet-fabric-controller";

/// Writes conditions and events, and remembers which.
pub(super) struct Reporter {
    client: Client,
    recorder: Recorder,
    reports: HashMap<GroupKey, Report>,
}

/// Why a group waits, and what of it has been reported.
#[derive(Debug)]
struct Report {
    reason: &'static str,
    /// Since when it has been for this reason.
    begun: Instant,
    text: String,
    /// Since when it has been in these words.
    since: Instant,
    last: Option<(Instant, String)>,
}

impl Report {
    fn new(why: &WaitingReason, now: Instant) -> Self {
        let (reason, text) = (why.reason(), why.to_string());
        Self { reason, begun: now, text, since: now, last: None }
    }

    /// Returns true if it is time to report the reason, and takes it as reported.
    fn is_due(&mut self, why: &WaitingReason, now: Instant) -> bool {
        let text = why.to_string();
        if self.reason != why.reason() {
            *self = Self::new(why, now);
        } else if self.text != text {
            (self.text, self.since) = (text, now);
        }
        let is_steady = now.duration_since(self.since) >= MOMENT;
        let due = (is_steady || now.duration_since(self.begun) >= PATIENCE)
            && self.last.as_ref().is_none_or(|(when, last)| {
                *last != self.text && now.duration_since(*when) >= AGAIN
            });
        if due {
            self.last = Some((now, self.text.clone()));
        }
        due
    }
}

impl Reporter {
    pub(super) fn new(client: &Client) -> Self {
        let source = EventSource { controller: REPORTER.to_owned(), instance: None };
        let recorder = Recorder::new(client.clone(), source);
        Self { client: client.clone(), recorder, reports: HashMap::new() }
    }

    pub(super) async fn report(
        &mut self,
        decisions: &[Decision],
        groups: &BTreeMap<&GroupKey, &Group>,
        waiting: &[(&Group, WaitingReason)],
    ) {
        let now = Instant::now();
        self.reports.retain(|key, _| waiting.iter().any(|(group, _)| group.key == *key));
        for decision in decisions {
            if let (Action::Place { fabric, pods, .. }, Some(group)) =
                (&decision.step, groups.get(&decision.group))
            {
                self.placed(group, fabric, pods, decision.warning).await;
            }
        }
        for (group, why) in waiting {
            if self.is_due(&group.key, why, now) {
                self.waits(group, why).await;
            }
        }
    }

    fn is_due(&mut self, key: &GroupKey, why: &WaitingReason, now: Instant) -> bool {
        let report = self.reports.entry(key.clone()).or_insert_with(|| Report::new(why, now));
        report.is_due(why, now)
    }

    async fn placed(&self, group: &Group, fabric: &str, pods: &[String], warning: Option<Warning>) {
        let of_pods = group.gated().filter(|member| pods.contains(&member.name));
        let Some(first) = of_pods.min_by_key(|member| (member.created, &member.name)) else {
            return;
        };
        let placed = format!("{} pods of the group go to fabric {fabric}", pods.len());
        let (kind, reason, note) = match warning {
            None => (EventType::Normal, "FabricChosen", placed),
            Some(Warning::OneByOne) => (
                EventType::Warning,
                "FabricChosenOneByOne",
                format!(
                    "{placed}; nothing says how many pods there will be, so later ones may find \
                     no room there: set the annotation dranet.io/fabric-size"
                ),
            ),
            Some(Warning::Late) => (
                EventType::Warning,
                "FabricChosenLate",
                format!("{placed}, before the group is whole: it was waited for long"),
            ),
        };
        self.event(group, first, kind, reason, note).await;
    }

    async fn waits(&self, group: &Group, why: &WaitingReason) {
        let Some(first) = group.gated().min_by_key(|member| (member.created, &member.name)) else {
            return;
        };
        self.event(group, first, EventType::Warning, why.reason(), why.to_string()).await;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &group.key.namespace);
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({
            "type": CONDITION_FABRIC,
            "status": "False",
            "reason": why.reason(),
            "message": why.to_string(),
            "lastTransitionTime": now,
        });
        stream::iter(group.gated())
            .for_each_concurrent(TOGETHER, async |member| {
                let patch = json!({
                    "metadata": {"uid": member.uid},
                    "status": {"conditions": [condition]},
                });
                let patch = Patch::Strategic(patch);
                let written = api.patch_status(&member.name, &PatchParams::default(), &patch).await;
                if let Err(error) = written {
                    tracing::debug!(pod = member.name, %error, "Condition not written");
                }
            })
            .await;
    }

    async fn event(
        &self,
        group: &Group,
        member: &Member,
        kind: EventType,
        reason: &str,
        note: String,
    ) {
        let event = Event {
            type_: kind,
            reason: reason.to_owned(),
            note: Some(note),
            action: "ChooseFabric".to_owned(),
            secondary: None,
        };
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(group.key.namespace.clone()),
            name: Some(member.name.clone()),
            uid: Some(member.uid.clone()),
            ..ObjectReference::default()
        };
        if let Err(error) = self.recorder.publish(&event, &about).await {
            tracing::debug!(group = %group.key, %error, "Event not written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_changes_at_every_look_is_reported_later() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let lacks = |have| WaitingReason::NotWhole { have, want: 512 };
        let mut report = Report::new(&lacks(0), begun);
        for (second, why, expected) in [
            (1, lacks(100), false),
            (3, lacks(200), false),
            // Two seconds in the same words.
            (5, lacks(200), true),
            (7, lacks(200), false),
            // Other words, a minute later.
            (8, lacks(300), false),
            (66, lacks(300), true),
            // Another reason is something new.
            (67, WaitingReason::NoFabrics, false),
            (69, WaitingReason::NoFabrics, true),
        ] {
            assert_eq!(report.is_due(&why, at(second)), expected, "after {second} s");
        }
        let mut report = Report::new(&lacks(0), begun);
        let due = (1..=15).filter(|second| {
            let have = usize::try_from(*second).unwrap();
            report.is_due(&lacks(have), at(*second))
        });
        assert_eq!(due.collect::<Vec<_>>(), [15]);
    }
}
