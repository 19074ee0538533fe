//! Plans that were made before: a burst of equal pods is one decision.
//!
//! A plan depends on what the pod asks for and on what the cluster has, never on
//! what is in use, so it holds until the view's epoch changes. Then the next plan
//! takes its place: of each key one is kept.
//!
//! On a large cluster a plan takes tens of milliseconds, and something changes all
//! the time. So for a moment after a change, pods still get the plan of before it,
//! and [`Renewer`] makes the next one meanwhile: no request waits for it. A pod that
//! was created that moment earlier would have got the same. A denial is never given
//! after a change: the change may be what its reader just made.

use super::decisions::{DecisionError, Decisions};
use super::metrics::{Metrics, PlanCache};
use crate::admit::Pending;
use crate::denial::Denial;
use crate::intent::Intent;
use crate::plan::{self, Plan, Policy};
use cluster_model::placement::Placement;
use cluster_model::view::ClusterView;
use cluster_model::watch::SharedView;
use moka::sync::Cache;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OnceCell, mpsc};

/// Demands whose plans are kept; a plan is some kilobytes.
const PLANS_MAX: u64 = 1_000;
/// For how long a plan is given after it was last known to hold: while everything in a large
/// cluster changes, making it anew takes its turn on a busy processor.
const OUTDATED_MAX: Duration = Duration::from_secs(3);

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
    /// When the view was last seen at this epoch.
    held: Arc<Mutex<Instant>>,
}

impl Made {
    /// Whether it may be given to a pod although the cluster has changed.
    fn may_be_outdated(&self) -> bool {
        self.plan.is_ok() && lock(&self.held).elapsed() < OUTDATED_MAX
    }
}

/// The last plan or denial of each key.
#[derive(Clone)]
pub struct Plans {
    cache: Cache<PlanKey, Made>,
    asked: PlanCache,
    /// None where nobody renews: then each plan is that of its view.
    renewals: Option<Renewals>,
    making: Arc<Mutex<HashMap<PlanKey, Making>>>,
}

/// A plan that is being made.
type Making = Arc<OnceCell<Result<Plan, Denial>>>;

impl Default for Plans {
    fn default() -> Self {
        let asked = PlanCache::default();
        Self { cache: Cache::new(PLANS_MAX), asked, renewals: None, making: Arc::default() }
    }
}

impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plans").field("plans", &self.cache.entry_count()).finish_non_exhaustive()
    }
}

impl Plans {
    /// An empty cache that counts how it is used, and who renews its plans.
    pub(super) fn new(metrics: &Metrics) -> (Self, Renewer) {
        Self { asked: metrics.cache.clone(), ..Self::default() }.renewed()
    }

    /// The cache, with plans that are renewed while they are still given.
    pub fn renewed(self) -> (Self, Renewer) {
        let (queue, keys) = mpsc::unbounded_channel();
        let renewals = Renewals { queue, queued: Arc::default() };
        let plans = Self { renewals: Some(renewals.clone()), ..self };
        let renewer = Renewer { plans: plans.clone(), keys, queued: renewals.queued };
        (plans, renewer)
    }

    /// The plan made before, where there is one that may be given.
    pub fn known(
        &self,
        intent: &Intent,
        placement: &Placement,
        view: &ClusterView,
    ) -> Option<Result<Plan, Denial>> {
        let key = PlanKey::of(intent, placement);
        let made = self.cache.get(&key)?;
        if made.epoch == view.epoch() {
            *lock(&made.held) = Instant::now();
        } else {
            self.renewals.as_ref().filter(|_| made.may_be_outdated())?.add(key);
        }
        self.asked.count(true);
        Some(made.plan)
    }

    /// The plan with this view, made now unless it is known.
    pub fn make(
        &self,
        intent: &Intent,
        placement: &Placement,
        view: &ClusterView,
        policy: &Policy,
    ) -> Result<Plan, Denial> {
        let (plan, is_fresh) = self.kept_or_made(intent, placement, view, policy);
        self.asked.count(!is_fresh);
        plan
    }

    /// Returns whether it was made now.
    fn kept_or_made(
        &self,
        intent: &Intent,
        placement: &Placement,
        view: &ClusterView,
        policy: &Policy,
    ) -> (Result<Plan, Denial>, bool) {
        let epoch = view.epoch();
        let new = || Made {
            epoch,
            plan: plan::plan(intent, placement, view, policy),
            held: Arc::new(Mutex::new(Instant::now())),
        };
        let entry = self.cache.entry(PlanKey::of(intent, placement));
        let made = entry.or_insert_with_if(new, |known| known.epoch != epoch);
        let is_fresh = made.is_fresh();
        (made.into_value().plan, is_fresh)
    }

