//! Pods without a node that refer to managed templates: stores only which templates, since when,
//! and whether the pod is unschedulable.

use crate::needed_domain::NeededDomain;
use crate::rewrite;
use crate::template;
use cluster_model::view::ObjectKey;
use cluster_model::watch::Sink;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Reporting controller of the events on waiting pods.
pub(crate) const REPORTER: &str = "dranet-admission";

/// Waiting pods and their templates.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingPods(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    pods: Mutex<BTreeMap<ObjectKey, WaitingPod>>,
    changed: Notify,
    /// Templates of pods that were not known before.
    arrived: Mutex<BTreeSet<ObjectKey>>,
    has_arrived: Notify,
    /// A pod that needs a `ComputeDomain` has arrived, changed or gone.
    domains_changed: Notify,
}

#[derive(Debug)]
struct WaitingPod {
    /// Names of templates in the pod's namespace.
    templates: Vec<String>,
    is_deleted: bool,
    /// When this process saw it first.
    since: Instant,
    /// The pod's UID, if it is unschedulable.
    unschedulable: Option<String>,
    /// The `ComputeDomain` that it needs.
    domain: Option<NeededDomain>,
}

/// A pod that the scheduler found no node for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnschedulablePod {
    /// Namespace and name.
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    /// Names of managed templates in its namespace.
    pub(crate) templates: Vec<String>,
}

impl WaitingPods {
    /// The pods that the scheduler found no node for.
    pub(crate) fn unschedulable(&self) -> Vec<UnschedulablePod> {
        let pods = self.lock();
        let unschedulable =
            pods.iter().filter(|(_, pod)| !pod.is_deleted).filter_map(|(key, pod)| {
                let uid = pod.unschedulable.clone()?;
                Some(UnschedulablePod { key: key.clone(), uid, templates: pod.templates.clone() })
            });
        unschedulable.collect()
    }

    /// The templates that pods refer to, each with such a pod that is not being deleted,
    /// if any.
    pub(crate) fn templates(&self) -> BTreeMap<ObjectKey, Option<ObjectKey>> {
        let mut templates: BTreeMap<ObjectKey, Option<ObjectKey>> = BTreeMap::new();
        for (key, pod) in &*self.lock() {
            for name in &pod.templates {
                let template = ObjectKey { namespace: key.namespace.clone(), name: name.clone() };
                let first = templates.entry(template).or_default();
                if first.is_none() && !pod.is_deleted {
                    *first = Some(key.clone());
                }
            }
        }
        templates
    }

    /// Waits until pods have arrived since this was last called; returns their templates.
    pub(crate) async fn arrived(&self) -> BTreeSet<ObjectKey> {
        loop {
            let arrived = mem::take(&mut *lock(&self.0.arrived));
            if !arrived.is_empty() {
                return arrived;
            }
            self.0.has_arrived.notified().await;
        }
    }

    /// The templates that pods refer to which have waited for this long and are not being deleted,
    /// each with such a pod.
    pub(crate) fn templates_after(&self, time: Duration) -> BTreeMap<ObjectKey, ObjectKey> {
        let pods = self.lock();
        let waiting = pods.iter().filter(|(_, pod)| !pod.is_deleted && pod.since.elapsed() >= time);
        let templates = waiting.flat_map(|(key, pod)| {
            let template =
                |name: &String| ObjectKey { namespace: key.namespace.clone(), name: name.clone() };
            pod.templates.iter().map(move |name| (template(name), key.clone()))
        });
        templates.collect()
    }

    /// The `ComputeDomain`s that pods need which are not being deleted.
    pub(crate) fn domains(&self) -> Vec<NeededDomain> {
        let pods = self.lock();
        let waiting = pods.values().filter(|pod| !pod.is_deleted);
        waiting.filter_map(|pod| pod.domain.clone()).collect()
    }

    /// Returns when any of [`Self::domains`] may have changed since this was last called.
    pub(crate) async fn domains_changed(&self) {
        self.0.domains_changed.notified().await;
    }

    /// A pod that refers to the template and is not being deleted.
    pub(crate) fn pod_of(&self, template: &ObjectKey) -> Option<ObjectKey> {
        let pods = self.lock();
        let mut waiting = pods.iter().filter(|(key, pod)| {
            key.namespace == template.namespace
                && !pod.is_deleted
                && pod.templates.contains(&template.name)
        });
        waiting.next().map(|(key, _)| key.clone())
    }

