//! Pods and jobs that arrive at a steady rate.

use std::{pin::pin, time::Duration};

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{Api, api::PostParams};
use tests::{Scope, SeededRng};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::{
    lifetimes::Lifetimes,
    shapes::{SHAPES, job},
};

/// One of so many arrivals is a job.
const JOBS: u64 = 25;
/// The most pods of a job.
const PODS_OF_JOB: usize = 4;

/// What arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    /// Pods without a job that were created.
    pub(crate) pods: usize,
    /// Those of them with an annotation, and pods of jobs.
    pub(crate) annotated: usize,
    /// Jobs.
    pub(crate) jobs: usize,
    /// Requests that were refused, with restarts of admission and of the API server.
    pub(crate) refused: usize,
}

/// Creates pods and jobs until `stop`. Their names begin with the prefix.
pub(crate) async fn arrive(
    (scope, prefix): (&Scope, &str),
    per_second: f64,
    mut random: SeededRng,
    stop: impl Future,
) -> anyhow::Result<Arrived> {
    let lifetimes = Lifetimes::from_environment()?;
    let pods: Api<Pod> = scope.api();
    let jobs: Api<Job> = scope.api();
    let mut tick = interval(Duration::from_secs_f64(1.0 / per_second));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut stop, mut arrived) = (pin!(stop), Arrived::default());
    let mut requests: JoinSet<kube::Result<()>> = JoinSet::new();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = &mut stop => break,
        }
        let number = arrived.pods + arrived.jobs;
        let lifetime = lifetimes.pick(&mut random);
        if random.one_in(JOBS) {
            let count = 2 + random.index(PODS_OF_JOB - 1);
            let (jobs, job) =
                (jobs.clone(), job(&format!("{prefix}-job-{number}"), count, lifetime)?);
            arrived.jobs += 1;
            arrived.annotated += count;
            requests
                .spawn(async move { jobs.create(&PostParams::default(), &job).await.map(drop) });
        } else {
            let shape = *random.pick(&SHAPES);
            let (pods, pod) =
                (pods.clone(), shape.pod_for(&format!("{prefix}-{number}"), lifetime)?);
            arrived.pods += 1;
            arrived.annotated += usize::from(shape.is_annotated());
            requests
                .spawn(async move { pods.create(&PostParams::default(), &pod).await.map(drop) });
        }
    }
    while let Some(created) = requests.join_next().await {
        arrived.refused += usize::from(created?.is_err());
    }
    Ok(arrived)
}