    /// The same beside the threads that do IO. Of several who ask for one plan, one has it made
    /// and the others wait, without a place among those who decide.
    pub(super) async fn make_once(
        &self,
        pending: &Pending,
        view: &Arc<ClusterView>,
        policy: &Arc<Policy>,
        decisions: &Decisions,
    ) -> Result<Result<Plan, Denial>, DecisionError> {
        let key = PlanKey::of(&pending.intent, &pending.placement);
        let cell = Arc::clone(lock(&self.making).entry(key.clone()).or_default());
        let mut waits = true;
        let made = cell.get_or_try_init(|| {
            waits = false;
            let (plans, PlanKey { intent, placement }) = (self.clone(), key.clone());
            let (view, policy) = (Arc::clone(view), Arc::clone(policy));
            decisions.make(move || plans.make(&intent, &placement, &view, &policy))
        });
        // Without a bound, those who wait would try one after the other while nobody decides.
        let made = decisions.shared(async { made.await.cloned() }).await;
        if waits && made.is_ok() {
            self.asked.count(true);
        }
        // Whoever comes now finds it in the cache, or has it tried again.
        let mut making = lock(&self.making);
        if making.get(&key).is_some_and(|known| Arc::ptr_eq(known, &cell)) {
            making.remove(&key);
        }
        made
    }
}

impl PlanKey {
    fn of(intent: &Intent, placement: &Placement) -> Self {
        Self { intent: intent.clone(), placement: placement.clone() }
    }
}

/// The keys whose plans are to be made anew, each once.
#[derive(Clone)]
struct Renewals {
    queue: mpsc::UnboundedSender<PlanKey>,
    queued: Arc<Mutex<HashSet<PlanKey>>>,
}

impl Renewals {
    fn add(&self, key: PlanKey) {
        if lock(&self.queued).insert(key.clone()) {
            // Nobody listens while the program ends.
            self.queue.send(key).ok();
        }
    }
}

/// Makes plans anew, one at a time, so that decisions have the other processors.
#[derive(Debug)]
pub struct Renewer {
    plans: Plans,
    keys: mpsc::UnboundedReceiver<PlanKey>,
    queued: Arc<Mutex<HashSet<PlanKey>>>,
}

impl Renewer {
    /// Renews what is asked for, for ever.
    pub async fn run(mut self, view: SharedView, policy: Arc<Policy>) {
        while let Some(key) = self.keys.recv().await {
            let (plans, view, policy) = (self.plans.clone(), view.clone(), Arc::clone(&policy));
            // From here on a change asks for it again.
            lock(&self.queued).remove(&key);
            let PlanKey { intent, placement } = key;
            let renew = move || _ = plans.kept_or_made(&intent, &placement, &view.read(), &policy);
            if let Err(error) = tokio::task::spawn_blocking(renew).await {
                tracing::error!(%error, "Plan not renewed");
            }
        }
    }
}

/// What a panicking holder left is whole: every change is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admit::{self, Begun};
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

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_for_one_plan_have_it_made_once() {
        let (view, policy) = (Arc::new(ClusterView::default()), Arc::new(Policy::default()));
        let (plans, decisions) = (Plans::default(), Decisions::default());
        let pod = json!({
            "metadata": {"annotations": {"dranet.io/aligned-nics": "1"}},
            "spec": {"containers": [
                {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
            ]},
        });
        let begun = admit::begin(&pod, &view, &policy).unwrap();
        let Begun::NeedsPlan(pending) = begun else { panic!("it needs a plan: {begun:?}") };
        let ask = || plans.make_once(&pending, &view, &policy, &decisions);
        let (one, other) = tokio::join!(ask(), ask());
        assert_eq!(one.unwrap().unwrap_err(), other.unwrap().unwrap_err());
        assert_eq!([plans.asked.counted(false), plans.asked.counted(true)], [1, 1]);
        assert!(lock(&plans.making).is_empty());
    }

    #[test]
    fn of_each_demand_the_last_plan_is_kept_and_no_other() {
        let (mut view, plans) = (ClusterView::default(), Plans::default());
        let (placement, policy) = (Placement::default(), Policy::default());
        for minor in [36, 37, 36, 37] {
            view.set_settings(Settings::defaults_of(MinorVersion::new(minor).unwrap()));
            for nics in [1, 2, 1] {
                // No class is there: a denial is kept as a plan is.
                plans.make(&intent(nics), &placement, &view, &policy).unwrap_err();
            }
        }
        plans.cache.run_pending_tasks();
        assert_eq!(plans.cache.entry_count(), 2);
        let epochs: Vec<_> = plans.cache.iter().map(|(_, made)| made.epoch).collect();
        assert_eq!(epochs, [view.epoch(); 2]);
    }
}
