//! A job of many pods on one fabric, and an equal one by claims and a node selector that somebody has
//! written: the time until the last pod is bound.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Node, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use tests::{Check, Scope, eventually, suite::report};

use super::{
    bars::Bars,
    compare::{LONG, nothing_held},
    observer::{FABRIC, Observer},
    shapes::{gang, gang_by_hand},
    size::Size,
};

/// The most pods of the job.
const PODS: usize = 512;
/// The most time of the job, by that of the one that somebody has written.
const TIMES_MAX: f64 = 1.5;
/// Measures one after the other, on the fabric that fabric-controller chooses.
pub(crate) async fn measure(
    (scope, observer): (&Scope, &Arc<Observer>),
    size: Size,
    bars: &mut Bars,
) -> anyhow::Result<()> {
    let gangs = Gangs { scope, observer };
    // Each fabric has a sixth of the nodes or more, with four GPUs each or more.
    let pods = PODS.min(size.nodes / 2);
    let ours = gang("gang", pods)?;
    let time = gangs.create(&ours, pods).await?;
    let fabric = gangs.fabric(&ours).await?;
    gangs.delete(&ours).await?;
    let by_hand = gang_by_hand("gang-by-hand", pods, &fabric)?;
    let time_by_hand = gangs.create(&by_hand, pods).await?;
    gangs.delete(&by_hand).await?;
    report(&format!(
        "a job of {pods} pods on one fabric: {time:.1?}; by claims and a node selector by hand: {time_by_hand:.1?}"
    ));
    let ratio = time.as_secs_f64() / time_by_hand.as_secs_f64();
    bars.at_most("the job's time by that of the one by hand", ratio, TIMES_MAX);
    Ok(())
}

struct Gangs<'a> {
    scope: &'a Scope,
    observer: &'a Arc<Observer>,
}

impl Gangs<'_> {
    /// Creates a job. Returns the time until all its pods were bound.
    async fn create(&self, job: &Job, pods: usize) -> anyhow::Result<Duration> {
        let (jobs, name): (Api<Job>, _) = (self.scope.api(), job.name_any());
        let begin = Instant::now();
        jobs.create(&PostParams::default(), job).await?;
        let last = eventually(LONG, async || {
            Ok(match self.observer.all_bound(&name, pods) {
                Ok(last) => Check::Done(last),
                Err(bound) => {
                    Check::NotYet(format!("{bound} of {pods} pods of `{name}` are bound"))
                }
            })
        })
        .await?;
        Ok(last.duration_since(begin))
    }

    /// The fabric of a job's pods.
    async fn fabric(&self, job: &Job) -> anyhow::Result<String> {
        let pods: Api<Pod> = self.scope.api();
        let of_job = ListParams::default().labels(&format!("job-name={}", job.name_any())).limit(1);
        let pod = pods.list(&of_job).await?.items.pop().context("it has a pod")?;
        let node = pod.spec.and_then(|spec| spec.node_name).context("it is bound")?;
        let node = Api::<Node>::all(self.scope.client()).get(&node).await?;
        node.labels().get(FABRIC).cloned().context("its node has a fabric")
    }

    async fn delete(&self, job: &Job) -> anyhow::Result<()> {
        let jobs: Api<Job> = self.scope.api();
        jobs.delete(&job.name_any(), &DeleteParams::background()).await?;
        nothing_held(self.observer).await
    }
}
