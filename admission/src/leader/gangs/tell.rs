//! What people are told: a condition on every pod that waits, an event on the first
//! of the group. Said when it has been so for a moment, and again when it changes.

use crate::gang::decide::Warning;
use crate::gang::group::GroupKey;
use crate::gang::{Decision, Group, Member, Step, Why};
use crate::template::MANAGED_BY;
use cluster_model::names::CONDITION_FABRIC;
use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// For how long something has been so before it is said: most is over by then.
const MOMENT: Duration = Duration::from_secs(2);
/// How often the same is said in other words.
const AGAIN: Duration = Duration::from_mins(1);
/// Conditions that are written at a time.
const TOGETHER: usize = 8;

/// What has been told.
pub(super) struct Told {
    client: Client,
    recorder: Recorder,
    said: HashMap<GroupKey, Said>,
}

#[derive(Debug)]
struct Said {
    reason: &'static str,
    since: Instant,
    last: Option<(Instant, String)>,
}

impl Told {
    pub(super) fn new(client: &Client) -> Self {
        let reporter = Reporter { controller: MANAGED_BY.to_owned(), instance: None };
        let recorder = Recorder::new(client.clone(), reporter);
        Self { client: client.clone(), recorder, said: HashMap::new() }
    }

    pub(super) async fn tell(
        &mut self,
        decisions: &[Decision],
        groups: &BTreeMap<&GroupKey, &Group>,
        waiting: &[(&Group, Why)],
    ) {
        let now = Instant::now();
        self.said.retain(|key, _| waiting.iter().any(|(group, _)| group.key == *key));
        for decision in decisions {
            if let (Step::Place { fabric, pods, .. }, Some(group)) =
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

    fn is_due(&mut self, key: &GroupKey, why: &Why, now: Instant) -> bool {
        let reason = why.reason();
        let new = || Said { reason, since: now, last: None };
        let said = self.said.entry(key.clone()).or_insert_with(new);
        if said.reason != reason {
            *said = new();
        }
        let text = why.to_string();
        let due = now.duration_since(said.since) >= MOMENT
            && said
                .last
                .as_ref()
                .is_none_or(|(when, last)| *last != text && now.duration_since(*when) >= AGAIN);
        if due {
            said.last = Some((now, text));
        }
        due
    }

    async fn placed(&self, group: &Group, fabric: &str, pods: &[String], warning: Option<Warning>) {
        let of_pods = group.held().filter(|member| pods.contains(&member.name));
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

    async fn waits(&self, group: &Group, why: &Why) {
        let Some(first) = group.held().min_by_key(|member| (member.created, &member.name)) else {
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
        stream::iter(group.held())
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
