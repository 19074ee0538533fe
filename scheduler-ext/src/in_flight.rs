//! Pods that were asked about and are not bound yet.
//!
//! The scheduler allocates in its memory and writes the claim later; for that moment
//! nobody else knows. So the node that was ranked first is assumed to be the pod's,
//! until the claim's status says what it really got or a short time has passed.

use crate::forecast::{Forecast, held_devices};
use cluster_model::view::{ClusterView, NodeVersion, ObjectKey};
use dra_allocator::DeviceId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an assumption holds: the scheduler writes a claim within milliseconds of
/// its choice; a pod that is not bound by then failed, or waits for devices to bind.
pub const ASSUMED_FOR: Duration = Duration::from_secs(5);

/// How long a forecast is kept to be compared: the scheduler waits ten minutes for
/// devices that must be attached first (`bindingTimeout`).
const KEPT_FOR: Duration = Duration::from_mins(10);

/// The most pods that are kept; then the oldest go.
const KEPT_MAX: usize = 5_000;

/// The pods in flight.
#[derive(Debug, Default)]
pub struct InFlight {
    pods: BTreeMap<ObjectKey, Asked>,
    nodes: HashMap<String, Assumed>,
}

/// What is assumed of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    /// Changes whenever it does, and never comes again.
    pub version: u64,
    /// Pods that are assumed to be there.
    pub pods: u32,
}

/// What was said of a pod.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its unique name.
    pub uid: Option<String>,
    /// Its open claims; only those that exist are waited for.
    pub claims: Vec<ObjectKey>,
    /// The forecast of each candidate, and what it was made from.
    pub candidates: HashMap<String, (Basis, Arc<Forecast>)>,
    /// The node that was ranked first, alone.
    pub first: Option<String>,
    /// When.
    pub at: Instant,
}

/// What a forecast was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    /// The node as it was known.
    pub node: NodeVersion,
    /// What was assumed of it.
    pub assumed: Assumed,
    /// Whether the scheduler has no choice but this.
    pub is_exact: bool,
}

/// What became of a pod in flight.
#[derive(Clone, Debug)]
pub struct Landed {
    /// The pod.
    pub pod: ObjectKey,
    /// Its unique name.
    pub uid: Option<String>,
    /// The node that was assumed, where one was, and whether the pod is there.
    pub assumed: Option<(String, bool)>,
    /// The devices that it has.
    pub actual: Vec<DeviceId>,
    /// What was forecast for its node; none where it was no candidate.
    pub forecast: Option<ForecastOf>,
}

/// A forecast for the node on which a pod landed.
#[derive(Clone, Debug)]
pub struct ForecastOf {
    /// The node.
    pub node: String,
    /// What was forecast.
    pub forecast: Arc<Forecast>,
    /// Whether the pod has these devices.
    pub is_right: bool,
    /// Whether nothing else changed on the node in between, and the scheduler had no
    /// choice: then it must be right.
    pub is_certain: bool,
}

impl InFlight {
    /// Notes what was said of a pod, in place of what was said before.
    pub fn asked(&mut self, pod: ObjectKey, asked: Asked) {
        self.forget(&pod);
        if let Some(node) = &asked.first {
            let assumed = self.nodes.entry(node.clone()).or_default();
            assumed.version += 1;
            assumed.pods += 1;
        }
        self.pods.insert(pod, asked);
        if self.pods.len() > KEPT_MAX {
            let oldest = self.pods.iter().min_by_key(|(_, asked)| asked.at);
            if let Some(pod) = oldest.map(|(pod, _)| pod.clone()) {
                self.forget(&pod);
            }
        }
    }

    /// Forgets a pod.
    pub fn forget(&mut self, pod: &ObjectKey) {
        if let Some(asked) = self.pods.remove(pod) {
            self.release(asked.first.as_deref());
        }
    }

    /// Takes out the pods whose claims say what they got, and ends what is too old.
    pub fn settle(&mut self, view: &ClusterView, now: Instant) -> Vec<Landed> {
        let mut landed = Vec::new();
        let mut done = Vec::new();
        let mut late = Vec::new();
        for (pod, asked) in &self.pods {
            let age = now.saturating_duration_since(asked.at);
            if asked.is_allocated(view) {
                landed.push(asked.landed(pod, view));
                done.push(pod.clone());
            } else if age >= KEPT_FOR {
                done.push(pod.clone());
            } else if age >= ASSUMED_FOR && asked.first.is_some() {
                late.push(pod.clone());
            }
        }
        for pod in &done {
            self.forget(pod);
        }
        for pod in late {
            let first = self.pods.get_mut(&pod).and_then(|asked| asked.first.take());
            self.release(first.as_deref());
        }
        landed
    }

    /// The devices that are assumed to be taken.
    pub fn assumed(&self) -> impl Iterator<Item = &DeviceId> {
        let forecasts = self.pods.values().filter_map(|asked| {
            let (_, forecast) = asked.candidates.get(asked.first.as_ref()?)?;
            Some(forecast)
        });
        forecasts.flat_map(|forecast| &forecast.taken)
    }

    /// What is assumed of a node.
    pub fn of(&self, node: &str) -> Assumed {
        self.nodes.get(node).copied().unwrap_or_default()
    }

    fn release(&mut self, node: Option<&str>) {
        if let Some(assumed) = node.and_then(|node| self.nodes.get_mut(node)) {
            assumed.version += 1;
            assumed.pods = assumed.pods.saturating_sub(1);
        }
    }
}

impl Asked {
    fn is_allocated(&self, view: &ClusterView) -> bool {
        let allocated = |key| view.claim(key).is_some_and(|claim| claim.is_allocated);
        !self.claims.is_empty() && self.claims.iter().all(allocated)
    }

    fn landed(&self, pod: &ObjectKey, view: &ClusterView) -> Landed {
        let actual = held_devices(view, &self.claims);
        let is_of = |forecast: &Forecast| {
            let mut pools = forecast.taken.iter().map(DeviceId::pool_id);
            pools.any(|pool| actual.iter().any(|device| device.pool_id() == pool))
        };
        let mut candidates = self.candidates.iter();
        let own = candidates.find(|(_, (_, forecast))| is_of(forecast));
        let forecast = own.map(|(node, (basis, forecast))| {
            let mut predicted = forecast.taken.clone();
            predicted.sort_unstable();
            ForecastOf {
                node: node.clone(),
                forecast: forecast.clone(),
                is_right: predicted == actual,
                is_certain: basis.is_exact && self.nothing_else_changed(node, *basis, view),
            }
        });
        let is_there = |node: &String| forecast.as_ref().is_some_and(|own| own.node == *node);
        let assumed = self.first.as_ref().map(|node| (node.clone(), is_there(node)));
        Landed { pod: pod.clone(), uid: self.uid.clone(), assumed, actual, forecast }
    }

    /// Whether a node changed by this pod's claims alone. What was assumed there may
    /// have come otherwise.
    fn nothing_else_changed(&self, node: &str, basis: Basis, view: &ClusterView) -> bool {
        let now = view.node_version(node);
        let own = self.claims.len() as u64;
        basis.assumed.pods == 0
            && now.devices == basis.node.devices
            && now.claims == basis.node.claims + own
    }
}
