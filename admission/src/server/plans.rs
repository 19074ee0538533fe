//! Caches plans: a burst of equal pods needs one decision.
//!
//! A plan depends on the pod's intent and on the cluster's machines, never on what is in
//! use. So it is valid until the view's epoch changes; then the next plan replaces it.
//! One plan is kept per key.
//!
//! On a large cluster a plan takes tens of milliseconds, and something changes all the
//! time. So for a short time after a change, pods still get the previous plan while
//! [`Renewer`] makes the next one, and no request waits. A pod that was created just
//! before the change would have got the same plan. A denial is never reused after a
//! change, because the user may have made that change to fix it.

use super::decisions::{DecisionError, Decisions};
use super::metrics::{Metrics, PlanCache};
use crate::admit::Pending;
use crate::denial::Denial;
use crate::intent::Intent;
use crate::plan::{self, Plan, Policy};
use crate::trials::Trials;
use cluster_model::placement::Placement;
use cluster_model::view::ClusterView;
use cluster_model::watch::SharedView;
use moka::sync::Cache;
use serve::turns::Caller;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OnceCell, mpsc};

/// The size of the cache in bytes: some thousand plans.
const BYTES_MAX: u64 = 32 << 20;
/// What a plan takes in memory, about.
const PLAN: usize = 8 << 10;
/// What a key takes in memory for each byte of its text, about: a list of strings, twice.
const KEY_FACTOR: usize = 12;
/// How long an outdated plan is used. While everything in a large cluster changes, making
/// a new one has to wait for a busy processor.
const OUTDATED_MAX: Duration = Duration::from_secs(3);
/// How long a plan is not renewed, as a multiple of the time that making it took. If a cluster
/// changes constantly, each demand then costs a tenth of a processor.
const REST: u32 = 9;
/// The maximum of that pause, so that a plan is renewed before [`OUTDATED_MAX`].
const REST_MAX: Duration = Duration::from_secs(1);

/// Inputs of a plan besides the cluster and the policy, which never changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PlanKey {
    intent: Intent,
    placement: Placement,
}

/// A plan or denial, and the epoch of the view that it was made from.
#[derive(Clone)]
struct CachedPlan {
    epoch: u64,
    plan: Result<Plan, Denial>,
    /// When the view was last seen at this epoch.
    held: Arc<Mutex<Instant>>,
    /// The time from which it may be renewed.
    rested: Instant,
}

impl CachedPlan {
    fn new(
        intent: &Intent,
        placement: &Placement,
        (view, trials): (&ClusterView, &Trials),
        policy: &Policy,
    ) -> Self {
        let begun = Instant::now();
        let plan = plan::plan_again(intent, placement, (view, trials), policy);
        let now = Instant::now();
        let rest = (REST * now.duration_since(begun)).min(REST_MAX);
        Self { epoch: view.epoch(), plan, held: Arc::new(Mutex::new(now)), rested: now + rest }
    }

    /// Returns true if a pod may get it although the cluster has changed.
    fn may_be_outdated(&self) -> bool {
        self.plan.is_ok() && lock(&self.held).elapsed() < OUTDATED_MAX
    }
}

/// The latest plan or denial of each key.
#[derive(Clone)]
pub struct Plans {
    cache: Cache<PlanKey, CachedPlan>,
    /// What claims got on machines, for the next plans.
    trials: Trials,
    asked: PlanCache,
    /// `None` without a [`Renewer`]: then each plan is made from the current view.
    renewals: Option<Renewals>,
    /// By who asks: kube-apiserver does not wait for what others have asked for.
    making: Arc<Mutex<HashMap<(Caller, PlanKey), Making>>>,
}

/// A plan in the making.
type Making = Arc<OnceCell<Result<Plan, Denial>>>;

impl Default for Plans {
    fn default() -> Self {
        let asked = PlanCache::default();
        let cache =
            Cache::builder().max_capacity(BYTES_MAX).weigher(|key: &PlanKey, _| key.weight());
        let cache = cache.build();
        let trials = Trials::default();
        Self { cache, trials, asked, renewals: None, making: Arc::default() }
    }
}

impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plans").field("plans", &self.cache.entry_count()).finish_non_exhaustive()
    }
}

impl Plans {
    /// Creates an empty cache with metrics, and its renewer.
    pub(super) fn new(metrics: &Metrics) -> (Self, Renewer) {
        Self { asked: metrics.cache.clone(), ..Self::default() }.renewed()
    }

    /// Adds a renewer, so that plans are renewed while outdated ones are still used.
    pub fn renewed(self) -> (Self, Renewer) {
        let (queue, keys) = mpsc::unbounded_channel();
        let renewals = Renewals { queue, queued: Arc::default() };
        let plans = Self { renewals: Some(renewals.clone()), ..self };
        let renewer = Renewer { plans: plans.clone(), keys, queued: renewals.queued };
        (plans, renewer)
    }

    /// The cached plan, if it may be used.
    pub fn known(
        &self,
        intent: &Intent,
        placement: &Placement,
        view: &ClusterView,
    ) -> Option<Result<Plan, Denial>> {
        let key = PlanKey::new(intent, placement);
        let made = self.cache.get(&key)?;
        let now = Instant::now();
        if made.epoch == view.epoch() {
            *lock(&made.held) = now;
        } else {
            let renewals = self.renewals.as_ref().filter(|_| made.may_be_outdated())?;
            if now >= made.rested {
                renewals.add(key);
            }
        }
        self.asked.count(true);
        Some(made.plan)
    }

