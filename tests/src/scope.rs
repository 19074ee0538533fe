//! The objects that one test creates, and their removal when it ends in any way.

use std::{
    fmt, mem,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use futures::FutureExt;
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Pod},
    resource::v1::ResourceClaim,
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, ObjectMeta, PostParams},
};

use crate::{
    eventually::{Check, eventually},
    manifest, simulated_node,
};

/// A namespace, and the cluster-wide objects created through it.
pub struct Scope {
    client: Client,
    namespace: String,
    cluster_wide: Mutex<Vec<(Api<DynamicObject>, String)>>,
    nodes: Mutex<Vec<String>>,
}

/// Runs `test` in a new namespace. Afterwards, even after a panic, removes what it created through
/// the scope: pods, claims, the namespace, and cluster-wide objects in reverse order.
///
/// The devices that its claims held are free when this returns.
pub async fn with_scope<T>(
    client: Client,
    test: impl AsyncFnOnce(&Scope) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let scope = Scope::open(client).await?;
    let result = AssertUnwindSafe(test(&scope)).catch_unwind().await;
    let closed = scope.close().await;
    match result {
        Ok(Ok(value)) => closed.map(|()| value),
        Ok(Err(error)) => Err(error),
        Err(payload) => panic::resume_unwind(payload),
    }
}

/// Runs `test` in a new namespace of a control plane that ends with it: nothing is removed, which
/// would take minutes for the objects of a benchmark.
pub async fn with_last_scope<T>(
    client: Client,
    test: impl AsyncFnOnce(&Scope) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    test(&Scope::open(client).await?).await
}

impl Scope {
    async fn open(client: Client) -> anyhow::Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let namespace = format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let metadata = ObjectMeta { name: Some(namespace.clone()), ..ObjectMeta::default() };
        let object = Namespace { metadata, ..Namespace::default() };
        Api::all(client.clone())
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("failed to create namespace `{namespace}`"))?;
        Ok(Self {
            client,
            namespace,
            cluster_wide: Mutex::new(Vec::new()),
            nodes: Mutex::new(Vec::new()),
        })
    }

    /// A client with all permissions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The objects of one kind in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// Creates a simulated Ready node, with a name that no other test uses.
    pub async fn node(&self, name: &str) -> anyhow::Result<Node> {
        let name = format!("{name}-{}", self.namespace);
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        simulated_node::apply(&self.client, &name).await
    }

    /// Applies the objects of a YAML file; those without a namespace go to this one.
    pub async fn apply_file(&self, path: &Path) -> anyhow::Result<Vec<DynamicObject>> {
        self.apply_all(manifest::read(path)?).await
    }

    /// Applies objects in YAML; those without a namespace go to this one.
    pub async fn apply_yaml(&self, yaml: &str) -> anyhow::Result<Vec<DynamicObject>> {
        self.apply_all(manifest::parse(yaml)?).await
    }

    /// Applies objects in order.
    pub async fn apply_all(
        &self,
        objects: impl IntoIterator<Item = DynamicObject>,
    ) -> anyhow::Result<Vec<DynamicObject>> {
        let mut all = Vec::new();
        for object in objects {
            all.push(self.apply(object).await?);
        }
        Ok(all)
    }

    /// Applies an object; one without a namespace goes to this one.
    pub async fn apply(&self, object: DynamicObject) -> anyhow::Result<DynamicObject> {
        let (place, applied) = manifest::apply(&self.client, object, &self.namespace).await?;
        if place.is_cluster_scoped() {
            let name = applied.metadata.name.clone().context("an applied object has a name")?;
            let mut all = self.cluster_wide.lock().unwrap_or_else(PoisonError::into_inner);
            all.push((place.api(&self.client), name));
        }
        Ok(applied)
    }

    /// Waits until the scheduler has bound a pod. A timeout reports the scheduler's reason.
    pub async fn bound(&self, name: &str, max: Duration) -> anyhow::Result<Pod> {
        let pods: Api<Pod> = self.api();
        eventually(max, async || {
            let pod = pods.get(name).await?;
            if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                return Ok(Check::Done(pod));
            }
            Ok(Check::NotYet(format!("pod `{name}`: {}", unscheduled_reason(&pod))))
        })
        .await
    }

    /// Waits until the scheduler has tried a pod and found no node; returns its reason.
    pub async fn unschedulable(&self, name: &str, max: Duration) -> anyhow::Result<String> {
        let pods: Api<Pod> = self.api();
        eventually(max, async || {
            let pod = pods.get(name).await?;
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            anyhow::ensure!(node.is_none(), "pod `{name}` is bound to {node:?}");
            let reason = unscheduled_reason(&pod);
            if reason.is_empty() {
                return Ok(Check::NotYet(format!("pod `{name}` was not tried")));
            }
            Ok(Check::Done(reason))
        })
        .await
    }

    /// Deletes a pod immediately, since no kubelet would stop it gracefully. Succeeds also if a
    /// controller has deleted it meanwhile.
    pub async fn delete_pod(&self, name: &str) -> anyhow::Result<()> {
        let now = DeleteParams::default().grace_period(0);
        Ok(gone(self.api::<Pod>().delete(name, &now).await.map(drop))?)
    }

    async fn close(&self) -> anyhow::Result<()> {
        let now = DeleteParams::default().grace_period(0);
        self.api::<Pod>().delete_collection(&now, &ListParams::default()).await?;
        self.free_claims().await?;
        Api::<Namespace>::all(self.client()).delete(&self.namespace, &now).await?;
        let made =
            mem::take(&mut *self.cluster_wide.lock().unwrap_or_else(PoisonError::into_inner));
        for (api, name) in made.into_iter().rev() {
            gone(api.delete(&name, &now).await.map(drop))?;
        }
        let nodes = mem::take(&mut *self.nodes.lock().unwrap_or_else(PoisonError::into_inner));
        for name in nodes {
            gone(Api::<Node>::all(self.client()).delete(&name, &now).await.map(drop))?;
        }
        Ok(())
    }

    /// Deletes the claims. Each is gone when the resource claim controller has seen that its pod is
    /// gone.
    async fn free_claims(&self) -> anyhow::Result<()> {
        let claims = self.api::<ResourceClaim>();
        claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        eventually(Duration::from_secs(30), async || {
            let left = claims.list(&ListParams::default()).await?.items.len();
            Ok(Check::that(left == 0, || format!("{left} claims left in `{}`", self.namespace)))
        })
        .await
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

fn unscheduled_reason(pod: &Pod) -> String {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        .filter_map(|condition| condition.message.clone())
        .collect()
}

/// Accepts that the object is not there: a test or a controller has deleted it itself.
pub(crate) fn gone(deleted: kube::Result<()>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}
