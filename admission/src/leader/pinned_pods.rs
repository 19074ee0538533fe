//! Sends events on pods that wait for the cell that their claim is pinned to while
//! another cell is free. Neither the claim nor the pod can be changed, so the user has to act.

use super::{Leader, LeaderError};
use crate::admit::free_elsewhere;
use crate::waiting_pods::{UnschedulablePod, WaitingPods};
use cluster_model::names::annotation;
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use process::chain::Chain;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The interval between checks of the same pod.
const AGAIN: Duration = Duration::from_secs(30);
/// The most pods per round; each is read and planned.
const AT_ONCE: usize = 16;
/// Reporting controller of the events.
const REPORTER: &str = "dranet-admission";

/// When each pod, by UID, was last checked; `None` if it already has its event.
pub(super) type Looked = BTreeMap<String, Option<Instant>>;

impl Leader {
    /// Checks pods that wait for their cells, a few at a time. Returns the time until the next
    /// check is due.
    pub(super) async fn report_pinned(
        &self,
        waiting: &WaitingPods,
        looked: &mut Looked,
    ) -> Option<Duration> {
        let pinned = pinned(waiting.unschedulable(), &self.templates.view.read());
        looked.retain(|uid, _| pinned.iter().any(|pod| pod.uid == *uid));
        for pod in due(&pinned, looked, Instant::now()) {
            let reported = self.report(pod).await.unwrap_or_else(|error| {
                tracing::warn!(pod = %pod.key, error = %Chain(&error), "Event not written");
                false
            });
            looked.insert(pod.uid.clone(), (!reported).then(Instant::now));
        }
        let now = Instant::now();
        pinned.iter().filter_map(|pod| remaining(pod, looked, now)).min()
    }

    /// Returns true if another cell is free and the event was sent.
    async fn report(&self, waiting: &UnschedulablePod) -> Result<bool, LeaderError> {
        let Some(pod) = self.pod(&waiting.key).await? else { return Ok(false) };
        let (view, policy) = (self.templates.view.clone(), self.policy.clone());
        // A plan may take a second.
        let asked = move || free_elsewhere(&pod, &view.read(), &policy);
        let found = tokio::task::spawn_blocking(asked).await.ok().flatten();
        let Some((own, other)) = found else { return Ok(false) };
        let event = Event {
            type_: EventType::Warning,
            reason: "OtherCellFree".to_owned(),
            note: Some(format!(
                "the claim of this pod is pinned to {own}, where no devices are free for it, while \
                 {other} has free ones; a claim cannot be moved: delete the pod, and the one that \
                 its controller creates is pinned again"
            )),
            action: "Pin".to_owned(),
            secondary: None,
        };
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(waiting.key.namespace.clone()),
            name: Some(waiting.key.name.clone()),
            uid: Some(waiting.uid.clone()),
            ..ObjectReference::default()
        };
        let source = Reporter { controller: REPORTER.to_owned(), instance: None };
        let recorder = Recorder::new(self.templates.client.clone(), source);
        let written = recorder.publish(&event, &about).await;
        written.map_err(super::writing("Event on Pod", &waiting.key.to_string()))?;
        Ok(true)
    }
}

/// The pods that have a pinned claim.
fn pinned(pods: Vec<UnschedulablePod>, view: &ClusterView) -> Vec<UnschedulablePod> {
    let is_pinned = |pod: &UnschedulablePod| {
        pod.templates().any(|key| {
            let annotations =
                view.template_object(&key).and_then(|it| it.metadata.annotations.as_ref());
            annotations.is_some_and(|it| it.contains_key(annotation::PINNED))
        })
    };
    pods.into_iter().filter(is_pinned).collect()
}

/// The time until a pod is checked; `None` if it already has its event.
fn remaining(pod: &UnschedulablePod, looked: &Looked, now: Instant) -> Option<Duration> {
    match looked.get(&pod.uid) {
        None => Some(Duration::ZERO),
        Some(at) => at.map(|at| AGAIN.saturating_sub(now.duration_since(at))),
    }
}

/// The pods to check in this round.
fn due<'p>(
    pods: &'p [UnschedulablePod],
    looked: &Looked,
    now: Instant,
) -> Vec<&'p UnschedulablePod> {
    let is_due = |pod: &&UnschedulablePod| remaining(pod, looked, now) == Some(Duration::ZERO);
    pods.iter().filter(is_due).take(AT_ONCE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::view::{Index, ObjectKey};
    use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
    use serde_json::json;

    #[test]
    fn pinned_pods_are_checked_until_they_have_their_event() {
        let mut view = ClusterView::default();
        for (name, annotations) in
            [("pinned", json!({ annotation::PINNED: "numa0" })), ("free", json!({}))]
        {
            let object = json!({
                "metadata": { "namespace": "n", "name": name, "annotations": annotations },
                "spec": { "spec": {} },
            });
            view.apply(serde_json::from_value::<ResourceClaimTemplate>(object).unwrap()).unwrap();
        }
        let pod = |name: &str, template: &str| UnschedulablePod {
            key: ObjectKey { namespace: "n".to_owned(), name: name.to_owned() },
            uid: name.to_owned(),
            templates: vec![template.to_owned()],
        };
        let pods = ["new", "late", "early", "said"].map(|name| pod(name, "pinned"));
        let pods: Vec<_> = pods.into_iter().chain([pod("other", "free")]).collect();
        let begun = Instant::now();
        let now = begun + 2 * AGAIN;
        let looked = Looked::from([
            ("late".to_owned(), Some(begun)),
            ("early".to_owned(), Some(now)),
            ("said".to_owned(), None),
        ]);
        let pinned = pinned(pods, &view);
        let left: Vec<_> = pinned.iter().map(|pod| remaining(pod, &looked, now)).collect();
        assert_eq!(left, [Some(Duration::ZERO), Some(Duration::ZERO), Some(AGAIN), None]);
        let due = due(&pinned, &looked, now);
        let names: Vec<_> = due.iter().map(|pod| pod.uid.as_str()).collect();
        assert_eq!(names, ["new", "late"]);
    }
}
