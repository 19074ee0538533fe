//! Watches the pods, nodes and `PodGroup`s that decisions need.
//!
//! Two watches report pods: those of groups in any phase, and those that use a node. Pods
//! without a node and without a group are never received. If kube-scheduler places groups, their
//! `PodGroup`s are watched as well.

use crate::group_pods::GroupPods;
use crate::pod_groups::MadePodGroups;
use cluster_model::names::label;
use cluster_model::room::Nodes;
use cluster_model::view::ObjectKey;
use cluster_model::watch::{HAS_NOT_ENDED, Sink, follow_into, wait_for_pod_groups};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use kube::runtime::watcher;
use kube::{Api, Client};
use serve::readiness::Readiness;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// State from the watches.
#[derive(Debug, Default)]
pub(super) struct Watched {
    objects: Mutex<WatchedObjects>,
    changed: Notify,
    complete: Readiness,
}

#[derive(Debug, Default)]
struct WatchedObjects {
    pods: GroupPods,
    nodes: Nodes,
    pod_groups: Arc<MadePodGroups>,
}

/// The inputs of decisions. A decision uses a copy of the pointers and holds no lock.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    pub(super) pods: GroupPods,
    pub(super) nodes: Nodes,
    pub(super) pod_groups: Arc<MadePodGroups>,
}

impl Watched {
    /// Everything as it is now.
    pub(super) fn objects(&self) -> Objects {
        let WatchedObjects { pods, nodes, pod_groups } = &*self.lock();
        let pod_groups = Arc::clone(pod_groups);
        Objects { pods: pods.to_read(), nodes: nodes.to_read(), pod_groups }
    }

    /// Every lock is held for one change or one copy of pointers.
    fn lock(&self) -> MutexGuard<'_, WatchedObjects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change that could unblock a group.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until everything has been listed once.
    pub(super) async fn complete(&self) {
        self.complete.ready().await;
    }

    /// Makes [`Self::complete`] wait for the lists from this call on, and watches without
    /// end. With `pod_groups`, also the `PodGroup`s of this controller; nothing is complete before
    /// the API server serves them.
    pub(super) fn follow(
        self: &Arc<Self>,
        client: Client,
        pod_groups: bool,
    ) -> impl Future<Output = ()> {
        let kinds = ["pods of groups", "pods with nodes", "nodes"];
        let [of_groups, with_nodes, of_nodes] = kinds.map(|kind| self.complete.wait_for(kind));
        let of_pod_groups = pod_groups.then(|| self.complete.wait_for("podgroups of groups"));
        let pods = Api::<Pod>::all(client.clone());
        let in_group = watcher::Config::default().labels(label::FABRIC_GROUP);
        let on_node = watcher::Config::default().fields(HAS_NOT_ENDED);
        let watches = (
            follow_into(pods.clone(), in_group.clone(), GroupPodSink(Arc::clone(self)), of_groups),
            follow_into(pods, on_node, BoundPodSink(Arc::clone(self)), with_nodes),
            follow_into(
                Api::<Node>::all(client.clone()),
                watcher::Config::default(),
                NodeSink(Arc::clone(self)),
                of_nodes,
            ),
        );
        let made = PodGroupSink(Arc::clone(self));
        async move {
            let follow_made = async {
                let Some(listed) = of_pod_groups else { return };
                wait_for_pod_groups(&client, warn_absent).await;
                follow_into(Api::all(client.clone()), in_group, made, listed).await;
            };
            futures::join!(watches.0, watches.1, watches.2, follow_made);
        }
    }

    fn notify(&self, matters: bool) {
        if matters {
            self.changed.notify_one();
        }
    }
}

fn warn_absent() {
    tracing::warn!(
        "The API server has no PodGroups, so no group is placed; turn on its feature gates \
         GenericWorkload and TopologyAwareWorkloadScheduling"
    );
}

/// Receives pods of groups: their state, and what they use on their node.
struct GroupPodSink(Arc<Watched>);

impl Sink<Pod> for GroupPodSink {
    fn apply(&mut self, pod: Pod) {
        let matters = {
            let mut objects = self.0.lock();
            objects.nodes.apply_pod(&pod);
            objects.pods.apply(&pod)
        };
        self.0.notify(matters);
    }

    fn delete(&mut self, key: &ObjectKey) {
        {
            let mut objects = self.0.lock();
            objects.nodes.delete_pod(key);
            objects.pods.delete(key);
        }
        self.0.notify(true);
    }
}

/// Receives pods that have not ended: what they use on their node, also while they are bound to it.
struct BoundPodSink(Arc<Watched>);

impl Sink<Pod> for BoundPodSink {
    fn apply(&mut self, pod: Pod) {
        self.0.lock().nodes.apply_pod(&pod);
    }

    // A deleted pod frees capacity.
    fn delete(&mut self, key: &ObjectKey) {
        self.0.lock().nodes.delete_pod(key);
        self.0.notify(true);
    }
}

/// Receives the `PodGroup`s of groups.
struct PodGroupSink(Arc<Watched>);

impl Sink<PodGroup> for PodGroupSink {
    fn apply(&mut self, object: PodGroup) {
        Arc::make_mut(&mut self.0.lock().pod_groups).apply(&object);
        self.0.notify(true);
    }

    fn delete(&mut self, key: &ObjectKey) {
        Arc::make_mut(&mut self.0.lock().pod_groups).delete(key);
        self.0.notify(true);
    }
}

/// Receives all nodes.
struct NodeSink(Arc<Watched>);

impl Sink<Node> for NodeSink {
    fn apply(&mut self, node: Node) {
        let matters = self.0.lock().nodes.apply(&node);
        self.0.notify(matters);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.lock().nodes.delete(&key.name);
        self.0.notify(true);
    }
}
