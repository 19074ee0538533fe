//! Sends events on pods that wait for the cell that their claim is pinned to while
//! another cell is free. Neither the claim nor the pod can be changed, so a person has to
//! act.

use super::waiting_pods::{UnschedulablePod, WaitingPods};
use super::{Leader, LeaderError};
use crate::admit::free_elsewhere;
use cluster_model::names::annotation;
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use process::chain::Chain;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often the same pod is checked again.
const AGAIN: Duration = Duration::from_secs(30);
/// The most pods per round; each is read and planned.
const AT_ONCE: usize = 16;
/// Reporting controller of the events.
const REPORTER: &str = "dranet-admission";

/// When each pod, by UID, was last checked; `None` if it already has its event.
pub(super) type Looked = BTreeMap<String, Option<Instant>>;

impl Leader {
    /// Looks at pods that wait for their cells, a few at a time.
    pub(super) async fn report_pinned(&self, waiting: &WaitingPods, looked: &mut Looked) {
        let unschedulable = waiting.unschedulable();
        looked.retain(|uid, _| unschedulable.iter().any(|pod| pod.uid == *uid));
        let due = due(unschedulable, &self.templates.view.read(), looked, Instant::now());
        for pod in due {
            let reported = self.report(&pod).await.unwrap_or_else(|error| {
                tracing::warn!(pod = %pod.key, error = %Chain(&error), "Event not written");
                false
            });
            looked.insert(pod.uid, (!reported).then(Instant::now));
        }
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
                 its controller creates is pinned anew"
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

/// Pods with a pinned claim that were not looked at lately.
fn due(
    pods: Vec<UnschedulablePod>,
    view: &ClusterView,
    looked: &Looked,
    now: Instant,
) -> Vec<UnschedulablePod> {
    let is_pinned = |pod: &UnschedulablePod| {
        pod.templates().any(|key| {
            let annotations =
                view.template_object(&key).and_then(|it| it.metadata.annotations.as_ref());
            annotations.is_some_and(|it| it.contains_key(annotation::PINNED))
        })
    };
    let is_due = |pod: &UnschedulablePod| match looked.get(&pod.uid) {
        None => true,
        Some(None) => false,
        Some(Some(at)) => now.duration_since(*at) >= AGAIN,
    };
    let due = pods.into_iter().filter(|pod| is_due(pod) && is_pinned(pod));
    due.take(AT_ONCE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::view::{Index, ObjectKey};
    use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
    use serde_json::json;

    #[test]
    fn pinned_pods_are_looked_at_now_and_then_until_they_have_their_event() {
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
        let names: Vec<_> = due(pods, &view, &looked, now).into_iter().map(|pod| pod.uid).collect();
        assert_eq!(names, ["new", "late"]);
    }
}
