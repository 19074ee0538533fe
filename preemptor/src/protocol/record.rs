//! A preemption that has begun, as the API has it.

use crate::{PlacedClaim, Placement, PodId, Preemption, Victim, VictimPod};
use cluster_model::room::PodKey;
use cluster_model::view::ObjectKey;
use dra_allocator::{ClaimAllocation, DeviceId, DeviceResult};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A preemption that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// The UID of its first pod, by which its rules are found.
    pub(crate) id: String,
    /// When the head was created, after all other rules.
    pub(crate) since: Timestamp,
    /// The name of the head.
    pub(crate) head: String,
    /// The decision.
    pub(crate) record: Record,
    /// The devices that are kept now, by the names of the rules.
    pub(crate) rules: BTreeMap<String, DeviceId>,
}

/// The decision, as the head has it. Which devices the pods get is in the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// The priority of the pods.
    pub(crate) priority: i32,
    /// The fabric of the group that the pods are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fabric: Option<String>,
    /// The pods that get devices.
    pub(crate) pods: Vec<RecordedPod>,
    /// The pods that leave, in this order.
    pub(crate) victims: Vec<RecordedPod>,
    /// The number of rules.
    pub(crate) rules: usize,
    /// Whether those who leave move to other nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) moves: bool,
}

/// A pod and its node: the one that it has, or the one that it gets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RecordedPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) node: String,
}

impl RecordedPod {
    fn new(pod: &PodId, node: &str) -> Self {
        Self {
            namespace: pod.key.namespace.clone(),
            name: pod.key.name.clone(),
            uid: pod.uid.clone(),
            node: node.to_owned(),
        }
    }

    /// Its namespace and name.
    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// The same in the form of the room.
    pub(crate) fn pod_key(&self) -> PodKey {
        PodKey { namespace: self.namespace.as_str().into(), name: self.name.as_str().into() }
    }

    fn id(&self) -> PodId {
        PodId { key: self.key(), uid: self.uid.clone() }
    }
}

impl Record {
    /// The record of a decision.
    pub(crate) fn new(decided: &Preemption) -> Self {
        let placed = decided.placements.iter().map(|it| RecordedPod::new(&it.pod, &it.node));
        let leaving = decided.victims.iter().flat_map(|victim| &victim.pods);
        Self {
            priority: decided.priority,
            fabric: decided.fabric.clone(),
            pods: placed.collect(),
            victims: leaving.map(|it| RecordedPod::new(&it.pod, &it.node)).collect(),
            rules: devices(decided).len(),
            moves: decided.moves,
        }
    }
}

/// The devices that are kept: all that the pods get, since other pods could take the free ones
/// meanwhile, and all that are freed.
pub(crate) fn devices(decided: &Preemption) -> BTreeSet<DeviceId> {
    let mut all = placed(decided);
    all.extend(decided.freed.iter().cloned());
    all
}

/// The devices that the pods get.
pub(crate) fn placed(decided: &Preemption) -> BTreeSet<DeviceId> {
    let claims = decided.placements.iter().flat_map(|placement| &placement.claims);
    let results = claims.flat_map(|claim| &claim.allocation.results);
    let placed = results.filter(|result| !result.admin_access).map(|result| &result.device);
    placed.chain(&decided.kept).cloned().collect()
}

impl Begun {
    /// Whether every rule exists.
    pub(crate) fn is_whole(&self) -> bool {
        self.rules.len() == self.record.rules
    }

    /// The rules in the order in which they are removed: the head last.
    pub(crate) fn removal(&self) -> Vec<String> {
        let others = self.rules.keys().filter(|name| **name != self.head);
        others.chain([&self.head]).cloned().collect()
    }

    /// The nodes of the pods.
    pub(crate) fn nodes(&self) -> BTreeSet<&str> {
        self.record.pods.iter().map(|pod| pod.node.as_str()).collect()
    }

    /// The same for the next decision: the pods of a node share the devices that are kept there.
    pub(crate) fn as_decided(&self) -> Preemption {
        let Record { priority, fabric, pods, victims, rules: _, moves } = &self.record;
        let placements = pods.iter().map(|pod| Placement {
            pod: pod.id(),
            node: pod.node.clone(),
            domains: Vec::new(),
            claims: vec![PlacedClaim { claim: pod.key(), allocation: self.kept_on(&pod.node) }],
        });
        let victims = victims.iter().map(|pod| Victim {
            job: None,
            pods: vec![VictimPod {
                pod: pod.id(),
                node: pod.node.clone(),
                priority: *priority,
                violates: None,
            }],
        });
        Preemption {
            priority: *priority,
            fabric: fabric.clone(),
            placements: placements.collect(),
            victims: victims.collect(),
            kept: self.rules.values().cloned().collect(),
            freed: Vec::new(),
            moves: *moves,
        }
    }

    fn kept_on(&self, node: &str) -> ClaimAllocation {
        let kept = self.rules.values().filter(|device| *device.pool == *node);
        let results = kept.map(|device| DeviceResult {
            request: "".into(),
            device: device.clone(),
            admin_access: false,
            tolerations: Vec::new(),
            is_share: false,
            consumed_capacity: Vec::new(),
            binding_conditions: Vec::new(),
            binding_failure_conditions: Vec::new(),
            skip_node_operations: Vec::new(),
        });
        ClaimAllocation { results: results.collect(), config: Vec::new(), node_selector: None }
    }
}
