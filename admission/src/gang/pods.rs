//! The pods of the cluster: what those with a node use there, and the groups.

use super::amounts::{Amounts, requests};
use super::group::{Group, GroupKey, Member, made_claims};
use super::interpod::Labels;
use super::kind::Kind;
use cluster_model::view::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// All pods, indexed.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    placed: HashMap<ObjectKey, String>,
    nodes: HashMap<String, BTreeMap<ObjectKey, Placed>>,
    usage: HashMap<String, Usage>,
    groups: BTreeMap<GroupKey, BTreeMap<String, Member>>,
    of: HashMap<ObjectKey, GroupKey>,
}

/// A pod on a node.
#[derive(Clone, Debug)]
pub struct Placed {
    node: String,
    requests: Amounts,
    /// Its labels.
    pub labels: Arc<Labels>,
    /// The claims that were made for it, and what it needs, where it needs devices.
    pub devices: Option<Arc<(Vec<String>, Kind)>>,
}

/// What pods use of a node.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// CPU, memory and the like.
    pub amounts: Amounts,
    /// How many pods.
    pub pods: usize,
}

impl Pods {
    /// Adds a pod, or replaces the one of its name; whether it is of a group.
    pub fn apply(&mut self, pod: &Pod) -> bool {
        let key = key(pod);
        let was_member = self.remove(&key);
        if let Some(placed) = Placed::of(pod) {
            let usage = self.usage.entry(placed.node.clone()).or_default();
            usage.amounts.add(&placed.requests);
            usage.pods += 1;
            let on_node = self.nodes.entry(placed.node.clone()).or_default();
            self.placed.insert(key.clone(), placed.node.clone());
            on_node.insert(key.clone(), placed);
        }
        let Some((group, member)) = Member::of(pod) else { return was_member };
        self.groups.entry(group.clone()).or_default().insert(key.name.clone(), member);
        self.of.insert(key, group);
        true
    }

    /// Removes a pod; whether it was of a group.
    pub fn delete(&mut self, pod: &Pod) -> bool {
        self.remove(&key(pod))
    }

    /// Replaces all.
    pub fn reset(&mut self, pods: &[Pod]) {
        *self = Self::default();
        for pod in pods {
            self.apply(pod);
        }
    }

    fn remove(&mut self, key: &ObjectKey) -> bool {
        if let Some(node) = self.placed.remove(key) {
            self.leave(key, &node);
        }
        let Some(group) = self.of.remove(key) else { return false };
        if let Some(members) = self.groups.get_mut(&group) {
            members.remove(&key.name);
            if members.is_empty() {
                self.groups.remove(&group);
            }
        }
        true
    }

    fn leave(&mut self, key: &ObjectKey, node: &str) {
        let Some(on_node) = self.nodes.get_mut(node) else { return };
        if let (Some(placed), Some(usage)) = (on_node.remove(key), self.usage.get_mut(node)) {
            usage.amounts.subtract(&placed.requests, 1);
            usage.pods -= 1;
        }
        if on_node.is_empty() {
            self.nodes.remove(node);
            self.usage.remove(node);
        }
    }

    /// What is used of a node.
    pub fn usage(&self, node: &str) -> Option<&Usage> {
        self.usage.get(node)
    }

    /// The pods on a node.
    pub fn on(&self, node: &str) -> impl Iterator<Item = (&ObjectKey, &Placed)> {
        self.nodes.get(node).into_iter().flatten()
    }

    /// The nodes that have pods.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Every group, without its size.
    pub fn groups(&self) -> Vec<Group> {
        let group = |(key, members): (&GroupKey, &BTreeMap<String, Member>)| Group {
            key: key.clone(),
            members: members.values().cloned().collect(),
            size: None,
        };
        self.groups.iter().map(group).collect()
    }
}

impl Placed {
    fn of(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        let has_claims = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
        Some(Self {
            node: spec.node_name.clone()?,
            requests: requests(spec),
            labels: Arc::new(pod.metadata.labels.clone().unwrap_or_default()),
            devices: has_claims.then(|| Arc::new((made_claims(pod), Kind::of(pod, None)))),
        })
    }
}

fn key(pod: &Pod) -> ObjectKey {
    ObjectKey {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
    }
}
