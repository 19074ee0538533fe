//! What is watched besides the view: pods, nodes and PodDisruptionBudgets.

use crate::{Budgets, Pods};
use cluster_model::room::Nodes;
use cluster_model::view::ObjectKey;
use cluster_model::watch::{HAS_NOT_ENDED, Sink, follow_into};
use fabric_controller::group_pods::GroupPods;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::watcher;
use kube::{Api, Client};
use serve::readiness::Readiness;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// State from the watches.
#[derive(Debug, Default)]
pub(super) struct Watched {
    objects: Mutex<Objects>,
    changed: Notify,
    complete: Readiness,
}

/// The inputs of decisions.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) pods: Pods,
    pub(super) nodes: Nodes,
    pub(super) groups: GroupPods,
    pub(super) budgets: Budgets,
}

impl Watched {
    /// Everything as it is now.
    pub(super) fn objects(&self) -> Objects {
        let Objects { pods, nodes, groups, budgets } = &*self.lock();
        let (nodes, groups) = (nodes.to_read(), groups.to_read());
        Objects { pods: pods.to_read(), nodes, groups, budgets: budgets.clone() }
    }

    /// The nodes as they are now.
    pub(super) fn nodes(&self) -> Nodes {
        self.lock().nodes.to_read()
    }

    /// Every lock is held for one change or one copy.
    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Objects)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    /// Waits for a change.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until everything has been listed once.
    pub(super) async fn complete(&self) {
        self.complete.ready().await;
    }

    /// Makes [`Self::complete`] wait for the lists from this call on, and watches without end.
    pub(super) fn follow(self: &Arc<Self>, client: &Client) -> impl Future<Output = ()> {
        let kinds = ["pods", "nodes", "poddisruptionbudgets"];
        let [of_pods, of_nodes, of_budgets] = kinds.map(|kind| self.complete.wait_for(kind));
        let pods = follow_into(
            Api::<Pod>::all(client.clone()),
            watcher::Config::default().fields(HAS_NOT_ENDED),
            PodSink(Arc::clone(self)),
            of_pods,
        );
        let nodes = follow_into(
            Api::<Node>::all(client.clone()),
            watcher::Config::default(),
            NodeSink(Arc::clone(self)),
            of_nodes,
        );
        let budgets = follow_into(
            Api::<PodDisruptionBudget>::all(client.clone()),
            watcher::Config::default(),
            BudgetSink(Arc::clone(self)),
            of_budgets,
        );
        async move {
            futures::join!(pods, nodes, budgets);
        }
    }
}

/// Receives pods that have not ended.
struct PodSink(Arc<Watched>);

impl Sink<Pod> for PodSink {
    fn apply(&mut self, pod: Pod) {
        self.0.change(|objects| {
            objects.nodes.apply_pod(&pod);
            objects.groups.apply(&pod);
            objects.pods.apply(&pod);
        });
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.change(|objects| {
            objects.nodes.delete_pod(key);
            objects.groups.delete(key);
            objects.pods.delete(key);
        });
    }
}

/// Receives all nodes.
struct NodeSink(Arc<Watched>);

impl Sink<Node> for NodeSink {
    fn apply(&mut self, node: Node) {
        let is_changed = self.0.lock().nodes.apply(&node);
        if is_changed {
            self.0.changed.notify_one();
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.change(|objects| objects.nodes.delete(&key.name));
    }
}

/// Receives all PodDisruptionBudgets.
struct BudgetSink(Arc<Watched>);

impl Sink<PodDisruptionBudget> for BudgetSink {
    fn apply(&mut self, budget: PodDisruptionBudget) {
        self.0.change(|objects| objects.budgets.apply(budget));
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.change(|objects| objects.budgets.delete(key));
    }
}
