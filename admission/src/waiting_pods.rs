//! Pods without a node that refer to managed templates: stores only which templates, which of them
//! admission has decided on, since when, and whether the pod is unschedulable.

use crate::admitted;
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

/// Waiting pods and their templates.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingPods(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    pods: Mutex<BTreeMap<ObjectKey, WaitingPod>>,
    changed: Notify,
    /// Templates of admitted pods that were not known before.
    arrived: Mutex<BTreeSet<ObjectKey>>,
    has_arrived: Notify,
    /// A pod that needs a `ComputeDomain` has arrived, changed or gone.
    domains_changed: Notify,
}

#[derive(Debug)]
struct WaitingPod {
    /// Names of templates in the pod's namespace.
    templates: Vec<String>,
    /// The one that admission has decided on.
    admitted: Option<String>,
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

/// A pod that refers to a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateUser {
    /// Namespace and name of the pod.
    pub(crate) pod: ObjectKey,
    /// Whether admission has decided on this template for it.
    pub(crate) is_admitted: bool,
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

    /// Waits until admitted pods have arrived since this was last called; returns their templates.
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
    /// each with such a pod: an admitted one, if there is any.
    pub(crate) fn templates_after(
        &self,
        time: Duration,
        now: Instant,
    ) -> BTreeMap<ObjectKey, TemplateUser> {
        let pods = self.lock();
        let waiting = pods
            .iter()
            .filter(|(_, pod)| !pod.is_deleted && now.saturating_duration_since(pod.since) >= time);
        let mut users: BTreeMap<ObjectKey, TemplateUser> = BTreeMap::new();
        for (key, pod) in waiting {
            for name in &pod.templates {
                let template = ObjectKey { namespace: key.namespace.clone(), name: name.clone() };
                let is_admitted = pod.admitted.as_ref() == Some(name);
                if users.get(&template).is_none_or(|user| is_admitted && !user.is_admitted) {
                    users.insert(template, TemplateUser { pod: key.clone(), is_admitted });
                }
            }
        }
        users
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

    /// An admitted pod that waits for the template and is not being deleted.
    pub(crate) fn pod_of(&self, template: &ObjectKey) -> Option<ObjectKey> {
        let pods = self.lock();
        let mut waiting = pods.iter().filter(|(key, pod)| {
            key.namespace == template.namespace
                && !pod.is_deleted
                && pod.admitted.as_ref() == Some(&template.name)
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
        let admitted = admitted::template(&pod).map(str::to_owned);
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        let domain = NeededDomain::new(&pod);
        let needs_domain = domain.is_some();
        let unschedulable = is_unschedulable(&pod).then_some(pod.metadata.uid).flatten();
        let mut pods = self.lock();
        let since = pods.get(&key).map(|known| known.since);
        if let Some(name) = admitted.clone().filter(|_| since.is_none() && !is_deleted) {
            let namespace = key.namespace.clone();
            lock(&self.0.arrived).insert(ObjectKey { namespace, name });
            self.0.has_arrived.notify_one();
        }
        let since = since.unwrap_or_else(Instant::now);
        let known = WaitingPod { templates, admitted, is_deleted, since, unschedulable, domain };
        pods.insert(key, known);
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
    use cluster_model::names::annotation;
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
            "metadata": {
                "namespace": "n", "name": name, "deletionTimestamp": deleted,
                "annotations": {annotation::PLAN: format!("1 NIC; template {template}")},
            },
            "spec": {
                "containers": [],
                "resourceClaims": [{"name": "dranet", "resourceClaimTemplateName": template}],
            },
        }))
        .unwrap()
    }

    /// A pod that admission has not seen.
    fn ghost(name: &str, template: &str) -> Pod {
        let mut ghost = pod(name, template, None);
        ghost.metadata.annotations = None;
        ghost
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
        let user = |name: &str, is_admitted| TemplateUser { pod: key(name), is_admitted };
        let waiting = pods.templates_after(Duration::ZERO, Instant::now());
        assert_eq!(waiting, [(key(ours), user("b", true))].into());
        assert_eq!(pods.templates_after(Duration::from_hours(1), Instant::now()), BTreeMap::new());
        // A pod that admission has not seen hides no other.
        pods.apply(ghost("ant", ours));
        pods.apply(ghost("z", ours));
        pods.apply(ghost("z-other", other));
        let expected = [(key(ours), user("b", true)), (key(other), user("z-other", false))];
        assert_eq!(pods.templates_after(Duration::ZERO, Instant::now()), expected.into());
        assert_eq!(pods.pod_of(&key(other)), None);
        for name in ["ant", "z", "z-other"] {
            pods.delete(&key(name));
        }
        pods.delete(&key("b"));
        assert_eq!(pods.templates()[&key(ours)], None);
    }

    #[tokio::test]
    async fn a_pod_that_admission_has_not_admitted_gets_no_template() {
        let mut pods = WaitingPods::default();
        pods.apply(ghost("a", "dranet-0123456789abcdef"));
        let nothing = tokio::time::timeout(Duration::from_millis(20), pods.arrived()).await;
        assert!(nothing.is_err(), "{nothing:?}");
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
