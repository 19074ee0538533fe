//! The nodes and the pods on them, as in kube-scheduler's cache (`backend/cache`).
//!
//! A large cluster has a hundred thousand pods, so only the fields that are read are kept, and equal
//! values are stored once. Copies share the nodes, so a change in the meantime copies one node.

use super::amounts::{Amounts, NonZero, requests};
use super::ask::Ask;
use super::claims::made_claims;
use super::interner::Interner;
use super::node_facts::NodeFacts;
use super::ports::HostPort;
use super::terms::{Labels, Term};
use super::volume_ask::VolumeAsk;
use super::weighted_term::{WeightedTerm, drawing};
use crate::names::label;
use crate::view::ObjectKey;
use k8s_openapi::api::core::v1::{Node, Pod};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// All nodes by name.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    all: HashMap<Arc<str>, Arc<NodeInfo>>,
    /// The few pods with a node that have affinity or anti-affinity.
    affine: BTreeMap<Arc<PodKey>, AffinityOfPod>,
    /// Pods without a node that have claims, or for which others are evicted: while the scheduler binds
    /// one of them, it has devices and holds its room.
    waiting: BTreeMap<Arc<PodKey>, Arc<WaitingPod>>,
    index: PodIndex,
}

/// What the affinity of a pod with a node says of other pods.
#[derive(Clone, Debug)]
struct AffinityOfPod {
    node: Arc<str>,
    /// Its required anti-affinity.
    apart: Arc<[Term]>,
    /// What draws others near or keeps them apart.
    drawing: Arc<[WeightedTerm]>,
}

/// A pod without a node that may hold room.
#[derive(Debug)]
pub(super) struct WaitingPod {
    /// The names of its claims.
    pub(super) claims: Vec<String>,
    pub(super) ask: Arc<Ask>,
    /// Whether it is in a group of fabric-controller.
    pub(super) is_grouped: bool,
    /// The node on which others are evicted for it (`status.nominatedNodeName`).
    pub(super) nominated: Option<Arc<str>>,
}

/// A node and the pods on it; either may be reported first.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeInfo {
    facts: Option<NodeFacts>,
    pods: BTreeMap<Arc<PodKey>, BoundPod>,
    usage: Usage,
}

/// State that only changes need.
#[derive(Clone, Debug, Default)]
struct PodIndex {
    node_of: HashMap<Arc<PodKey>, Arc<str>>,
    texts: Interner<str>,
    amounts: Interner<Amounts>,
    labels: Interner<Labels>,
    asks: Interner<Ask>,
}

/// The key of a pod on a node: an [`ObjectKey`] in less memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Its namespace, which pods share.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Box<str>,
}

impl From<&PodKey> for ObjectKey {
    fn from(PodKey { namespace, name }: &PodKey) -> Self {
        Self { namespace: namespace.to_string(), name: name.to_string() }
    }
}

/// A pod on a node.
#[derive(Clone, Debug)]
pub(super) struct BoundPod {
    requests: Arc<Amounts>,
    non_zero: NonZero,
    pub(super) priority: i32,
    /// Whether it is being deleted.
    pub(super) is_ending: bool,
    /// Its labels; pods of one owner share them.
    pub(super) labels: Arc<Labels>,
    /// The ports of the node that it has.
    pub(super) ports: Box<[HostPort]>,
    /// Its volumes.
    pub(super) volumes: Box<[VolumeAsk]>,
    /// Names of the claims that were created for it, and what it asks for, if it has claims.
    pub(super) devices: Option<Box<(Vec<String>, Arc<Ask>)>>,
}

/// What pods use on a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// CPU, memory and other resources.
    pub(super) amounts: Amounts,
    /// What counts for free nodes.
    pub(super) non_zero: NonZero,
    /// Number of pods.
    pub(super) pods: i64,
}

impl Usage {
    /// Adds what a pod requests this many times; subtracts it if that is negative.
    pub(super) fn add(&mut self, (requests, non_zero): (&Amounts, NonZero), times: i64) {
        self.amounts.add_times(requests, times);
        self.non_zero.add(non_zero, times);
        self.pods += times;
    }
}

impl Nodes {
    /// Adds or replaces a node. Returns true if anything changed.
    pub fn apply(&mut self, node: &Node) -> bool {
        self.apply_facts(node, NodeFacts::new(node))
    }

    /// The same for a node of a file.
    pub fn apply_of_file(&mut self, node: &Node) {
        self.apply_facts(node, NodeFacts::of_file(node));
    }

    fn apply_facts(&mut self, node: &Node, facts: NodeFacts) -> bool {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let is_same = self.facts(name) == Some(&facts);
        if !is_same {
            let name = self.index.texts.share(name);
            Arc::make_mut(self.all.entry(name).or_default()).facts = Some(facts);
        }
        !is_same
    }

