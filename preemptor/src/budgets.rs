//! The `PodDisruptionBudgets` of a cluster.

use super::pods::BoundPod;
use cluster_model::room::{PodKey, Term};
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use std::collections::{BTreeMap, BTreeSet};

/// All `PodDisruptionBudgets`, by namespace and name.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    all: BTreeMap<String, BTreeMap<String, Budget>>,
}

/// A `PodDisruptionBudget`.
#[derive(Clone, Debug)]
struct Budget {
    /// The pods that it selects.
    pods: Term,
    /// How many of them may be evicted now.
    allowed: i32,
    /// Pods whose eviction is counted already.
    counted: BTreeSet<String>,
}

impl Budgets {
    /// Adds or replaces a budget.
    pub fn apply(&mut self, budget: PodDisruptionBudget) {
        let PodDisruptionBudget { metadata, spec, status } = budget;
        let ObjectKey { namespace, name } = ObjectKey::new(&metadata);
        let selector = spec.and_then(|spec| spec.selector);
        let allowed = status.as_ref().and_then(|it| it.disruptions_allowed).unwrap_or(0);
        let counted = status.and_then(|status| status.disrupted_pods);
        let known = Budget {
            pods: Term::of_namespace(selector.as_ref()),
            allowed,
            counted: counted.into_iter().flatten().map(|(pod, _)| pod).collect(),
        };
        self.all.entry(namespace).or_default().insert(name, known);
    }

    /// Removes a budget.
    pub fn delete(&mut self, key: &ObjectKey) {
        if let Some(of_namespace) = self.all.get_mut(&key.namespace) {
            of_namespace.remove(&key.name);
            if of_namespace.is_empty() {
                self.all.remove(&key.namespace);
            }
        }
    }

    /// For each of these pods, a budget that its eviction after those before it violates
    /// (`filterPodsWithPDBViolation` in `plugins/defaultpreemption`). A pod of several budgets violates
    /// the first: the Eviction API refuses to evict it.
    pub(crate) fn violated<'p>(
        &self,
        pods: impl IntoIterator<Item = (&'p PodKey, &'p BoundPod)>,
        view: &ClusterView,
    ) -> Vec<Option<ObjectKey>> {
        let mut used: BTreeMap<(&str, &str), i32> = BTreeMap::new();
        pods.into_iter()
            .map(|(key, pod)| {
                let (namespace, of_namespace) = self.all.get_key_value(&*key.namespace)?;
                let mut own = of_namespace.iter().filter(|(_, budget)| {
                    !pod.is_pending
                        && !budget.counted.contains(&*key.name)
                        && budget.pods.matches(namespace, (namespace, &pod.labels), view)
                });
                let (name, budget) = own.next()?;
                let used = used.entry((namespace, name)).or_default();
                *used += 1;
                let is_violated = *used > budget.allowed || own.next().is_some();
                is_violated.then(|| ObjectKey { namespace: namespace.clone(), name: name.clone() })
            })
            .collect()
    }
}