    /// Returns when any of them has changed since this was last called.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, WaitingPod>> {
        lock(&self.0.pods)
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink<Pod> for WaitingPods {
    fn apply(&mut self, pod: Pod) {
        let ours = rewrite::templates(&pod).filter(|name| template::is_ours(name));
        let templates: Vec<_> = ours.map(str::to_owned).collect();
        let key = ObjectKey::new(&pod.metadata);
        if templates.is_empty() {
            return self.delete(&key);
        }
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        let domain = NeededDomain::new(&pod);
        let needs_domain = domain.is_some();
        let unschedulable = is_unschedulable(&pod).then_some(pod.metadata.uid).flatten();
        let mut pods = self.lock();
        let since = pods.get(&key).map(|known| known.since);
        if since.is_none() && !is_deleted {
            let namespace = &key.namespace;
            lock(&self.0.arrived).extend(
                templates
                    .iter()
                    .map(|name| ObjectKey { namespace: namespace.clone(), name: name.clone() }),
            );
            self.0.has_arrived.notify_one();
        }
        let since = since.unwrap_or_else(Instant::now);
        pods.insert(key, WaitingPod { templates, is_deleted, since, unschedulable, domain });
        drop(pods);
        self.0.changed.notify_one();
        if needs_domain {
            self.0.domains_changed.notify_one();
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        if self.lock().remove(key).is_some() {
            self.0.changed.notify_one();
        }
    }
}

fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unschedulable_pods_are_recognized_by_their_condition() {
        let (key, ours) = (
            ObjectKey { namespace: "n".to_owned(), name: "a".to_owned() },
            "dranet-0123456789abcdef",
        );
        let mut waiting = WaitingPods::default();
        let mut known = pod("a", ours, None);
        known.metadata.uid = Some("1".to_owned());
        waiting.apply(known.clone());
        assert_eq!(waiting.unschedulable(), []);
        let status = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        ]});
        known.status = serde_json::from_value(status).unwrap();
        waiting.apply(known);
        let expected =
            UnschedulablePod { key, uid: "1".to_owned(), templates: vec![ours.to_owned()] };
        assert_eq!(waiting.unschedulable(), [expected]);
    }

    fn pod(name: &str, template: &str, deleted: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name, "deletionTimestamp": deleted},
            "spec": {
                "containers": [],
                "resourceClaims": [{"name": "c", "resourceClaimTemplateName": template}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn each_template_is_listed_with_a_pod_that_is_not_deleted() {
        let key = |name: &str| ObjectKey { namespace: "n".to_owned(), name: name.to_owned() };
        let (ours, other) = ("dranet-0123456789abcdef", "dranet-fedcba9876543210");
        let mut pods = WaitingPods::default();
        pods.apply(pod("a", ours, Some("2026-01-01T00:00:00Z")));
        pods.apply(pod("b", ours, None));
        pods.apply(pod("c", "somebody-elses", None));
        pods.apply(pod("d", other, Some("2026-01-01T00:00:00Z")));
        let expected = [(key(ours), Some(key("b"))), (key(other), None)];
        assert_eq!(pods.templates(), expected.into_iter().collect());
        assert_eq!(pods.pod_of(&key(ours)), Some(key("b")));
        assert_eq!(pods.pod_of(&key(other)), None);
        let waiting = pods.templates_after(Duration::ZERO);
        assert_eq!(waiting, [(key(ours), key("b"))].into_iter().collect());
        assert_eq!(pods.templates_after(Duration::from_hours(1)), BTreeMap::new());
        pods.delete(&key("b"));
        assert_eq!(pods.templates()[&key(ours)], None);
    }

    #[tokio::test]
    async fn templates_of_new_pods_arrive_once() {
        let key = |name: &str| ObjectKey { namespace: "n".to_owned(), name: name.to_owned() };
        let ours = "dranet-0123456789abcdef";
        let mut pods = WaitingPods::default();
        pods.apply(pod("a", ours, None));
        pods.apply(pod("b", ours, None));
        assert_eq!(pods.arrived().await, [key(ours)].into());
        pods.apply(pod("a", ours, None));
        let nothing = tokio::time::timeout(Duration::from_millis(20), pods.arrived()).await;
        assert!(nothing.is_err(), "{nothing:?}");
    }
}
