//! Pods that the scheduler asked about and that are not bound yet.
//!
//! The scheduler allocates in memory and writes the claim later. In between, the allocation is not
//! visible. So the extender assumes that the pod is on the node that it ranked first, until the
//! claim's status shows the real allocation or a short time has passed.

use crate::answer::{Answer, Assumed, Basis};
use crate::forecast::{Forecast, held_devices};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::{AllocatedState, DeviceId, PoolId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an assumption is valid. The scheduler writes a claim within milliseconds of
/// its choice. A pod that is not bound by then has failed, or waits for devices to become
/// ready.
pub const ASSUMED_FOR: Duration = Duration::from_secs(5);

/// How long a forecast is kept for comparison. The scheduler waits up to ten minutes for
/// devices that must be attached first (`bindingTimeout`).
const KEPT_FOR: Duration = Duration::from_mins(10);

/// The most pods that are kept; beyond it the oldest are dropped.
const KEPT_MAX: usize = 5_000;

/// The most nodes in the answers about them, up to a kilobyte each.
const KEPT_NODES_MAX: usize = 100_000;

/// The pods in flight.
#[derive(Debug, Default)]
pub struct InFlight {
    pods: BTreeMap<ObjectKey, Asked>,
    /// Nodes on which pods are assumed.
    nodes: HashMap<String, Assumed>,
    /// The latest version.
    version: u64,
    /// Assumptions that have ended since the last [`InFlight::settle`].
    ended: Assumptions,
}

/// Number of ended assumptions, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumptions {
    /// The pod is on the node.
    pub right: u64,
    /// The pod is on another node, its claim was deleted, or the scheduler asked again.
    pub wrong: u64,
    /// The pod had no devices after [`ASSUMED_FOR`].
    pub expired: u64,
}

/// The outcomes of pods in flight.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// The pods that have their devices.
    pub landed: Vec<Landed>,
    /// Assumptions that have ended since the last call.
    pub assumptions: Assumptions,
}

/// The latest answer about a pod.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its claims without an allocation.
    pub claims: Vec<ObjectKey>,
    /// Whether the view has had all of them. The scheduler's watch may be ahead of ours.
    pub is_seen: bool,
    /// The answer.
    pub answer: Arc<Answer>,
    /// The node on which the pod is assumed: the only one with the highest score.
    pub first: Option<String>,
    /// When it was answered.
    pub at: Instant,
}

/// The outcome of a pod in flight.
#[derive(Clone, Debug)]
pub struct Landed {
    /// The pod.
    pub pod: ObjectKey,
    /// The assumed node, if any, and whether the pod is there.
    pub assumed: Option<(String, bool)>,
    /// The devices that it got.
    pub actual: Vec<DeviceId>,
    /// The forecast for its node; none if the node was not a candidate.
    pub forecast: Option<ForecastOf>,
}

/// A forecast for the node that a pod was bound to.
#[derive(Clone, Debug)]
pub struct ForecastOf {
    /// The node.
    pub node: String,
    /// What was forecast.
    pub forecast: Arc<Forecast>,
    /// Whether the pod got exactly these devices.
    pub is_right: bool,
    /// Whether the forecast must be right: nothing else changed on the node in between,
    /// and the scheduler had only one choice.
    pub is_certain: bool,
}

impl InFlight {
    /// Records the answer about a pod, replacing an earlier one.
    pub fn asked(&mut self, pod: ObjectKey, asked: Asked) {
        self.asked_again(&pod);
        if let Some(node) = &asked.first {
            self.version += 1;
            let assumed = self.nodes.entry(node.clone()).or_default();
            assumed.version = self.version;
            assumed.pods += 1;
        }
        self.pods.insert(pod, asked);
        while self.are_too_many() {
            let oldest = self.pods.iter().min_by_key(|(_, asked)| asked.at);
            if let Some(pod) = oldest.map(|(pod, _)| pod.clone())
                && self.remove(&pod)
            {
                self.ended.expired += 1;
            }
        }
    }

    /// Returns true if the oldest pod must be dropped; the last one never is.
    fn are_too_many(&self) -> bool {
        let nodes: usize = self.pods.values().map(|asked| asked.answer.nodes.len()).sum();
        self.pods.len() > 1 && (self.pods.len() > KEPT_MAX || nodes > KEPT_NODES_MAX)
    }

    /// Drops the latest answer about a pod. The scheduler asks again, so that answer had
    /// no effect.
    pub fn asked_again(&mut self, pod: &ObjectKey) {
        if self.remove(pod) {
            self.ended.wrong += 1;
        }
    }

    /// Removes the pods whose claims have been allocated, and ends outdated assumptions.
    pub fn settle(&mut self, view: &ClusterView, now: Instant) -> Settled {
        let mut landed = Vec::new();
        let mut gone = Vec::new();
        let mut late = Vec::new();
        for (pod, asked) in &mut self.pods {
            asked.is_seen |= asked.has_claims(view);
            let age = now.saturating_duration_since(asked.at);
            if asked.is_allocated(view) {
                landed.push(asked.landed(pod, view));
            } else if asked.is_gone(view) {
                gone.push(pod.clone());
            } else if age >= ASSUMED_FOR && (asked.first.is_some() || age >= KEPT_FOR) {
                late.push((pod.clone(), age >= KEPT_FOR));
            }
        }
        for landed in &landed {
            self.remove(&landed.pod);
            match landed.assumed {
                Some((_, true)) => self.ended.right += 1,
                Some((_, false)) => self.ended.wrong += 1,
                None => {}
            }
        }
        for pod in gone {
            self.ended.wrong += u64::from(self.remove(&pod));
        }
        for (pod, is_old) in late {
            let assumed = if is_old { self.remove(&pod) } else { self.expire(&pod) };
            self.ended.expired += u64::from(assumed);
        }
        Settled { landed, assumptions: std::mem::take(&mut self.ended) }
    }

