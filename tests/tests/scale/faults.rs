//! Faults, one after another while pods come and go, and what each costs: the time until a pod that is created
//! meanwhile is bound.

mod api_server;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::{Namespace, Pod, Secret},
    resource::v1::ResourceSlice,
};
use kube::{
    Api, Resource,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tests::{
    Check, Scope, eventually, figures::percentile, installation::NAMESPACE, setting, suite::report,
};

use super::{
    course::Course,
    kubelets::lasting,
    observer::{BOUND_MAX, Observer},
    shapes::SHAPES,
    whole::CONTROLLER,
};

/// Longer than the leases of our programs here.
const BEYOND_LEASE: Duration = Duration::from_secs(20);
/// The API server does not answer for so long.
const STALL: Duration = Duration::from_secs(3);
/// The API server refuses our requests, fails or is slow for so long.
const TROUBLE: Duration = Duration::from_secs(6);
/// By how much a clock is wrong, in seconds.
const CLOCK: i64 = 600;

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Nothing,
    KillAdmission,
    PauseLeadingAdmission,
    CutOffLeadingAdmission,
    KillFabricController,
    PauseLeadingFabricController,
    CutOffLeadingFabricController,
    KillPreemptor,
    PausePreemptor,
    KillExtender,
    PauseExtender,
    CutConnections,
    ClockAhead,
    ClockBehind,
    DeleteCertificates,
    KillScheduler,
    KillApiServer,
    StallApiServer,
    RefuseRequests,
    FailWrites,
    SlowWrites,
    KillEtcd,
    Compact,
    LoseNode,
    DeleteSlice,
}

/// All of them, and what a person calls each.
const ALL: [(Fault, &str); 25] = [
    (Fault::Nothing, "nothing"),
    (Fault::KillAdmission, "admission is killed"),
    (Fault::PauseLeadingAdmission, "admission's leader stops, then goes on"),
    (Fault::CutOffLeadingAdmission, "admission's leader is cut off from kube-apiserver"),
    (Fault::KillFabricController, "fabric-controller is killed"),
    (Fault::PauseLeadingFabricController, "fabric-controller's leader stops, then goes on"),
    (Fault::CutOffLeadingFabricController, "fabric-controller's leader is cut off"),
    (Fault::KillPreemptor, "preemptor is killed"),
    (Fault::PausePreemptor, "preemptor stops, then goes on"),
    (Fault::KillExtender, "the extender is killed"),
    (Fault::PauseExtender, "the extender hangs"),
    (Fault::CutConnections, "all connections to kube-apiserver are cut"),
    (Fault::ClockAhead, "programs start with clocks 10 minutes ahead"),
    (Fault::ClockBehind, "programs start with clocks 10 minutes behind"),
    (Fault::DeleteCertificates, "the webhook's certificates are deleted"),
    (Fault::KillScheduler, "kube-scheduler is killed"),
    (Fault::KillApiServer, "kube-apiserver is killed"),
    (Fault::StallApiServer, "kube-apiserver answers nothing"),
    (Fault::RefuseRequests, "kube-apiserver answers us with 429"),
    (Fault::FailWrites, "kube-apiserver answers our writes with 500"),
    (Fault::SlowWrites, "kube-apiserver takes a second for our writes"),
    (Fault::KillEtcd, "etcd is killed"),
    (Fault::Compact, "etcd is compacted, and kube-apiserver killed"),
    (Fault::LoseNode, "a node is lost with its pods"),
    (Fault::DeleteSlice, "slices of a running driver are deleted"),
];

/// Injects each fault so many times (`$DRANET_SCALE_FAULTS`), in random order, and prints what each costs.
///
/// # Errors
///
/// Fails if the cluster does not recover from one.
pub(crate) async fn inject(
    course: &mut Course<'_, '_>,
    scope: &Scope,
    observer: &Observer,
) -> anyhow::Result<()> {
    let rounds: usize = setting("DRANET_SCALE_FAULTS", 1)?;
    let mut times: BTreeMap<(Fault, &str), Vec<Duration>> = BTreeMap::new();
    for round in 0..rounds {
        let mut left = ALL.to_vec();
        while !left.is_empty() {
            let (fault, name) = left.swap_remove(course.random.index(left.len()));
            let number = round * ALL.len() + left.len();
            let probe = Probe { scope, observer, name: format!("probe-{number}") };
            let (took, ()) =
                tokio::try_join!(probe.bound(), course.fail(fault)).with_context(|| name)?;
            times.entry((fault, name)).or_default().push(took);
        }
        report(&format!("{} of {rounds} rounds of faults", round + 1));
    }
    for ((_, name), times) in &mut times {
        let [p50, p99] = [50, 99].map(|percent| percentile(times, percent));
        report(&format!(
            "  {name:52} {:4} times, a pod of that moment is bound after p50 {p50:8.2?} p99 {p99:8.2?}",
            times.len(),
        ));
    }
    Ok(())
}

/// A pod that is created while something fails, in a namespace of its own: it needs a template that no pod had
/// before.
struct Probe<'a> {
    scope: &'a Scope,
    observer: &'a Observer,
    name: String,
}

impl Probe<'_> {
    /// Creates it, and returns the time until it is bound.
    async fn bound(&self) -> anyhow::Result<Duration> {
        let client = self.scope.client();
        let place = format!("{}-{}", self.scope.namespace(), self.name);
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let metadata = ObjectMeta { name: Some(place.clone()), ..ObjectMeta::default() };
        create(&namespaces, &Namespace { metadata, ..Namespace::default() }).await?;
        let begin = Instant::now();
        let pods: Api<Pod> = Api::namespaced(client, &place);
        create(&pods, &SHAPES[0].pod_for(&self.name, Duration::from_secs(1))?).await?;
        eventually(BOUND_MAX, async || {
            let steps = self.observer.pod(&place, &self.name);
            let is_bound = steps.is_some_and(|steps| steps.bound.is_some());
            Ok(Check::that(is_bound, || format!("pod `{place}/{}` has no node", self.name)))
        })
        .await?;
        let took = begin.elapsed();
        let delete =
            || async { namespaces.delete(&place, &DeleteParams::default()).await.map(drop) };
        lasting(delete).await?;
        Ok(took)
    }
}

