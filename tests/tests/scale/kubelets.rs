//! Plays the kubelets of all nodes, with the drivers' part in preparing claims: renews leases, reads and
//! prepares the claims of a pod that is bound, lets the pod run and end, and deletes it.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::TryStreamExt;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod},
        resource::v1::ResourceClaim,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

use super::observer::Observer;

/// The annotation with the seconds after which a pod ends.
pub(crate) const LIFETIME: &str = "tests.dranet.io/lifetime";
/// How often a kubelet renews its lease (`nodeLeaseDurationSeconds` / 4).
const RENEWAL: Duration = Duration::from_secs(10);
/// The longest outage of the API server that a kubelet survives here.
const OUTAGE: Duration = Duration::from_mins(2);
/// The pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(200);
const LEASES: &str = "kube-node-lease";
/// The NIC driver, whose part of a claim's status is written.
const DRIVER: &str = "dra.net";

/// Plays the kubelets until the set is dropped.
pub(crate) fn play(client: &Client, observer: &Arc<Observer>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(renew_leases(client.clone()));
    tasks.spawn(run_pods(Kubelet { client: client.clone(), observer: Arc::clone(observer) }));
    tasks
}

/// Renews the leases of all nodes, one after another, each in every [`RENEWAL`].
async fn renew_leases(client: Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client, LEASES);
    loop {
        let Ok(names) = nodes.list_metadata(&ListParams::default()).await else {
            sleep(RENEWAL).await;
            continue;
        };
        let count = u32::try_from(names.items.len().max(1)).unwrap_or(u32::MAX);
        let mut tick = interval(RENEWAL / count);
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for node in names {
            tick.tick().await;
            tokio::spawn(renew(leases.clone(), node.name_any()));
        }
    }
}

async fn renew(leases: Api<Lease>, node: String) {
    let now = MicroTime(Timestamp::now());
    let patch = Patch::Merge(json!({"spec": {"renewTime": now}}));
    let renewed = leases.patch(&node, &PatchParams::default(), &patch).await;
    if let Err(kube::Error::Api(status)) = renewed
        && status.code == 404
    {
        let metadata = ObjectMeta { name: Some(node.clone()), ..ObjectMeta::default() };
        let spec = json!({"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now});
        let lease = Lease { metadata, spec: serde_json::from_value(spec).ok() };
        // The next round tries again.
        drop(leases.create(&PostParams::default(), &lease).await);
    }
}

/// Follows the pods on nodes, and starts a task for each new one.
async fn run_pods(kubelet: Kubelet) {
    let all: Api<Pod> = Api::all(kubelet.client.clone());
    let on_nodes = watcher::Config::default().fields("spec.nodeName!=");
    let mut pods = Box::pin(watcher(all, on_nodes).default_backoff().applied_objects());
    let mut started: BTreeSet<String> = BTreeSet::new();
    loop {
        match pods.try_next().await {
            Ok(Some(pod)) if started.insert(pod.uid().unwrap_or_default()) => {
                tokio::spawn(kubelet.clone().run(pod));
            }
            Ok(Some(pod)) if pod.metadata.deletion_timestamp.is_some() => {
                tokio::spawn(kubelet.clone().delete(pod));
            }
            Ok(None) => return,
            // Another change, or an API server that is away.
            Ok(Some(_)) | Err(_) => {}
        }
    }
}

/// The kubelet of a pod.
#[derive(Clone)]
struct Kubelet {
    client: Client,
    observer: Arc<Observer>,
}

impl Kubelet {
    /// Runs a pod from its binding to its end.
    async fn run(self, pod: Pod) {
        if let Err(error) = self.try_run(&pod).await {
            self.observer.violated(format!("pod `{}` does not run: {error:#}", pod.name_any()));
        }
    }

    async fn try_run(&self, pod: &Pod) -> anyhow::Result<()> {
        if pod.metadata.deletion_timestamp.is_some() {
            return self.try_delete(pod).await;
        }
        let statuses =
            pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone());
        for claim in statuses.into_iter().flatten().filter_map(|status| status.resource_claim_name)
        {
            if !self.prepare(pod, &claim).await? {
                return Ok(());
            }
        }
        self.write_phase(pod, "Running").await?;
        let lifetime = pod.annotations().get(LIFETIME).and_then(|text| text.parse().ok());
        let Some(lifetime) = lifetime else { return Ok(()) };
        sleep(Duration::from_secs(lifetime)).await;
        self.write_phase(pod, "Succeeded").await?;
        if pod.owner_references().is_empty() {
            self.try_delete(pod).await?;
        }
        Ok(())
    }

    /// Reads a claim and writes the driver's part of its status. Returns false if the pod is gone.
    ///
    /// # Errors
    ///
    /// Fails if the pod may not use the claim, or if it is not allocated on the pod's node.
    async fn prepare(&self, pod: &Pod, name: &str) -> anyhow::Result<bool> {
        let claims: Api<ResourceClaim> = self.of_pod(pod);
        let Some(claim) = lasting(|| claims.get(name)).await? else { return Ok(false) };
        let status = claim.status.unwrap_or_default();
        let uid = pod.uid().unwrap_or_default();
        let mut consumers = status.reserved_for.iter().flatten();
        anyhow::ensure!(consumers.any(|it| it.uid == uid), "claim `{name}` is not reserved for it");
        let devices = status.allocation.and_then(|it| it.devices?.results).unwrap_or_default();
        anyhow::ensure!(!devices.is_empty(), "claim `{name}` has no devices");
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        for device in &devices {
            anyhow::ensure!(
                device.pool == node,
                "{} is of `{}`, not `{node}`",
                device.device,
                device.pool
            );
        }
        let ours: Vec<Value> = devices
            .iter()
            .filter(|device| device.driver == DRIVER)
            .map(|it| json!({"driver": it.driver, "pool": it.pool, "device": it.device}))
            .collect();
        let patch = Patch::Merge(json!({"status": {"devices": ours}}));
        let params = PatchParams::default();
        Ok(lasting(|| claims.patch_status(name, &params, &patch)).await?.is_some())
    }

    async fn write_phase(&self, pod: &Pod, phase: &str) -> anyhow::Result<()> {
        let pods: Api<Pod> = self.of_pod(pod);
        let patch = Patch::Merge(json!({"status": {"phase": phase, "podIP": "10.0.0.1"}}));
        let params = PatchParams::default();
        let name = pod.name_any();
        lasting(|| pods.patch_status(&name, &params, &patch)).await?;
        Ok(())
    }

    async fn delete(self, pod: Pod) {
        if let Err(error) = self.try_delete(&pod).await {
            self.observer.violated(format!("pod `{}` is not deleted: {error:#}", pod.name_any()));
        }
    }

    async fn try_delete(&self, pod: &Pod) -> anyhow::Result<()> {
        let pods: Api<Pod> = self.of_pod(pod);
        let now = DeleteParams::default().grace_period(0);
        let name = pod.name_any();
        lasting(|| pods.delete(&name, &now)).await?;
        Ok(())
    }

    fn of_pod<K>(&self, pod: &Pod) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }
}

/// Repeats a request while the API server is away. `None` if the object is gone.
pub(crate) async fn lasting<T, F>(mut request: impl FnMut() -> F) -> anyhow::Result<Option<T>>
where
    F: Future<Output = kube::Result<T>>,
{
    let end = Instant::now() + OUTAGE;
    loop {
        match request().await {
            Ok(answer) => return Ok(Some(answer)),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => sleep(PAUSE).await,
        }
    }
}