    /// The nodes on which pods are assumed.
    pub fn assumed(&self) -> &HashMap<String, Assumed> {
        &self.nodes
    }

    /// Devices in use, including those of pods in flight.
    pub fn in_use(&self, held: &AllocatedState) -> AllocatedState {
        let mut in_use = held.clone();
        for asked in self.pods.values() {
            let Some(first) = &asked.first else { continue };
            let scored = asked.answer.nodes.iter().find(|scored| scored.node == *first);
            let forecast = scored.and_then(|scored| scored.forecast());
            for device in forecast.into_iter().flat_map(|(_, forecast)| &forecast.taken) {
                in_use.insert(device.clone());
            }
        }
        in_use
    }

    /// Removes the pod. Returns true if it was assumed on a node.
    fn remove(&mut self, pod: &ObjectKey) -> bool {
        let first = self.pods.remove(pod).and_then(|asked| asked.first);
        self.release(first.as_deref())
    }

    /// Ends the assumption about a pod, but keeps its forecasts for comparison.
    fn expire(&mut self, pod: &ObjectKey) -> bool {
        let first = self.pods.get_mut(pod).and_then(|asked| asked.first.take());
        self.release(first.as_deref())
    }

    fn release(&mut self, node: Option<&str>) -> bool {
        let Some((node, assumed)) = node.and_then(|node| Some((node, self.nodes.get_mut(node)?)))
        else {
            return false;
        };
        self.version += 1;
        assumed.version = self.version;
        assumed.pods -= 1;
        if assumed.pods == 0 {
            self.nodes.remove(node);
        }
        true
    }
}

impl Asked {
    fn is_allocated(&self, view: &ClusterView) -> bool {
        !self.claims.is_empty()
            && self.claims.iter().all(|key| view.claim(key).is_some_and(|claim| claim.is_allocated))
    }

    fn has_claims(&self, view: &ClusterView) -> bool {
        self.claims.iter().all(|key| view.claim(key).is_some())
    }

    /// Whether a claim was deleted, so that the pod will not be bound.
    fn is_gone(&self, view: &ClusterView) -> bool {
        self.is_seen && !self.has_claims(view)
    }

    fn landed(&self, pod: &ObjectKey, view: &ClusterView) -> Landed {
        let actual = held_devices(view, &self.claims);
        let pools: HashSet<PoolId> = actual.iter().map(DeviceId::pool_id).collect();
        let own = self.answer.nodes.iter().find_map(|scored| {
            let (basis, forecast) = scored.forecast()?;
            let is_own = forecast.taken.iter().any(|taken| pools.contains(&taken.pool_id()));
            is_own.then_some((&scored.node, basis, forecast))
        });
        let forecast = own.map(|(node, basis, forecast)| {
            let mut predicted = forecast.taken.clone();
            predicted.sort_unstable();
            ForecastOf {
                node: node.clone(),
                forecast: forecast.clone(),
                is_right: predicted == actual,
                is_certain: basis.is_exact && self.nothing_else_changed(node, basis, view),
            }
        });
        let assumed = self.first.as_ref().map(|node| {
            let is_there = forecast.as_ref().is_some_and(|own| own.node == *node);
            (node.clone(), is_there)
        });
        Landed { pod: pod.clone(), assumed, actual, forecast }
    }

    /// Whether only this pod's claims changed the node. Other pods assumed there may have
    /// been placed differently.
    fn nothing_else_changed(&self, node: &str, basis: Basis, view: &ClusterView) -> bool {
        let now = view.node_version(node);
        let own = self.claims.len() as u64;
        basis.assumed.pods == 0
            && (now.devices, now.classes) == (basis.node.devices, basis.node.classes)
            && now.claims == basis.node.claims + own
    }
}

#[cfg(test)]
impl InFlight {
    /// How many pods, and nodes with assumed pods, are held.
    pub(crate) fn held(&self) -> usize {
        self.pods.len() + self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_about_too_many_nodes_push_out_the_oldest() {
        let names: Vec<String> = (0..KEPT_NODES_MAX / 2).map(|index| format!("n{index}")).collect();
        let answer = Arc::new(Answer::neutral(&names, &"unknown".into()));
        let key = |name: &str| ObjectKey { namespace: "n".to_owned(), name: name.to_owned() };
        let (begin, mut pods) = (Instant::now(), InFlight::default());
        for (name, second) in [("a", 1), ("b", 2), ("c", 3)] {
            let at = begin + Duration::from_secs(second);
            let (claims, first, answer) = (Vec::new(), Some("n0".to_owned()), answer.clone());
            pods.asked(key(name), Asked { claims, is_seen: true, answer, first, at });
        }
        assert_eq!(pods.pods.keys().collect::<Vec<_>>(), [&key("b"), &key("c")]);
        assert_eq!(pods.assumed()["n0"].pods, 2, "the assumption about the oldest ends");
        let all: Vec<String> = names.iter().cycle().take(2 * KEPT_NODES_MAX).cloned().collect();
        let answer = Arc::new(Answer::neutral(&all, &"unknown".into()));
        let at = begin + Duration::from_secs(4);
        let asked = Asked { claims: Vec::new(), is_seen: true, answer, first: None, at };
        pods.asked(key("d"), asked);
        assert_eq!(pods.pods.keys().collect::<Vec<_>>(), [&key("d")], "the newest always stays");
    }
}
