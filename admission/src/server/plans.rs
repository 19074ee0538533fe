//! Plans that were made before: a burst of equal pods is one decision.
//!
//! A plan depends on what the pod asks for and on what the cluster has, never on
//! what is in use, so it holds until the view's epoch changes. Then the next plan
//! takes its place: of each key one is kept.

use super::metrics::{Metrics, PlanCache};
use crate::denial::Denial;
use crate::intent::Intent;
use crate::plan::{self, Plan, Policy};
use cluster_model::placement::Placement;
use cluster_model::view::ClusterView;
use moka::sync::Cache;
use std::fmt;

/// Demands whose plans are kept; a plan is some kilobytes.
const PLANS_MAX: u64 = 1_000;

/// What a plan follows from, beside the cluster, and the policy, which never changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlanKey {
    intent: Intent,
    placement: Placement,
}

/// A plan, or why there is none, and the epoch of the view that it follows from.
#[derive(Clone)]
struct Made {
    epoch: u64,
    plan: Result<Plan, Denial>,
}

/// The last plan or denial of each key.
#[derive(Clone)]
pub struct Plans {
    cache: Cache<PlanKey, Made>,
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
        let key = PlanKey { intent: intent.clone(), placement: placement.clone() };
        let made = self.cache.entry(key).or_insert_with_if(
            || Made { epoch, plan: plan::plan(intent, placement, view, policy) },
            |known| known.epoch != epoch,
        );
        self.asked.count(!made.is_fresh());
        made.into_value().plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::{self, GpuResources};
    use dra_allocator::{MinorVersion, Settings};
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn intent(nics: u32) -> Intent {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"annotations": {"dranet.io/aligned-nics": nics.to_string()}},
            "spec": {"containers": [
                {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
            ]},
        }))
        .unwrap();
        intent::read(&pod, &GpuResources::default()).unwrap().unwrap()
    }

    #[test]
    fn of_each_demand_the_last_plan_is_kept_and_no_other() {
        let (mut view, plans) = (ClusterView::default(), Plans::default());
        let (placement, policy) = (Placement::default(), Policy::default());
        for minor in [36, 37, 36, 37] {
            view.set_settings(Settings::defaults_of(MinorVersion::new(minor).unwrap()));
            for nics in [1, 2, 1] {
                // No class is there: a denial is kept as a plan is.
                plans.plan(&intent(nics), &placement, &view, &policy).unwrap_err();
            }
        }
        plans.cache.run_pending_tasks();
        assert_eq!(plans.cache.entry_count(), 2);
        let epochs: Vec<_> = plans.cache.iter().map(|(_, made)| made.epoch).collect();
        assert_eq!(epochs, [view.epoch(); 2]);
    }
}