    /// Lets pods on a cordoned node again.
    pub fn uncordon(&mut self, name: &str) {
        let facts = self.all.get_mut(name).and_then(|info| Arc::make_mut(info).facts.as_mut());
        facts.into_iter().for_each(NodeFacts::uncordon);
    }

    /// Removes a node.
    pub fn delete(&mut self, name: &str) {
        let Some(info) = self.all.get_mut(name) else { return };
        Arc::make_mut(info).facts = None;
        self.forget_empty(name);
    }

    /// Adds or replaces a pod, which uses its node until it ends.
    pub fn apply_pod(&mut self, pod: &Pod) {
        let key = ObjectKey::new(&pod.metadata);
        self.delete_pod(&key);
        let key = Arc::new(self.index.key(&key));
        if let Some(waiting) = self.index.waiting(pod) {
            self.waiting.insert(Arc::clone(&key), Arc::new(waiting));
        }
        let Some((node, bound)) = self.index.bound(pod) else { return };
        let (apart, drawing) = (Term::of(pod).0, drawing(pod));
        if !apart.is_empty() || !drawing.is_empty() {
            let node = Arc::clone(&node);
            let own = AffinityOfPod { node, apart: apart.into(), drawing: drawing.into() };
            self.affine.insert(Arc::clone(&key), own);
        }
        self.index.node_of.insert(Arc::clone(&key), Arc::clone(&node));
        let info = Arc::make_mut(self.all.entry(node).or_default());
        info.usage.add((&bound.requests, bound.non_zero), 1);
        info.pods.insert(key, bound);
    }

    /// Removes a pod.
    pub fn delete_pod(&mut self, key: &ObjectKey) {
        let key = self.index.key(key);
        self.waiting.remove(&key);
        self.affine.remove(&key);
        let Some(node) = self.index.node_of.remove(&key) else { return };
        let Some(info) = self.all.get_mut(&node) else { return };
        let info = Arc::make_mut(info);
        if let Some(bound) = info.pods.remove(&key) {
            info.usage.add((&bound.requests, bound.non_zero), -1);
        }
        self.forget_empty(&node);
    }

    fn forget_empty(&mut self, name: &str) {
        if self.all.get(name).is_some_and(|info| info.facts.is_none() && info.pods.is_empty()) {
            self.all.remove(name);
        }
    }

    /// Returns a cheap copy for reading, without the state that only changes need.
    #[must_use]
    pub fn to_read(&self) -> Self {
        let Self { all, affine, waiting, index: _ } = self.clone();
        Self { all, affine, waiting, index: PodIndex::default() }
    }

    /// What a node says of itself; `None` if it is unknown.
    pub fn facts(&self, node: &str) -> Option<&NodeFacts> {
        self.all.get(node)?.facts.as_ref()
    }

    pub(super) fn get(&self, node: &str) -> Option<&NodeInfo> {
        self.all.get(node).map(|info| &**info)
    }

    /// The pods on all nodes, with the node's name.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&str, &PodKey, &BoundPod)> {
        self.all.iter().flat_map(|(node, info)| {
            info.pods.iter().map(move |(key, bound)| (&**node, &**key, bound))
        })
    }

    /// The pods with anti-affinity, with the node's name and their terms.
    pub(super) fn apart(&self) -> impl Iterator<Item = (&str, &PodKey, &[Term])> {
        self.affine.iter().map(|(key, it)| (&*it.node, &**key, &*it.apart))
    }

    /// The pods that draw others near or keep them apart, with the node's name.
    pub(super) fn drawing(&self) -> impl Iterator<Item = (&str, &PodKey, &[WeightedTerm])> {
        self.affine.iter().map(|(key, it)| (&*it.node, &**key, &*it.drawing))
    }

    /// A pod on a node.
    pub(super) fn pod(&self, node: &str, key: &PodKey) -> Option<&BoundPod> {
        self.get(node)?.pod(key)
    }

    /// The pods without a node that have claims, or for which others are evicted.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&PodKey, &WaitingPod)> {
        self.waiting.iter().map(|(key, pod)| (&**key, &**pod))
    }

    /// Whether any pod with a node has anti-affinity.
    pub fn has_anti_affinity(&self) -> bool {
        self.affine.values().any(|it| !it.apart.is_empty())
    }

    /// The lowest priority of a pod with a node.
    pub fn lowest_priority(&self) -> Option<i32> {
        self.pods().map(|(_, _, bound)| bound.priority).min()
    }
}

