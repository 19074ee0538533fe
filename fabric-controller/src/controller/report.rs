//! Reports why groups wait: a condition and an event on every waiting pod. A reason is reported once it has been stable for a moment, and again
//! when it changes. While a group's pods are being created, the reason differs in every
//! round.

use crate::decide::Warning;
use crate::group::GroupKey;
use crate::{Action, Decision, Group, Member, WaitingReason};
use cluster_model::names::{CONDITION_FABRIC, pod_group};
use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter as EventSource};
use kube::{Api, Client};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// How long a reason must be stable before it is reported. Most reasons end sooner.
const MOMENT: Duration = Duration::from_secs(2);
/// Time after which a reason is reported even while it keeps changing.
const PATIENCE: Duration = Duration::from_secs(15);
/// The minimum time between events about the same reason with different texts.
const EVENT_AGAIN: Duration = Duration::from_mins(1);
/// The same for conditions, which must not be long out of date, and in addition for each pod of a group,
/// as each is a write.
const CONDITION_AGAIN: Duration = Duration::from_secs(5);
const CONDITION_OF_POD: Duration = Duration::from_millis(50);
/// How many conditions or events are written concurrently.
const TOGETHER: usize = 16;
/// Reporting controller of the events.
const REPORTER: &str = "dranet-fabric-controller";

/// Writes conditions and events, and remembers what was reported.
pub(super) struct Reporter {
    client: Client,
    recorder: Recorder,
    reports: HashMap<GroupKey, Report>,
}

/// Why a group waits, and what has been reported.
#[derive(Clone, Debug)]
struct Report {
    reason: &'static str,
    /// When this reason began.
    begun: Instant,
    text: String,
    /// When the text last changed.
    since: Instant,
    condition: Said,
    event: Said,
}

/// What was last said of a reason, and how long that stays.
#[derive(Clone, Debug)]
struct Said {
    again: Duration,
    last: Option<(Instant, String)>,
}

/// What is due to be said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Due {
    condition: bool,
    event: bool,
}

impl Said {
    /// When this text may be said, not before `soonest`; `None` if it was said last.
    fn next(&self, text: &str, soonest: Instant) -> Option<Instant> {
        match &self.last {
            Some((_, last)) if last == text => None,
            Some((when, _)) => Some(soonest.max(*when + self.again)),
            None => Some(soonest),
        }
    }

    /// Returns true if the text may be said now, and records that it is.
    fn is_due(&mut self, text: &str, now: Instant) -> bool {
        let is_due = self.next(text, now).is_some_and(|next| next <= now);
        if is_due {
            self.last = Some((now, text.to_owned()));
        }
        is_due
    }
}

impl Report {
    /// A reason for which a number of pods wait.
    fn new(why: &WaitingReason, pods: usize, now: Instant) -> Self {
        let pods = u32::try_from(pods).unwrap_or(u32::MAX);
        let again = CONDITION_AGAIN.saturating_add(CONDITION_OF_POD.saturating_mul(pods));
        Self {
            reason: why.reason(),
            begun: now,
            text: why.to_string(),
            since: now,
            condition: Said { again, last: None },
            event: Said { again: EVENT_AGAIN, last: None },
        }
    }

    /// Returns what is due to be said of the reason, and records that it is.
    fn due(&mut self, why: &WaitingReason, pods: usize, now: Instant) -> Due {
        let text = why.to_string();
        if self.reason != why.reason() {
            *self = Self::new(why, pods, now);
        } else if self.text != text {
            (self.text, self.since) = (text, now);
        }
        if now < self.settled() {
            return Due::default();
        }
        let condition = self.condition.is_due(&self.text, now);
        Due { condition, event: self.event.is_due(&self.text, now) }
    }

    /// When the reason has been stable for long enough, or has changed for long enough.
    fn settled(&self) -> Instant {
        (self.since + MOMENT).min(self.begun + PATIENCE)
    }

    /// The time until something is due if the reason does not change; `None` if this text has been said.
    fn remaining(&self, now: Instant) -> Option<Duration> {
        let said = [&self.condition, &self.event].into_iter();
        let due = said.filter_map(|it| it.next(&self.text, self.settled())).min()?;
        Some(due.saturating_duration_since(now))
    }
}

