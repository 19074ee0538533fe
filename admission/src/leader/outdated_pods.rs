//! Sends events on pods that wait while a new pod like them would run: their claim is pinned to a
//! cell and another cell is free, or it was planned before machines came that it does not know.
//! Neither the claim nor the pod can be changed, so the user has to act.

use super::{Leader, LeaderError};
use crate::admit::{fits_anew, free_elsewhere};
use crate::group;
use crate::plan::Policy;
use crate::pod_event;
use crate::waiting_pods::UnschedulablePod;
use crate::wording::nodes;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use process::chain::Chain;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::time::{Duration, Instant};

/// The interval between checks of the same pod.
const AGAIN: Duration = Duration::from_secs(30);
/// The most pods per round, each with another template; each is read and planned.
const AT_ONCE: usize = 4;

/// When each pod, by UID, was last checked; `None` if it already has its event.
pub(super) type Looked = BTreeMap<String, Option<Instant>>;

/// Why a new pod would run.
struct Finding {
    reason: &'static str,
    note: String,
}

impl Leader {
    /// Checks pods that no node can serve, a few at a time. Returns the time until the next check
    /// is due.
    pub(super) async fn report_outdated(&self, looked: &mut Looked) -> Option<Duration> {
        let pods = self.waiting.unschedulable();
        looked.retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
        for pod in due(&pods, looked, Instant::now()) {
            let reported = self.report(pod).await.unwrap_or_else(|error| {
                tracing::warn!(pod = %pod.key, error = %Chain(&error), "Event not written");
                false
            });
            looked.insert(pod.uid.clone(), (!reported).then(Instant::now));
        }
        let now = Instant::now();
        pods.iter().filter_map(|pod| remaining(pod, looked, now)).min()
    }

    /// Returns true if a new pod would run and the events were sent.
    async fn report(&self, waiting: &UnschedulablePod) -> Result<bool, LeaderError> {
        let Some(pod) = self.pod(&waiting.key).await? else { return Ok(false) };
        let (view, policy) = (self.templates.view.clone(), self.policy.clone());
        let asked = pod.clone();
        // A plan may take a second.
        let found = tokio::task::spawn_blocking(move || finding(&asked, &view.read(), &policy))
            .await
            .ok()
            .flatten();
        let Some(Finding { reason, note }) = found else { return Ok(false) };
        let event = pod_event::warning("Plan", reason, &note);
        let recorder = pod_event::recorder(&self.templates.client);
        let ObjectKey { namespace, name } = &waiting.key;
        let owner = group::controller(&pod.metadata);
        let owner = owner.map(|owner| pod_event::about_owner(namespace, owner));
        let this = pod_event::about_pod(namespace, name, &waiting.uid);
        for about in iter::once(this).chain(owner) {
            let written = recorder.publish(&event, &about).await;
            written.map_err(super::writing("Event on Pod", &waiting.key.to_string()))?;
        }
        Ok(true)
    }
}

fn finding(pod: &Pod, view: &ClusterView, policy: &Policy) -> Option<Finding> {
    if let Some((own, other)) = free_elsewhere(pod, view, policy) {
        let note = format!(
            "the claim of this pod is pinned to {own}, where no devices are free for it, while \
             {other} has free ones; a claim cannot be moved: delete the pod, and the one that its \
             controller creates is pinned again"
        );
        return Some(Finding { reason: "OtherCellFree", note });
    }
    let fitting = fits_anew(pod, view, policy)?;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let note = format!(
        "no node has free devices for the claim of pod {name}, which was planned for the machines of \
         that time; a claim cannot be changed: delete the pod, and a new one gets a claim that has \
         free devices on {} now",
        nodes(&fitting)
    );
    Some(Finding { reason: "NewClaimFits", note })
}

/// The time until a pod is checked; `None` if it already has its event.
fn remaining(pod: &UnschedulablePod, looked: &Looked, now: Instant) -> Option<Duration> {
    match looked.get(&pod.uid) {
        None => Some(Duration::ZERO),
        Some(at) => at.map(|at| AGAIN.saturating_sub(now.duration_since(at))),
    }
}

/// The pods to check in this round: those that were not checked for the longest time, one of each
/// template.
fn due<'p>(
    pods: &'p [UnschedulablePod],
    looked: &Looked,
    now: Instant,
) -> Vec<&'p UnschedulablePod> {
    let mut due: Vec<_> =
        pods.iter().filter(|pod| remaining(pod, looked, now) == Some(Duration::ZERO)).collect();
    due.sort_by_key(|pod| looked.get(&pod.uid).copied().flatten());
    let mut seen = BTreeSet::new();
    due.retain(|pod| seen.insert((&pod.key.namespace, &pod.templates)));
    due.truncate(AT_ONCE);
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::view::ObjectKey;

    #[test]
    fn waiting_pods_are_checked_until_they_have_their_event() {
        let pod = |name: &str, template: &str| UnschedulablePod {
            key: ObjectKey { namespace: "n".to_owned(), name: name.to_owned() },
            uid: name.to_owned(),
            templates: vec![template.to_owned()],
        };
        let pods = ["new", "late", "early", "said"].map(|name| pod(name, name));
        let pods: Vec<_> = pods.into_iter().chain([pod("twin", "new")]).collect();
        let begun = Instant::now();
        let now = begun + 2 * AGAIN;
        let looked = Looked::from([
            ("late".to_owned(), Some(begun)),
            ("early".to_owned(), Some(now)),
            ("said".to_owned(), None),
        ]);
        let left: Vec<_> = pods.iter().map(|pod| remaining(pod, &looked, now)).collect();
        let due_now = Some(Duration::ZERO);
        assert_eq!(left, [due_now, due_now, Some(AGAIN), None, due_now]);
        let due = due(&pods, &looked, now);
        let names: Vec<_> = due.iter().map(|pod| pod.uid.as_str()).collect();
        assert_eq!(names, ["new", "late"], "one pod of each template, the longest unchecked first");
    }
}
