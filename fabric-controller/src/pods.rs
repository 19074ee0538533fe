//! The pods of the cluster: what those with a node use there, and the groups.
//!
//! A large cluster has a hundred thousand pods, so only the fields that are read are kept,
//! and equal values are stored once. Decisions use a copy that shares the pods of each node
//! with the original, so a change in the meantime copies only the pods of one node.

use super::amounts::{Amounts, requests};
use super::group::{Group, GroupKey, Member, made_claims};
use super::interpod::Labels;
use super::requirements::PodRequirements;
use super::texts::Interner;
use cluster_model::view::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// All pods, indexed.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    nodes: HashMap<Arc<str>, Arc<NodePods>>,
    groups: BTreeMap<GroupKey, Arc<BTreeMap<String, Member>>>,
    index: PodIndex,
}

/// State that only changes need.
#[derive(Clone, Debug, Default)]
struct PodIndex {
    node_of: HashMap<Arc<PodKey>, Arc<str>>,
    group_of: HashMap<ObjectKey, GroupKey>,
    texts: Interner<str>,
    amounts: Interner<Amounts>,
    labels: Interner<Labels>,
    requirements: Interner<PodRequirements>,
}

/// The pods of one node.
#[derive(Clone, Debug, Default)]
struct NodePods {
    pods: BTreeMap<Arc<PodKey>, BoundPod>,
    usage: Usage,
}

/// The key of a pod on a node: an [`ObjectKey`] in less memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Its namespace, which pods share.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Box<str>,
}

/// A pod on a node.
#[derive(Clone, Debug)]
pub struct BoundPod {
    requests: Arc<Amounts>,
    priority: i32,
    /// Its labels; pods of one owner share them.
    pub labels: Arc<Labels>,
    /// Names of the claims that were created for it, and its requirements, if it needs
    /// devices.
    pub devices: Option<Box<(Vec<String>, Arc<PodRequirements>)>>,
}

/// What pods use on a node.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// CPU, memory and other resources.
    pub amounts: Amounts,
    /// Number of pods.
    pub pods: usize,
}

impl Pods {
    /// Returns a cheap copy for reading, without the state that only changes need.
    #[must_use]
    pub fn to_read(&self) -> Self {
        let (nodes, groups) = (self.nodes.clone(), self.groups.clone());
        Self { nodes, groups, index: PodIndex::default() }
    }

    /// Adds or replaces a pod. Returns true if it belongs, or belonged, to a group.
    pub fn apply(&mut self, pod: &Pod) -> bool {
        let key = ObjectKey::new(&pod.metadata);
        self.apply_bound(&key, pod);
        let was_member = self.leave_group(&key);
        let Some((group, mut member)) = Member::new(pod) else { return was_member };
        member.requirements = self.index.requirements.share(member.requirements);
        let members = self.groups.entry(group.clone()).or_default();
        Arc::make_mut(members).insert(key.name.clone(), member);
        self.index.group_of.insert(key, group);
        true
    }

    /// Records what a pod uses on its node, but not its group.
    pub fn apply_usage(&mut self, pod: &Pod) {
        self.apply_bound(&ObjectKey::new(&pod.metadata), pod);
    }

    /// Removes a pod. Returns true if it belonged to a group.
    pub fn delete(&mut self, key: &ObjectKey) -> bool {
        self.delete_usage(key);
        self.leave_group(key)
    }

    /// Removes what a pod used on its node.
    pub fn delete_usage(&mut self, key: &ObjectKey) {
        let key = self.index.key(key);
        let Some(node) = self.index.node_of.remove(&key) else { return };
        let Some(on_node) = self.nodes.get_mut(&node) else { return };
        let on_node = Arc::make_mut(on_node);
        if let Some(bound) = on_node.pods.remove(&key) {
            on_node.usage.amounts.subtract(&bound.requests, 1);
            on_node.usage.pods -= 1;
        }
        if on_node.pods.is_empty() {
            self.nodes.remove(&node);
        }
    }

