//! Pods and nodes as the decision needs them, by watches.
//!
//! Two watches bring pods: those of groups in any phase, and those that use a node. Pods that
//! wait for a node and are of no group never arrive.

use crate::nodes::Nodes;
use crate::pods::Pods;
use cluster_model::names::label;
use cluster_model::view::ObjectKey;
use cluster_model::watch::{Sink, follow_into};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::watcher;
use kube::{Api, Client};
use serve::readiness::Readiness;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The fields of pods that use a node: it has one, and they have not ended.
const USES_A_NODE: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// What the watches have brought.
#[derive(Debug, Default)]
pub(super) struct Watched {
    objects: Mutex<Objects>,
    changed: Notify,
    complete: Readiness,
}

/// Pods and nodes; a decision takes a copy of the pointers and no lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) pods: Arc<Pods>,
    pub(super) nodes: Arc<Nodes>,
}

impl Watched {
    /// Pods and nodes as they are now. They are copied at the first change while this is
    /// held.
    pub(super) fn objects(&self) -> Objects {
        self.lock().clone()
    }

    /// Every lock is held for one change or one copy of two pointers.
    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when something has changed that a group may have waited for.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns when everything has been listed once.
    pub(super) async fn complete(&self) {
        self.complete.ready().await;
    }

    /// Makes [`Self::complete`] wait for the lists, from this call on, and watches for ever.
    pub(super) fn follow(self: &Arc<Self>, client: Client) -> impl Future<Output = ()> {
        let kinds = ["pods of groups", "pods with nodes", "nodes"];
        let [of_groups, with_nodes, of_nodes] = kinds.map(|kind| self.complete.wait_for(kind));
        let pods = Api::<Pod>::all(client.clone());
        let in_group = watcher::Config::default().labels(label::FABRIC_GROUP);
        let on_node = watcher::Config::default().fields(USES_A_NODE);
        let watches = (
            follow_into(pods.clone(), in_group, GroupPods(Arc::clone(self)), of_groups),
            follow_into(pods, on_node, NodePods(Arc::clone(self)), with_nodes),
            follow_into(
                Api::<Node>::all(client),
                watcher::Config::default(),
                AllNodes(Arc::clone(self)),
                of_nodes,
            ),
        );
        async move {
            futures::join!(watches.0, watches.1, watches.2);
        }
    }

    fn notify(&self, matters: bool) {
        if matters {
            self.changed.notify_one();
        }
    }
}

/// Pods of groups: their state, and what they use of their node.
struct GroupPods(Arc<Watched>);

impl Sink<Pod> for GroupPods {
    fn apply(&mut self, pod: Pod) {
        let matters = Arc::make_mut(&mut self.0.lock().pods).apply(&pod);
        self.0.notify(matters);
    }

    fn delete(&mut self, key: &ObjectKey) {
        Arc::make_mut(&mut self.0.lock().pods).delete(key);
        self.0.notify(true);
    }
}

/// Pods with nodes: what they use there.
struct NodePods(Arc<Watched>);

impl Sink<Pod> for NodePods {
    fn apply(&mut self, pod: Pod) {
        Arc::make_mut(&mut self.0.lock().pods).apply_usage(&pod);
    }

    // Whatever went made room.
    fn delete(&mut self, key: &ObjectKey) {
        Arc::make_mut(&mut self.0.lock().pods).delete_usage(key);
        self.0.notify(true);
    }
}

/// All nodes.
struct AllNodes(Arc<Watched>);

impl Sink<Node> for AllNodes {
    fn apply(&mut self, node: Node) {
        let matters = Arc::make_mut(&mut self.0.lock().nodes).apply(&node);
        self.0.notify(matters);
    }

    fn delete(&mut self, key: &ObjectKey) {
        Arc::make_mut(&mut self.0.lock().nodes).delete(&key.name);
        self.0.notify(true);
    }
}
