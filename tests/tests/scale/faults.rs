//! Faults, one after another while pods come and go, and what each costs: the time until a pod that is created
//! meanwhile is bound.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceSlice};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use tests::{Check, Scope, eventually, figures::percentile, setting, suite::report};

use super::{
    course::Course,
    kubelets::lasting,
    observer::{BOUND_MAX, Observer},
    shapes::SHAPES,
    whole::{ADMISSION, CONTROLLER},
};

/// Longer than the leases of our programs here.
const BEYOND_LEASE: Duration = Duration::from_secs(8);
/// The API server does not answer for so long.
const STALL: Duration = Duration::from_secs(3);

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Nothing,
    KillAdmission,
    PauseLeadingAdmission,
    KillFabricController,
    PauseLeadingFabricController,
    KillPreemptor,
    KillExtender,
    KillScheduler,
    KillApiServer,
    StallApiServer,
    KillEtcd,
    LoseNode,
    DeleteSlice,
}

const ALL: [Fault; 13] = [
    Fault::Nothing,
    Fault::KillAdmission,
    Fault::PauseLeadingAdmission,
    Fault::KillFabricController,
    Fault::PauseLeadingFabricController,
    Fault::KillPreemptor,
    Fault::KillExtender,
    Fault::KillScheduler,
    Fault::KillApiServer,
    Fault::StallApiServer,
    Fault::KillEtcd,
    Fault::LoseNode,
    Fault::DeleteSlice,
];

impl Fault {
    /// What a person calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::KillAdmission => "admission is killed",
            Self::PauseLeadingAdmission => "admission's leader stops, then goes on",
            Self::KillFabricController => "fabric-controller is killed",
            Self::PauseLeadingFabricController => "fabric-controller's leader stops, then goes on",
            Self::KillPreemptor => "preemptor is killed",
            Self::KillExtender => "the extender is killed",
            Self::KillScheduler => "kube-scheduler is killed",
            Self::KillApiServer => "kube-apiserver is killed",
            Self::StallApiServer => "kube-apiserver answers nothing",
            Self::KillEtcd => "etcd is killed",
            Self::LoseNode => "a node is lost with its pods",
            Self::DeleteSlice => "slices of a running driver are deleted",
        }
    }
}

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
    let mut times: BTreeMap<Fault, Vec<Duration>> = BTreeMap::new();
    for round in 0..rounds {
        let mut left = ALL.to_vec();
        while !left.is_empty() {
            let fault = left.swap_remove(course.random.index(left.len()));
            let number = round * ALL.len() + left.len();
            let probe = Probe { scope, observer, name: format!("probe-{number}") };
            let (took, ()) = tokio::try_join!(probe.bound(), course.fail(fault))
                .with_context(|| fault.name())?;
            times.entry(fault).or_default().push(took);
        }
        report(&format!("{} of {rounds} rounds of faults", round + 1));
    }
    for (fault, times) in &mut times {
        let [p50, p99] = [50, 99].map(|percent| percentile(times, percent));
        report(&format!(
            "  {:48} {:4} times, a pod of that moment is bound after p50 {p50:8.2?} p99 {p99:8.2?}",
            fault.name(),
            times.len(),
        ));
    }
    Ok(())
}

/// A pod that is created while something fails.
struct Probe<'a> {
    scope: &'a Scope,
    observer: &'a Observer,
    name: String,
}

impl Probe<'_> {
    /// Creates it, and returns the time until it is bound.
    async fn bound(&self) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        let pods: Api<Pod> = self.scope.api();
        let pod = SHAPES[0].pod_for(&self.name, Duration::from_secs(1))?;
        // A request whose answer was lost has been served.
        let made = async || match pods.create(&PostParams::default(), &pod).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop),
        };
        lasting(made).await?.context("the scope is there")?;
        eventually(BOUND_MAX, async || {
            let steps = self.observer.pod(self.scope.namespace(), &self.name);
            let is_bound = steps.is_some_and(|steps| steps.bound.is_some());
            Ok(Check::that(is_bound, || format!("pod `{}` has no node", self.name)))
        })
        .await?;
        Ok(begin.elapsed())
    }
}

impl Course<'_, '_> {
    /// Lets something fail. Programs that are killed start again at once, as their kubelet would start them.
    async fn fail(&mut self, fault: Fault) -> anyhow::Result<()> {
        let index = self.next_replica;
        self.next_replica += 1;
        let installation = &mut *self.installation;
        match fault {
            Fault::Nothing => {}
            Fault::KillAdmission => {
                let one = self.random.index(installation.replicas().len());
                installation.kill_replica(one).await?;
                installation.start_replica(index, &ADMISSION).await?;
            }
            Fault::PauseLeadingAdmission => {
                let leader = installation.leading_replica().await?;
                installation.replicas()[leader].process().pause(BEYOND_LEASE).await?;
            }
            Fault::KillFabricController => {
                let leader = installation.leading_fabric_controller().await?;
                installation.kill_fabric_controller(leader);
                installation.start_fabric_controller(index, &CONTROLLER).await?;
            }
            Fault::PauseLeadingFabricController => {
                let leader = installation.leading_fabric_controller().await?;
                installation.fabric_controllers()[leader].process().pause(BEYOND_LEASE).await?;
            }
            Fault::KillPreemptor => {
                installation.kill_preemptor(0);
                installation.start_preemptor(index, &CONTROLLER).await?;
            }
            Fault::KillExtender => installation.restart_plain_extender(&CONTROLLER).await?,
            Fault::KillScheduler => self.plane.restart_scheduler(&self.scheduler).await?,
            Fault::KillApiServer => self.plane.restart_apiserver().await?,
            Fault::StallApiServer => self.plane.freeze_apiserver(STALL).await?,
            Fault::KillEtcd => self.plane.restart_etcd().await?,
            Fault::LoseNode => self.lose().await?,
            Fault::DeleteSlice => self.delete_slices().await?,
        }
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