    fn apply_bound(&mut self, key: &ObjectKey, pod: &Pod) {
        self.delete_usage(key);
        let Some((node, bound)) = self.index.bound(pod) else { return };
        let key = Arc::new(self.index.key(key));
        self.index.node_of.insert(Arc::clone(&key), Arc::clone(&node));
        let on_node = Arc::make_mut(self.nodes.entry(node).or_default());
        on_node.usage.amounts.add(&bound.requests);
        on_node.usage.pods += 1;
        on_node.pods.insert(key, bound);
    }

    /// Returns true if the pod belonged to a group.
    fn leave_group(&mut self, key: &ObjectKey) -> bool {
        let Some(group) = self.index.group_of.remove(key) else { return false };
        if let Some(members) = self.groups.get_mut(&group) {
            let members = Arc::make_mut(members);
            members.remove(&key.name);
            if members.is_empty() {
                self.groups.remove(&group);
            }
        }
        true
    }

    /// What is used on a node.
    pub fn usage(&self, node: &str) -> Option<&Usage> {
        self.nodes.get(node).map(|on_node| &on_node.usage)
    }

    /// The lowest priority of a pod with a node.
    pub fn lowest_priority(&self) -> Option<i32> {
        let pods = self.nodes.values().flat_map(|on_node| on_node.pods.values());
        pods.map(|bound| bound.priority).min()
    }

    /// What pods of a lower priority than this use on a node; `None` if there are none.
    pub fn usage_below(&self, node: &str, priority: i32) -> Option<Usage> {
        let on_node = self.nodes.get(node)?;
        let mut lower = on_node.pods.values().filter(|bound| bound.priority < priority).peekable();
        lower.peek()?;
        let mut usage = Usage::default();
        for bound in lower {
            usage.amounts.add(&bound.requests);
            usage.pods += 1;
        }
        Some(usage)
    }

    /// The pods on a node.
    pub fn on(&self, node: &str) -> impl Iterator<Item = (&PodKey, &BoundPod)> {
        let on_node = self.nodes.get(node);
        on_node.into_iter().flat_map(|it| &it.pods).map(|(key, bound)| (&**key, bound))
    }

    /// The nodes that have pods.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(|node| &**node)
    }

    /// All groups, without their sizes.
    pub fn groups(&self) -> Vec<Group> {
        self.groups
            .iter()
            .map(|(key, members)| Group {
                key: key.clone(),
                members: members.values().cloned().collect(),
                size: None,
                is_expensive: false,
            })
            .collect()
    }
}

impl PodIndex {
    fn key(&mut self, key: &ObjectKey) -> PodKey {
        PodKey {
            namespace: self.texts.share(key.namespace.as_str()),
            name: key.name.as_str().into(),
        }
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
        let devices = has_claims.then(|| {
            let requirements = self.requirements.share(PodRequirements::new(pod, None));
            Box::new((made_claims(pod), requirements))
        });
        let mut share = |text: &str| self.texts.share(text);
        let labels = pod.metadata.labels.iter().flatten();
        let labels: Labels = labels.map(|(key, value)| (share(key), share(value))).collect();
        let labels = self.labels.share(labels);
        let requests = self.amounts.share(requests(spec));
        let priority = spec.priority.unwrap_or_default();
        Some((node, BoundPod { requests, priority, labels, devices }))
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
        let mut pods = Pods::default();
        let cpus = |pods: &Pods| {
            let usage = pods.usage("a").cloned().unwrap_or_default();
            let one = requests(pod("x", "a", "Running").spec.as_ref().unwrap());
            (usage.pods, one.times_in(&usage.amounts, 99))
        };
        pods.apply(&pod("x", "a", "Running"));
        pods.apply_usage(&pod("y", "a", "Pending"));
        assert_eq!(cpus(&pods), (2, 2));
        pods.apply_usage(&pod("y", "a", "Running"));
        assert_eq!(cpus(&pods), (2, 2), "the same pod again");
        pods.apply(&pod("z", "", "Pending"));
        assert_eq!(pods.nodes().collect::<Vec<_>>(), ["a"]);
        let read = pods.to_read();
        pods.apply(&pod("x", "a", "Succeeded"));
        assert_eq!((cpus(&read), cpus(&pods)), ((2, 2), (1, 1)), "a copy stays as it was");
        pods.delete_usage(&ObjectKey { namespace: "n".into(), name: "y".into() });
        assert_eq!(pods.nodes().count(), 0);
    }
}