    /// Returns the cached plan, or makes one with this view.
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

    /// Returns the plan and whether it was made now.
    fn kept_or_made(
        &self,
        intent: &Intent,
        placement: &Placement,
        view: &ClusterView,
        policy: &Policy,
    ) -> (Result<Plan, Denial>, bool) {
        let epoch = view.epoch();
        let entry = self.cache.entry(PlanKey::new(intent, placement));
        let made = entry.or_insert_with_if(
            || CachedPlan::new(intent, placement, (view, &self.trials), policy),
            |known| known.epoch != epoch,
        );
        let is_fresh = made.is_fresh();
        (made.into_value().plan, is_fresh)
    }

    /// The same on a decision thread. If several requests need the same plan, one makes
    /// it and the others wait without occupying a slot.
    pub(super) async fn make_once(
        &self,
        pending: &Pending,
        view: &Arc<ClusterView>,
        policy: &Arc<Policy>,
        (caller, decisions): (Caller, &Decisions),
    ) -> Result<Result<Plan, Denial>, DecisionError> {
        let key = (caller, PlanKey::new(&pending.intent, &pending.placement));
        let cell = Arc::clone(lock(&self.making).entry(key.clone()).or_default());
        let mut waits = true;
        let made = cell.get_or_try_init(|| {
            waits = false;
            let (plans, (_, PlanKey { intent, placement })) = (self.clone(), key.clone());
            let (view, policy) = (Arc::clone(view), Arc::clone(policy));
            decisions.make(caller, move || plans.make(&intent, &placement, &view, &policy))
        });
        // Without a time limit, waiting requests would try one after the other while no
        // slot is free.
        let made = decisions.shared(async { made.await.cloned() }).await;
        if waits && made.is_ok() {
            self.asked.count(true);
        }
        // Later requests find the plan in the cache, or start again.
        let mut making = lock(&self.making);
        if making.get(&key).is_some_and(|known| Arc::ptr_eq(known, &cell)) {
            making.remove(&key);
        }
        made
    }
}

impl PlanKey {
    fn new(intent: &Intent, placement: &Placement) -> Self {
        Self { intent: intent.clone(), placement: placement.clone() }
    }

    /// About how many bytes the entry takes. Tenants write keys, of up to 256 kilobytes.
    fn weight(&self) -> u32 {
        u32::try_from(PLAN + KEY_FACTOR * format!("{self:?}").len()).unwrap_or(u32::MAX)
    }
}

/// Keys of plans to renew, each once.
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

/// Renews plans one at a time, so that the other processors are free for decisions.
#[derive(Debug)]
pub struct Renewer {
    plans: Plans,
    keys: mpsc::UnboundedReceiver<PlanKey>,
    queued: Arc<Mutex<HashSet<PlanKey>>>,
}

impl Renewer {
    /// Renews queued plans without end.
    pub async fn run(mut self, view: SharedView, policy: Arc<Policy>) {
        while let Some(key) = self.keys.recv().await {
            let (plans, view, policy) = (self.plans.clone(), view.clone(), Arc::clone(&policy));
            // From here on, a change queues the key again.
            lock(&self.queued).remove(&key);
            let PlanKey { intent, placement } = key;
            let renewed = tokio::task::spawn_blocking(move || {
                _ = plans.kept_or_made(&intent, &placement, &view.read(), &policy);
            });
            if let Err(error) = renewed.await {
                tracing::error!(%error, "Plan not renewed");
            }
        }
    }
}

/// A poisoned lock is harmless: each change is a single call, so the value is always
/// complete.
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
    async fn concurrent_requests_make_a_plan_once() {
        let (view, policy) = (Arc::new(ClusterView::default()), Arc::new(Policy::default()));
        let (plans, decisions) = (Plans::default(), Decisions::new(false));
        let pod = json!({
            "metadata": {"annotations": {"dranet.io/aligned-nics": "1"}},
            "spec": {"containers": [
                {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
            ]},
        });
        let begun = admit::begin(&pod, &view, &policy).unwrap();
        let Begun::NeedsPlan(pending) = begun else { panic!("it needs a plan: {begun:?}") };
        let ask = || plans.make_once(&pending, &view, &policy, (Caller::Unknown, &decisions));
        let (one, other) = tokio::join!(ask(), ask());
        assert_eq!(one.unwrap().unwrap_err(), other.unwrap().unwrap_err());
        assert_eq!([plans.asked.counted(false), plans.asked.counted(true)], [1, 1]);
        assert!(lock(&plans.making).is_empty());
    }

    #[test]
    fn only_the_last_plan_of_each_demand_is_kept() {
        let (mut view, plans) = (ClusterView::default(), Plans::default());
        let (placement, policy) = (Placement::default(), Policy::default());
        for minor in [36, 37, 36, 37] {
            view.set_settings(Settings::defaults_of(MinorVersion::new(minor).unwrap()));
            for nics in [1, 2, 1] {
                // No class exists; a denial is cached like a plan.
                plans.make(&intent(nics), &placement, &view, &policy).unwrap_err();
            }
        }
        plans.cache.run_pending_tasks();
        assert_eq!(plans.cache.entry_count(), 2);
        let epochs: Vec<_> = plans.cache.iter().map(|(_, made)| made.epoch).collect();
        assert_eq!(epochs, [view.epoch(); 2]);
    }
}
