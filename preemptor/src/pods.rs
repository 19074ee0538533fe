//! What preemption knows of pods besides their room: who waits for devices, and who may leave.

use cluster_model::names::{GATE_FABRIC, annotation};
use cluster_model::room::{Ask, Interner, Labels, PodKey};
use cluster_model::view::ObjectKey;
use fabric_controller::Gang;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The label by which a Deployment tells its `ReplicaSets` apart.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// All pods that have not ended. Copies share the pods, so a change in the meantime copies those of one
/// node.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    nodes: HashMap<Arc<str>, Arc<BTreeMap<Arc<PodKey>, BoundPod>>>,
    waiting: BTreeMap<Arc<PodKey>, Arc<WaitingPod>>,
    index: PodIndex,
}

/// State that only changes need.
#[derive(Clone, Debug, Default)]
struct PodIndex {
    node_of: HashMap<Arc<PodKey>, Arc<str>>,
    texts: Interner<str>,
    labels: Interner<Labels>,
    gangs: Interner<Gang>,
    asks: Interner<Ask>,
}

/// A pod on a node.
#[derive(Clone, Debug)]
pub struct BoundPod {
    /// Its UID.
    pub uid: Box<str>,
    /// Its priority.
    pub priority: i32,
    /// Its `PriorityClass`.
    pub priority_class: Option<Arc<str>>,
    /// Its labels; pods of one owner share them.
    pub labels: Arc<Labels>,
    /// When it started, in seconds of Unix time; `None` if it has not.
    pub started: Option<i64>,
    /// The gang that it belongs to.
    pub gang: Option<Arc<Gang>>,
    /// The kind and the name of its controller; of a `ReplicaSet`, the Deployment.
    pub owner: Option<(Arc<str>, Arc<str>)>,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// Whether `PodDisruptionBudgets` do not count it: it has not started.
    pub is_pending: bool,
    /// Whether its owner lets it be moved.
    pub is_movable: bool,
}

/// A pod without a node.
#[derive(Clone, Debug)]
pub struct WaitingPod {
    /// Its UID.
    pub uid: Box<str>,
    /// Its priority.
    pub priority: i32,
    /// Its `PriorityClass`.
    pub priority_class: Option<Arc<str>>,
    /// When it was created.
    pub created: Timestamp,
    /// What it asks for, with the claims that were made for it.
    pub ask: Arc<Ask>,
    /// The same as pods of its job ask for it.
    pub kind: Arc<Ask>,
    /// Whether it has the gate of fabric-controller.
    pub waits_for_fabric: bool,
    /// How far its scheduler has come with it.
    pub stage: WaitingStage,
    /// Whether kube-scheduler places it with its PodGroup.
    pub is_in_pod_group: bool,
}

/// How far the scheduler has come with a pod without a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingStage {
    /// It has scheduling gates of others than fabric-controller.
    Gated,
    /// Nobody has looked at it.
    New,
    /// The scheduler has found no node.
    Unschedulable,
}

impl Pods {
    /// Adds or replaces a pod.
    pub fn apply(&mut self, pod: &Pod) {
        let key = ObjectKey::new(&pod.metadata);
        self.delete(&key);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        let Some(spec) = pod.spec.as_ref().filter(|_| !ended) else { return };
        let key = Arc::new(self.index.key(&key));
        if let Some(node) = &spec.node_name {
            let node = self.index.texts.share(node.as_str());
            let bound = self.index.bound(pod, spec);
            self.index.node_of.insert(Arc::clone(&key), Arc::clone(&node));
            Arc::make_mut(self.nodes.entry(node).or_default()).insert(key, bound);
        } else if pod.metadata.deletion_timestamp.is_none() {
            let waiting = self.index.waiting(pod, spec);
            self.waiting.insert(key, Arc::new(waiting));
        }
    }

    /// Removes a pod.
    pub fn delete(&mut self, key: &ObjectKey) {
        let key = self.index.key(key);
        self.waiting.remove(&key);
        let Some(node) = self.index.node_of.remove(&key) else { return };
        let Some(pods) = self.nodes.get_mut(&node) else { return };
        let pods = Arc::make_mut(pods);
        pods.remove(&key);
        if pods.is_empty() {
            self.nodes.remove(&node);
        }
    }