impl NodeInfo {
    pub(super) fn facts(&self) -> Option<&NodeFacts> {
        self.facts.as_ref()
    }

    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The pods on the node.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&PodKey, &BoundPod)> {
        self.pods.iter().map(|(key, bound)| (&**key, bound))
    }

    /// A pod on the node.
    pub(super) fn pod(&self, key: &PodKey) -> Option<&BoundPod> {
        self.pods.get(key)
    }

    /// What the pods use for which a condition holds.
    pub(super) fn usage_of(&self, holds: impl Fn(&PodKey, &BoundPod) -> bool) -> Usage {
        let mut usage = Usage::default();
        for (_, bound) in self.pods().filter(|(key, bound)| holds(key, bound)) {
            usage.add((&bound.requests, bound.non_zero), 1);
        }
        usage
    }
}

impl BoundPod {
    /// Whether it gives way to pods of this priority.
    pub(super) fn is_below(&self, priority: i32) -> bool {
        self.priority < priority
    }
}

impl PodIndex {
    fn key(&mut self, key: &ObjectKey) -> PodKey {
        PodKey {
            namespace: self.texts.share(key.namespace.as_str()),
            name: key.name.as_str().into(),
        }
    }

    /// Returns a pod without a node that has claims, or for which others are evicted, while the scheduler
    /// may bind it.
    fn waiting(&mut self, pod: &Pod) -> Option<WaitingPod> {
        let spec = pod.spec.as_ref().filter(|spec| spec.node_name.is_none())?;
        let is_gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        let entries = spec.resource_claims.iter().flatten();
        let named = entries.filter_map(|entry| entry.resource_claim_name.clone());
        let claims: Vec<String> = named.chain(made_claims(pod)).collect();
        let nominated = pod.status.as_ref().and_then(|it| it.nominated_node_name.as_deref());
        let nominated = nominated.filter(|it| !it.is_empty()).map(|it| self.texts.share(it));
        if is_gated || (claims.is_empty() && nominated.is_none()) {
            return None;
        }
        let ask = self.asks.share(Ask::of_kind(pod));
        let labels = pod.metadata.labels.as_ref();
        let is_grouped = labels.is_some_and(|labels| labels.contains_key(label::FABRIC_GROUP));
        Some(WaitingPod { claims, ask, is_grouped, nominated })
    }

    /// Returns the node of a pod and what the pod uses there; `None` if it uses no node.
    fn bound(&mut self, pod: &Pod) -> Option<(Arc<str>, BoundPod)> {
        let spec = pod.spec.as_ref()?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        let node = self.texts.share(spec.node_name.as_deref()?);
        let has_claims = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
        let by_extended = pod.status.as_ref().and_then(|status| {
            let made = status.extended_resource_claim_status.as_ref()?;
            Some(made.resource_claim_name.clone())
        });
        let devices = (has_claims || by_extended.is_some()).then(|| {
            let made = made_claims(pod).into_iter().chain(by_extended).collect();
            Box::new((made, self.asks.share(Ask::of_kind(pod))))
        });
        let labels = pod.metadata.labels.iter().flatten();
        let labels: Labels = labels
            .map(|(key, value)| (self.texts.share(key.as_str()), self.texts.share(value.as_str())))
            .collect();
        let labels = self.labels.share(labels);
        let requests = self.amounts.share(requests(pod));
        let non_zero = NonZero::of(pod);
        let priority = spec.priority.unwrap_or_default();
        let ports = HostPort::of(spec).into();
        let volumes = VolumeAsk::of(pod).into();
        let is_ending = pod.metadata.deletion_timestamp.is_some();
        let bound =
            BoundPod { requests, non_zero, priority, is_ending, labels, ports, volumes, devices };
        Some((node, bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, node: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name, "labels": {"app": name}},
            "spec": {"nodeName": (!node.is_empty()).then_some(node), "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "2"}}},
            ]},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn pods_use_their_node_until_they_end() {
        let mut nodes = Nodes::default();
        let used = |nodes: &Nodes| {
            let usage = nodes.get("a").map(|info| info.usage.clone()).unwrap_or_default();
            (usage.pods, usage.amounts.get("cpu"))
        };
        nodes.apply_pod(&pod("x", "a", "Running"));
        nodes.apply_pod(&pod("y", "a", "Pending"));
        assert_eq!(used(&nodes), (2, 4_000));
        nodes.apply_pod(&pod("y", "a", "Running"));
        assert_eq!(used(&nodes), (2, 4_000), "the same pod again");
        nodes.apply_pod(&pod("z", "", "Pending"));
        assert_eq!(nodes.all.len(), 1);
        let read = nodes.to_read();
        nodes.apply_pod(&pod("x", "a", "Succeeded"));
        assert_eq!((used(&read), used(&nodes)), ((2, 4_000), (1, 2_000)), "a copy stays as it was");
        nodes.delete_pod(&ObjectKey { namespace: "n".into(), name: "y".into() });
        assert!(nodes.all.is_empty());
    }
}