impl Reporter {
    pub(super) fn new(client: &Client) -> Self {
        Self { client: client.clone(), recorder: recorder(client), reports: HashMap::new() }
    }

    pub(super) async fn report(
        &mut self,
        decisions: &[Decision],
        groups: &BTreeMap<&GroupKey, &Group>,
        waiting: &[(GroupKey, WaitingReason)],
    ) {
        let now = Instant::now();
        let in_wait: BTreeSet<&GroupKey> = waiting.iter().map(|(key, _)| key).collect();
        self.reports.retain(|key, _| in_wait.contains(key));
        for decision in decisions {
            if let (Action::Place { fabric, pods, .. }, Some(group)) =
                (&decision.action, groups.get(&decision.group))
            {
                self.placed(group, fabric, pods, decision.warning).await;
            }
        }
        for (key, group) in groups {
            self.clear_conditions(group, in_wait.contains(key)).await;
        }
        for (key, why) in waiting {
            if let Some(group) = groups.get(key) {
                let due = self.due(group, why, now);
                self.waits(group, why, due).await;
            }
        }
    }

    /// The time until the next report is due if no reason changes.
    pub(super) fn next_due(&self, now: Instant) -> Option<Duration> {
        self.reports.values().filter_map(|report| report.remaining(now)).min()
    }

    fn due(&mut self, group: &Group, why: &WaitingReason, now: Instant) -> Due {
        let pods = group.waiting().count();
        let reports = self.reports.entry(group.key.clone());
        reports.or_insert_with(|| Report::new(why, pods, now)).due(why, pods, now)
    }

    async fn placed(&self, group: &Group, fabric: &str, pods: &[String], warning: Option<Warning>) {
        let pods: BTreeSet<_> = pods.iter().collect();
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
                format!("{placed}; others do not exist yet, and they were waited for long enough"),
            ),
            Some(Warning::Grows) => (
                EventType::Normal,
                "FabricGrows",
                format!("{placed}, which has no room yet, so that an autoscaler adds nodes to it"),
            ),
        };
        let of_pods = group.gated().filter(|member| pods.contains(&member.name));
        self.events(group, of_pods, kind, reason, &note).await;
    }

    /// Reports that kube-scheduler places the group from now on.
    pub(super) async fn made_pod_group(&self, group: &Group) {
        let note = format!(
            "PodGroup {} created: kube-scheduler puts the pods of the group on one fabric",
            pod_group(&group.key.label)
        );
        self.events(group, group.gated(), EventType::Normal, "PodGroupCreated", &note).await;
    }

    async fn waits(&self, group: &Group, why: &WaitingReason, due: Due) {
        if due.event {
            let text = why.to_string();
            self.events(group, group.waiting(), EventType::Warning, why.reason(), &text).await;
        }
        if due.condition {
            let conditions = group.waiting().map(|it| (it, condition("False", why.reason(), why)));
            self.write_conditions(group, conditions).await;
        }
    }

    /// Clears the conditions of pods that no longer wait.
    async fn clear_conditions(&self, group: &Group, is_waiting: bool) {
        let told = group.members.iter().filter(|member| member.has_waiting_condition);
        let conditions = told.filter_map(|member| {
            if member.in_pod_group {
                let text = "kube-scheduler puts the pods of the PodGroup on one fabric";
                let handed_over = condition("True", "PodGroupCreated", &text);
                return (!is_waiting).then_some((member, handed_over));
            }
            let is_placed = member.is_released() && !(is_waiting && member.is_waiting());
            let fabric = member.chosen.as_deref().unwrap_or_default();
            let text = format!("the group is on fabric {fabric}");
            is_placed.then(|| (member, condition("True", "FabricChosen", &text)))
        });
        self.write_conditions(group, conditions).await;
    }

    async fn write_conditions<'g>(
        &self,
        group: &Group,
        conditions: impl Iterator<Item = (&'g Member, PodCondition)>,
    ) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &group.key.namespace);
        stream::iter(conditions)
            .for_each_concurrent(TOGETHER, async |(member, condition)| {
                let patch = Patch::Strategic(with_condition(member, condition));
                let written = api.patch_status(&member.name, &PatchParams::default(), &patch).await;
                if let Err(error) = written {
                    tracing::debug!(pod = member.name, %error, "Failed to write a condition");
                }
            })
            .await;
    }

    /// Sends the same event about each of these pods.
    async fn events<'g>(
        &self,
        group: &Group,
        members: impl Iterator<Item = &'g Member>,
        kind: EventType,
        reason: &str,
        note: &str,
    ) {
        let event = Event {
            type_: kind,
            reason: reason.to_owned(),
            note: Some(note.to_owned()),
            action: "ChooseFabric".to_owned(),
            secondary: None,
        };
        stream::iter(members)
            .for_each_concurrent(TOGETHER, async |member| {
                let about = reference(group, member);
                if let Err(error) = self.recorder.publish(&event, &about).await {
                    tracing::debug!(pod = member.name, %error, "Failed to send an event");
                }
            })
            .await;
    }
}