    /// Returns a cheap copy for reading, without the state that only changes need.
    #[must_use]
    pub fn to_read(&self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            waiting: self.waiting.clone(),
            index: PodIndex::default(),
        }
    }

    /// The pods on nodes, with the node's name.
    pub fn bound(&self) -> impl Iterator<Item = (&str, &PodKey, &BoundPod)> {
        self.nodes
            .iter()
            .flat_map(|(node, pods)| pods.iter().map(move |(key, pod)| (&**node, &**key, pod)))
    }

    /// A pod on a node.
    pub fn on_node(&self, node: &str, key: &PodKey) -> Option<&BoundPod> {
        self.nodes.get(node)?.get(key)
    }

    /// The pods on nodes that give back their devices in vain for this one: those of its gang, which need
    /// them too, and those that its controller replaces at once by equal ones.
    pub fn of_same_workload(&self, pod: &Pod) -> BTreeSet<ObjectKey> {
        let metadata = &pod.metadata;
        let gang = Gang::new(pod).map(|gang| gang.key);
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let controller = owner(pod).filter(|(kind, _)| kind != "Job");
        let hash = metadata.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH));
        let own = controller.as_ref().map(|(kind, name)| (kind.as_str(), name.as_str()));
        let same = self.bound().filter(|(_, key, other)| {
            let other_owner = other.owner.as_ref().map(|(kind, name)| (&**kind, &**name));
            let is_replaced = *key.namespace == *namespace
                && own.is_some()
                && own == other_owner
                && hash.map(String::as_str) == other.labels.get(TEMPLATE_HASH);
            is_replaced || gang.is_some() && gang == other.gang.as_ref().map(|it| it.key.clone())
        });
        same.map(|(_, key, _)| key.into()).collect()
    }

    /// The pods without a node.
    pub fn waiting(&self) -> impl Iterator<Item = (&PodKey, &WaitingPod)> {
        self.waiting.iter().map(|(key, pod)| (&**key, &**pod))
    }

    /// A pod without a node.
    pub fn waiting_pod(&self, key: &ObjectKey) -> Option<&WaitingPod> {
        let key =
            PodKey { namespace: key.namespace.as_str().into(), name: key.name.as_str().into() };
        self.waiting.get(&key).map(|pod| &**pod)
    }
}

/// Whether a scheduler has found no node for a pod.
fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut scheduled = conditions.filter(|it| it.type_ == "PodScheduled" && it.status == "False");
    scheduled.any(|it| it.reason.as_deref() == Some("Unschedulable"))
}

/// The kind and the name of a pod's controller; of a `ReplicaSet`, the Deployment.
pub fn owner(pod: &Pod) -> Option<(String, String)> {
    let metadata = &pod.metadata;
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let hash = metadata.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH));
    Some(match deployment(owner, hash) {
        Some(name) => ("Deployment".to_owned(), name.to_owned()),
        None => (owner.kind.clone(), owner.name.clone()),
    })
}

/// The Deployment of a `ReplicaSet`, which adds a hash to its name
/// (`pkg/controller/deployment/util`).
fn deployment<'o>(owner: &'o OwnerReference, hash: Option<&String>) -> Option<&'o str> {
    let owner = Some(owner).filter(|owner| owner.kind == "ReplicaSet");
    owner?.name.strip_suffix(hash?.as_str())?.strip_suffix('-')
}

impl PodIndex {
    fn key(&mut self, key: &ObjectKey) -> PodKey {
        PodKey {
            namespace: self.texts.share(key.namespace.as_str()),
            name: key.name.as_str().into(),
        }
    }

    fn bound(&mut self, pod: &Pod, spec: &PodSpec) -> BoundPod {
        let metadata = &pod.metadata;
        let mut share = |text: &str| self.texts.share(text);
        let labels = metadata.labels.iter().flatten();
        let labels: Labels = labels.map(|(key, value)| (share(key), share(value))).collect();
        let owner = owner(pod).map(|(kind, name)| (share(&kind), share(&name)));
        let priority_class = spec.priority_class_name.as_deref().map(share);
        let annotations = metadata.annotations.as_ref();
        let movable = annotations.and_then(|all| all.get(annotation::MOVABLE));
        let status = pod.status.as_ref();
        BoundPod {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            priority: spec.priority.unwrap_or_default(),
            priority_class,
            labels: self.labels.share(labels),
            started: status.and_then(|it| Some(it.start_time.as_ref()?.0.as_second())),
            gang: Gang::new(pod).map(|gang| self.gangs.share(gang)),
            owner,
            is_leaving: metadata.deletion_timestamp.is_some(),
            is_pending: status.is_some_and(|it| it.phase.as_deref() == Some("Pending")),
            is_movable: movable.is_some_and(|value| value == "true"),
        }
    }

    fn waiting(&mut self, pod: &Pod, spec: &PodSpec) -> WaitingPod {
        let gates = spec.scheduling_gates.iter().flatten().map(|gate| gate.name.as_str());
        let (ours, others): (Vec<_>, Vec<_>) = gates.partition(|name| *name == GATE_FABRIC);
        let created = pod.metadata.creation_timestamp.as_ref();
        WaitingPod {
            uid: pod.metadata.uid.as_deref().unwrap_or_default().into(),
            priority: spec.priority.unwrap_or_default(),
            priority_class: spec.priority_class_name.as_deref().map(|it| self.texts.share(it)),
            created: created.map(|time| time.0).unwrap_or_default(),
            ask: Arc::new(Ask::new(pod)),
            kind: self.asks.share(Ask::of_kind(pod)),
            waits_for_fabric: !ours.is_empty(),
            stage: match others[..] {
                [] if is_unschedulable(pod) => WaitingStage::Unschedulable,
                [] => WaitingStage::New,
                _ => WaitingStage::Gated,
            },
            is_in_pod_group: spec.scheduling_group.is_some(),
        }
    }
}