/// Creates an object, however often that fails. A request whose answer was lost has been served.
async fn create<K>(api: &Api<K>, object: &K) -> anyhow::Result<()>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let params = PostParams::default();
    lasting(async || match api.create(&params, object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop),
    })
    .await?;
    Ok(())
}

impl Course<'_, '_> {
    /// Lets something fail. Programs that are killed start again at once, as their kubelet would start them.
    async fn fail(&mut self, fault: Fault) -> anyhow::Result<()> {
        let client = self.plane.client();
        match fault {
            Fault::Nothing => Ok(()),
            Fault::KillAdmission => {
                let one = self.random.index(self.installation.replicas().len());
                self.replace_admission(one).await
            }
            Fault::PauseLeadingAdmission => {
                let leader = self.installation.leading_replica().await?;
                self.installation.replicas()[leader].process().pause(BEYOND_LEASE).await
            }
            Fault::CutOffLeadingAdmission => {
                let leader = self.installation.leading_replica().await?;
                let pid = self.installation.replicas()[leader].process().pid();
                self.lines.cut_off(pid, BEYOND_LEASE).await
            }
            Fault::KillFabricController => {
                let leader = self.installation.leading_fabric_controller().await?;
                self.replace_fabric_controller(leader).await
            }
            Fault::PauseLeadingFabricController => {
                let leader = self.installation.leading_fabric_controller().await?;
                self.installation.fabric_controllers()[leader].process().pause(BEYOND_LEASE).await
            }
            Fault::CutOffLeadingFabricController => {
                let leader = self.installation.leading_fabric_controller().await?;
                let pid = self.installation.fabric_controllers()[leader].process().pid();
                self.lines.cut_off(pid, BEYOND_LEASE).await
            }
            Fault::KillPreemptor => self.replace_preemptor().await,
            Fault::PausePreemptor => {
                self.installation.preemptors()[0].process().pause(BEYOND_LEASE).await
            }
            Fault::KillExtender => self.installation.restart_plain_extender(&CONTROLLER).await,
            Fault::PauseExtender => {
                self.installation.extender()?.process().pause(BEYOND_LEASE).await
            }
            Fault::CutConnections => {
                self.lines.cut();
                Ok(())
            }
            Fault::ClockAhead => self.restart_with_clock(CLOCK).await,
            Fault::ClockBehind => self.restart_with_clock(-CLOCK).await,
            Fault::DeleteCertificates => self.delete_certificates().await,
            Fault::KillScheduler => self.plane.restart_scheduler(&self.scheduler).await,
            Fault::KillApiServer => self.plane.restart_apiserver().await,
            Fault::StallApiServer => self.plane.freeze_apiserver(STALL).await,
            Fault::RefuseRequests => api_server::refuse(&client, TROUBLE).await,
            Fault::FailWrites => api_server::fail_writes(&client, TROUBLE).await,
            Fault::SlowWrites => api_server::slow_writes(&client, TROUBLE).await,
            Fault::KillEtcd => self.plane.restart_etcd().await,
            Fault::Compact => {
                self.plane.compact_etcd().await?;
                self.plane.restart_apiserver().await
            }
            Fault::LoseNode => self.lose().await,
            Fault::DeleteSlice => self.delete_slices().await,
        }
    }

    /// Leaders start again with a wrong clock, which they have until they are killed.
    async fn restart_with_clock(&mut self, ahead: i64) -> anyhow::Result<()> {
        self.installation.set_clock_ahead(ahead);
        let leader = self.installation.leading_replica().await?;
        self.replace_admission(leader).await?;
        let leader = self.installation.leading_fabric_controller().await?;
        self.replace_fabric_controller(leader).await?;
        self.replace_preemptor().await?;
        self.installation.set_clock_ahead(0);
        Ok(())
    }

    /// Empties the Secret with the certificate and its authority, as somebody does who applies it again.
    async fn delete_certificates(&self) -> anyhow::Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.plane.client(), NAMESPACE);
        let empty = Patch::Merge(json!({"data": null}));
        secrets.patch("admission-certificates", &PatchParams::default(), &empty).await?;
        Ok(())
    }

    /// A node goes with its pods, as if its power had failed; another one comes.
    async fn lose(&mut self) -> anyhow::Result<()> {
        if self.copies.is_empty() {
            return Ok(());
        }
        let node = self.copies.swap_remove(self.random.index(self.copies.len()));
        self.installation.remove_node(&node).await?;
        // What kube-controller-manager does after a while with pods of a node that is gone.
        self.delete_pods_of(&node).await?;
        self.join().await
    }

    /// Deletes what the driver of the first node has published, and waits until it has published it again.
    async fn delete_slices(&self) -> anyhow::Result<()> {
        let slices: Api<ResourceSlice> = Api::all(self.plane.client());
        let node = &self.kinds[0];
        let own =
            ListParams::default().fields(&format!("spec.nodeName={node},spec.driver=dra.net"));
        slices.delete_collection(&DeleteParams::default(), &own).await?;
        eventually(BOUND_MAX, async || {
            let found = slices.list(&own).await?.items.len();
            Ok(Check::that(found > 0, || format!("node `{node}` publishes no NICs")))
        })
        .await
    }
}
