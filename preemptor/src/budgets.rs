//! The PodDisruptionBudgets of a cluster.

use cluster_model::view::ObjectKey;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use std::collections::BTreeMap;

/// All PodDisruptionBudgets.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    all: BTreeMap<ObjectKey, PodDisruptionBudget>,
}

impl Budgets {
    /// Adds or replaces a budget.
    pub fn apply(&mut self, budget: PodDisruptionBudget) {
        self.all.insert(ObjectKey::new(&budget.metadata), budget);
    }

    /// Removes a budget.
    pub fn delete(&mut self, key: &ObjectKey) {
        self.all.remove(key);
    }
}
