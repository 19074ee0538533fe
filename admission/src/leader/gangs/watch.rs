//! Pods and nodes as the decision needs them, by watches.

use crate::gang::nodes::Nodes;
use crate::gang::pods::Pods;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serve::readiness::Readiness;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;

/// What watches feed.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pods: RwLock<Pods>,
    nodes: RwLock<Nodes>,
    changed: Notify,
    complete: Readiness,
}

impl Facts {
    pub(super) fn pods(&self) -> RwLockReadGuard<'_, Pods> {
        self.pods.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn nodes(&self) -> RwLockReadGuard<'_, Nodes> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn pods_mut(&self) -> RwLockWriteGuard<'_, Pods> {
        self.pods.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes_mut(&self) -> RwLockWriteGuard<'_, Nodes> {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when something has changed that a group may have waited for.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns when everything has been listed once.
    pub(super) async fn complete(&self) {
        self.complete.ready().await;
    }

    /// Watches for ever.
    pub(super) async fn follow(&self, client: Client) {
        let listed = ["pods", "nodes"].map(|kind| self.complete.wait_for(kind));
        let [pods, nodes] = listed;
        let (mut pods, mut nodes) = (Some(pods), Some(nodes));
        let (mut new_pods, mut new_nodes) = (Vec::new(), Vec::new());
        let of_pods = async |event: Event<Pod>| {
            let matters = match event {
                Event::Init => false,
                Event::InitApply(pod) => {
                    new_pods.push(pod);
                    false
                }
                Event::InitDone => {
                    self.pods_mut().reset(&std::mem::take(&mut new_pods));
                    pods.take();
                    true
                }
                Event::Apply(pod) => self.pods_mut().apply(&pod),
                // Whatever went made room.
                Event::Delete(pod) => {
                    self.pods_mut().delete(&pod);
                    true
                }
            };
            self.tell(matters);
        };
        let of_nodes = async |event: Event<Node>| {
            let matters = match event {
                Event::Init => false,
                Event::InitApply(node) => {
                    new_nodes.push(node);
                    false
                }
                Event::InitDone => {
                    self.nodes_mut().reset(&std::mem::take(&mut new_nodes));
                    nodes.take();
                    true
                }
                Event::Apply(node) => self.nodes_mut().apply(&node),
                Event::Delete(node) => {
                    self.nodes_mut().delete(&node);
                    true
                }
            };
            self.tell(matters);
        };
        tokio::join!(
            follow(Api::<Pod>::all(client.clone()), of_pods),
            follow(Api::<Node>::all(client), of_nodes),
        );
    }

    fn tell(&self, matters: bool) {
        if matters {
            self.changed.notify_one();
        }
    }
}

async fn follow<K>(api: Api<K>, mut take: impl AsyncFnMut(Event<K>))
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let slim = |object: &mut K| object.meta_mut().managed_fields = None;
    let events = watcher(api, watcher::Config::default()).default_backoff().modify(slim);
    let mut events = pin!(events);
    loop {
        match events.try_next().await {
            Ok(Some(event)) => take(event).await,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(kind = %K::plural(&()), %error, "Watch failed; trying again");
            }
        }
    }
}