/// Sends the controller's events.
pub(super) fn recorder(client: &Client) -> Recorder {
    let source = EventSource { controller: REPORTER.to_owned(), instance: None };
    Recorder::new(client.clone(), source)
}

fn reference(group: &Group, member: &Member) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(group.key.namespace.clone()),
        name: Some(member.name.clone()),
        uid: Some(member.uid.clone()),
        ..ObjectReference::default()
    }
}

fn condition(status: &str, reason: &str, message: &impl ToString) -> PodCondition {
    PodCondition {
        type_: CONDITION_FABRIC.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_string()),
        last_transition_time: Some(Time(Timestamp::now())),
        ..PodCondition::default()
    }
}

/// A patch with the condition for exactly this pod, identified by UID.
fn with_condition(member: &Member, condition: PodCondition) -> Pod {
    Pod {
        metadata: ObjectMeta { uid: Some(member.uid.clone()), ..ObjectMeta::default() },
        status: Some(PodStatus { conditions: Some(vec![condition]), ..PodStatus::default() }),
        ..Pod::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changing_reason_is_reported_later() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let lacks = |have| WaitingReason::NotWhole { have, want: 512 };
        let nothing = Due::default();
        let condition = Due { condition: true, event: false };
        let both = Due { condition: true, event: true };
        let mut report = Report::new(&lacks(0), 20, begun);
        for (second, why, expected) in [
            (1, lacks(100), nothing),
            (3, lacks(200), nothing),
            // The same text for two seconds.
            (5, lacks(200), both),
            (7, lacks(200), nothing),
            // Another text: the condition after six seconds, the event after a minute.
            (8, lacks(300), nothing),
            (11, lacks(300), condition),
            (66, lacks(300), Due { condition: false, event: true }),
            // Another reason starts again.
            (67, WaitingReason::NoFabrics, nothing),
            (69, WaitingReason::NoFabrics, both),
        ] {
            assert_eq!(report.due(&why, 20, at(second)), expected, "after {second} s");
            let again = report.remaining(at(second)).map(|left| at(second) + left);
            assert_eq!(again.is_none(), expected.event || second == 7, "after {second} s");
            if let Some(again) = again {
                let mut later = report.clone();
                let before = again.checked_sub(Duration::from_millis(1)).unwrap();
                assert_eq!(later.due(&why, 20, before), nothing);
                assert_ne!(later.due(&why, 20, again), nothing, "after {second} s");
            }
        }
        let mut report = Report::new(&lacks(0), 20, begun);
        let due = (1..=15).filter(|second| {
            let have = usize::try_from(*second).unwrap();
            report.due(&lacks(have), 20, at(*second)) != nothing
        });
        assert_eq!(due.collect::<Vec<_>>(), [15]);
    }

    /// A group of eight pods has a condition of the last seconds, however often its text changes.
    #[test]
    fn a_condition_is_not_long_out_of_date() {
        let begun = Instant::now();
        let lacks = |have| WaitingReason::NotWhole { have, want: 512 };
        let mut report = Report::new(&lacks(0), 8, begun);
        let (mut shown, mut events) = (begun, 0);
        for second in 1..600 {
            let now = begun + Duration::from_secs(second);
            let have = usize::try_from(second).unwrap();
            let due = report.due(&lacks(have), 8, now);
            events += usize::from(due.event);
            shown = if due.condition { now } else { shown };
            let age = now.duration_since(shown);
            assert!(second <= 15 || age < Duration::from_secs(10), "{age:?} after {second} s");
        }
        assert!(events <= 10, "{events} events in ten minutes");
    }
}
