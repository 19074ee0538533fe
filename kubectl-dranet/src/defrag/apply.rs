//! Carries a plan out, one pod at a time, and stops where the cluster does something else.

use super::kept::Kept;
use crate::args::DefragArgs;
use crate::kinds::PODS;
use crate::live::{Cluster, Signals};
use crate::reply::Verb;
use cluster_model::view::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use preemptor::defrag::{Move, Plan};
use preemptor::pods::owner;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// The time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// What was done.
#[derive(Default)]
pub(super) struct Applied {
    /// What happened, for people.
    pub(super) text: String,
    /// Whether all moves went as planned.
    pub(super) is_done: bool,
    /// Why nothing more is known.
    pub(super) error: Option<anyhow::Error>,
}

/// A pod that took the place of another.
struct Successor {
    name: String,
    node: String,
}

/// Evicts the pods of a plan.
pub(super) fn run(args: &DefragArgs, plan: &Plan) -> Applied {
    let mut applied = Applied::default();
    match moved(args, plan, &mut applied.text) {
        Ok(is_done) => applied.is_done = is_done,
        Err(error) => applied.error = Some(error),
    }
    applied
}

/// Returns true if all moves went as planned. Devices are kept until then, also if it is interrupted.
fn moved(args: &DefragArgs, plan: &Plan, text: &mut String) -> anyhow::Result<bool> {
    let cluster = Cluster::connect(&args.source.kube, &args.source.user)?;
    let mut signals = cluster.catch_signals()?;
    let mut kept = Kept::new(&cluster, &mut signals)?;
    let moved = move_all(args, plan, (&cluster, &mut signals, &mut kept), text);
    // The signal that has ended the moves does not end this too.
    let ended = kept.end(&cluster, &mut signals);
    let is_done = moved?;
    ended?;
    Ok(is_done)
}

fn move_all(
    args: &DefragArgs,
    plan: &Plan,
    (cluster, signals, kept): (&Cluster, &mut Signals, &mut Kept),
    text: &mut String,
) -> anyhow::Result<bool> {
    let time = Duration::from_secs(args.timeout.into());
    let all = plan.moves.len();
    for (number, step) in plan.moves.iter().enumerate() {
        let known = owned(cluster, step)?.into_iter().map(|pod| pod.0).collect();
        kept.keep(cluster, signals, step)?;
        evict(cluster, signals, step)?;
        let end = Instant::now() + time;
        let successor = successor(cluster, signals, (step, &known), end)?;
        let Some(Successor { name, node }) = successor else {
            writeln!(
                text,
                "Stopped after {} of {all} moves: the pod that replaces {} has no node after {} s. See its \
                 events; then run the command again.",
                number + 1,
                step.pod.key,
                args.timeout
            )?;
            return Ok(false);
        };
        if node != step.to {
            writeln!(
                text,
                "Stopped after {} of {all} moves: pod {name}, which replaces {}, is on {node}, and not on {} \
                 as planned. Run the command again: it plans from what is there now.",
                number + 1,
                step.pod.key,
                step.to
            )?;
            return Ok(false);
        }
        writeln!(text, "moved {} to {node}: it is pod {name} now", step.pod.key)?;
    }
    Ok(true)
}

/// Asks for the eviction of a pod, which its budgets may refuse.
fn evict(cluster: &Cluster, signals: &mut Signals, step: &Move) -> anyhow::Result<()> {
    let ObjectKey { namespace, name } = &step.pod.key;
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": step.pod.uid}},
    });
    cluster.request_object(signals, PODS, (namespace, name), Verb::Evict(&eviction))?;
    Ok(())
}

/// The pods of the controller of a pod: UID, name, and node if they have one.
fn owned(cluster: &Cluster, step: &Move) -> anyhow::Result<Vec<(String, String, Option<String>)>> {
    let mut found = Vec::new();
    let query = PODS.of(Some(&step.pod.key.namespace), "");
    let read = cluster.read(&query, &mut |text| {
        found.extend(serde_json::from_str::<Pod>(text.get()));
    })?;
    anyhow::ensure!(read.is_ok(), "you may not list pods of `{}`", step.pod.key.namespace);
    Ok(found
        .into_iter()
        .filter(|pod| owner(pod).as_ref() == Some(&step.owner))
        .filter_map(|pod| {
            Some((pod.metadata.uid?, pod.metadata.name?, pod.spec.and_then(|it| it.node_name)))
        })
        .collect())
}

/// Waits until a pod that did not exist before has a node.
fn successor(
    cluster: &Cluster,
    signals: &mut Signals,
    (step, known): (&Move, &BTreeSet<String>),
    end: Instant,
) -> anyhow::Result<Option<Successor>> {
    loop {
        let new = owned(cluster, step)?
            .into_iter()
            .find(|(uid, _, node)| !known.contains(uid) && node.is_some());
        if let Some((_, name, Some(node))) = new {
            return Ok(Some(Successor { name, node }));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        cluster.pause_or_end(signals, PAUSE)?;
    }
}
