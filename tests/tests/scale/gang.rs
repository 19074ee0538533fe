//! A job of many pods on one fabric, and an equal one by claims and a node selector that somebody has
//! written: the time until the last pod is bound.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::api::{batch::v1::Job, core::v1::Node};
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
/// Measures one after the other.
pub(crate) async fn measure(
    (scope, observer): (&Scope, &Arc<Observer>),
    size: Size,
    bars: &mut Bars,
) -> anyhow::Result<()> {
    let gangs = Gangs { scope, observer, fabric: largest_fabric(scope).await? };
    // Half of the nodes have the fabric, with four GPUs each or more.
    let pods = PODS.min(size.nodes);
    let by_hand = gang_by_hand("gang-by-hand", pods, &gangs.fabric)?;
    let by_hand = gangs.bound(&by_hand, pods).await?;
    let ours = gangs.bound(&gang("gang", pods)?, pods).await?;
    report(&format!(
        "a job of {pods} pods on one fabric: {ours:.1?}; by claims and a node selector by hand: {by_hand:.1?}"
    ));
    let ratio = ours.as_secs_f64() / by_hand.as_secs_f64();
    bars.at_most("the job's time by that of the one by hand", ratio, TIMES_MAX);
    Ok(())
}

/// The fabric of most nodes.
async fn largest_fabric(scope: &Scope) -> anyhow::Result<String> {
    let nodes: Api<Node> = Api::all(scope.client());
    let mut fabrics: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes.list_metadata(&ListParams::default().labels(FABRIC)).await? {
        if let Some(fabric) = node.labels().get(FABRIC) {
            *fabrics.entry(fabric.clone()).or_default() += 1;
        }
    }
    let largest = fabrics.into_iter().max_by_key(|(_, nodes)| *nodes);
    Ok(largest.context("no node has a fabric")?.0)
}

struct Gangs<'a> {
    scope: &'a Scope,
    observer: &'a Arc<Observer>,
    fabric: String,
}

impl Gangs<'_> {
    /// Creates a job, and deletes it when all its pods are bound. Returns the time until then.
    async fn bound(&self, job: &Job, pods: usize) -> anyhow::Result<Duration> {
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
        jobs.delete(&name, &DeleteParams::background()).await?;
        nothing_held(self.observer).await?;
        Ok(last.duration_since(begin))
    }
}
