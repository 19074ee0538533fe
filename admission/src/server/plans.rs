//! Plans that were made before: a burst of equal pods is one decision.
//!
//! A plan depends on what the pod asks for and on what the cluster has, never on
//! what is in use, so it holds until the view's epoch changes.

use super::metrics::{Metrics, PlanCache};
use crate::denial::Denial;
use crate::intent::Intent;
use crate::plan::{self, Placement, Plan, Policy};
use cluster_model::view::ClusterView;
use moka::sync::Cache;
use std::fmt;

/// Plans kept; a plan is some kilobytes.
const PLANS_MAX: u64 = 1_000;

/// What a plan follows from, beside the policy, which never changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    intent: Intent,
    placement: Placement,
    epoch: u64,
}

/// Plans and denials by what they follow from.
#[derive(Clone)]
pub struct Plans {
    cache: Cache<Key, Result<Plan, Denial>>,
    asked: PlanCache,
}

impl Default for Plans {
    fn default() -> Self {
        Self { cache: Cache::new(PLANS_MAX), asked: PlanCache::default() }
    }
}

impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plans").field("plans", &self.cache.entry_count()).finish_non_exhaustive()
    }
}

impl Plans {
    /// An empty cache that counts how it is used.
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self { asked: metrics.cache.clone(), ..Self::default() }
    }

    /// The plan made before, or one made now; made once where several ask.
    pub fn plan(
        &self,
        intent: &Intent,
        placement: &Placement,
        view: &ClusterView,
        policy: &Policy,
    ) -> Result<Plan, Denial> {
        let epoch = view.epoch();
        let key = Key { intent: intent.clone(), placement: placement.clone(), epoch };
        let mut made = false;
        let plan = self.cache.get_with(key, || {
            made = true;
            plan::plan(intent, placement, view, policy)
        });
        self.asked.count(!made);
        plan
    }
}
