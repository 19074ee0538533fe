//! Random scenarios: pods of several priorities and sizes, gangs, budgets, arrivals in between, and the
//! death of the leader at any time. Every eviction is followed by its preemptor bound aligned; nobody of
//! equal or higher priority is touched, no budget is broken, and a gang leaves as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually, installation::Installation, random::Random, setting,
};

use super::site::{
    GPUS, SOON, clear, create, events, is_aligned, names, node, nothing_kept, pod, report, rules,
    with_nodes,
};

/// The variable that requests more scenarios than the default.
const SCENARIOS_VARIABLE: &str = "DRANET_PREEMPTIONS";
const SCENARIOS: u64 = 20;
const NODES: usize = 2;
/// The label of pods that are parts of one job.
const JOB_SET: &str = "jobset.sigs.k8s.io/jobset-name";
/// The classes, with their priorities.
const CLASSES: [(Option<&str>, i32); 3] = [(None, 0), (Some("middle"), 500), (Some("high"), 1000)];

/// A pod of a scenario.
#[derive(Clone, Debug)]
struct Planned {
    class: Option<&'static str>,
    priority: i32,
    gpus: usize,
    is_guarded: bool,
    /// The job that loses all its pods together.
    job: Option<String>,
}

pub(super) async fn every_eviction_leads_to_an_aligned_pod(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let scenarios: u64 = setting(SCENARIOS_VARIABLE, SCENARIOS)?;
    let seed: u64 = setting("DRANET_SEED", 7)?;
    with_nodes(plane, NODES, async |scope, installation| {
        installation.start_preemptors(2, &[]).await?;
        let (mut next, mut evicted) = (2, 0);
        for scenario in 0..scenarios {
            let mut random =
                Random((seed ^ (scenario << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            evicted += one(scope, installation, &mut random, &mut next)
                .await
                .with_context(|| format!("scenario {scenario} of DRANET_SEED={seed}"))?;
            clear(scope).await?;
        }
        let kills = next - 2;
        report(&format!("{evicted} evictions and {kills} kills in {scenarios} scenarios"));
        anyhow::ensure!(evicted > 0, "nobody was evicted");
        Ok(())
    })
    .await
}

/// Runs a scenario, and checks what was evicted. Returns how many pods were.
async fn one(
    scope: &Scope,
    installation: &mut Installation<'_>,
    random: &mut Random,
    next: &mut usize,
) -> anyhow::Result<usize> {
    let mut all: BTreeMap<String, Planned> = BTreeMap::new();
    guard(scope).await?;
    let mut left = NODES * GPUS;
    while left > 0 {
        let planned = draw(random, left.min(2), 0..2);
        let is_gang = left >= 2 * planned.gpus && random.below(4) == 0;
        let job = is_gang.then(|| format!("j{}", all.len()));
        for _ in 0..if is_gang { 2 } else { 1 } {
            left -= planned.gpus;
            add(scope, &mut all, Planned { job: job.clone(), ..planned.clone() }).await?;
        }
    }
    running(scope, &all).await?;
    only_whole_jobs(scope, &mut all).await?;
    for _ in 0..=random.below(3) {
        let planned = Planned { is_guarded: false, ..draw(random, GPUS, 1..3) };
        if random.below(3) == 0 {
            add_gang(scope, &mut all, planned).await?;
        } else {
            add(scope, &mut all, planned).await?;
        }
        if random.below(2) == 0 {
            // Another one wants what becomes free.
            let rival = Planned { class: None, priority: 0, gpus: 1, is_guarded: false, job: None };
            add(scope, &mut all, rival).await?;
        }
        if random.below(2) == 0 {
            let leader = installation.leading_preemptor().await?;
            happened(scope, random.below(5)).await?;
            installation.kill_preemptor(leader);
            installation.start_preemptor(*next, &[]).await?;
            *next += 1;
        }
    }
    installation.leading_preemptor().await?;
    settled(scope, &all).await?;
    check(scope, &all).await
}

/// A pod of up to this number of GPUs and one of these classes.
fn draw(random: &mut Random, most: usize, classes: Range<usize>) -> Planned {
    let (class, priority) = *random.pick(&CLASSES[classes]);
    let gpus =
        if most >= GPUS && random.below(4) == 0 { GPUS } else { 1 + random.below(most.min(2)) };
    Planned { class, priority, gpus, is_guarded: random.below(5) == 0, job: None }
}

/// Guarded pods may not be disrupted.
async fn guard(scope: &Scope) -> anyhow::Result<()> {
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "guard"},
        "spec": {"minAvailable": 100, "selector": {"matchLabels": {"guarded": "true"}}},
    }))?;
    scope.api::<PodDisruptionBudget>().create(&PostParams::default(), &budget).await?;
    Ok(())
}

async fn add(
    scope: &Scope,
    all: &mut BTreeMap<String, Planned>,
    planned: Planned,
) -> anyhow::Result<()> {
    let name = format!("p{}", all.len());
    create(scope, object(&name, &planned)).await?;
    all.insert(name, planned);
    Ok(())
}

/// Adds two pods that must be on one fabric.
async fn add_gang(
    scope: &Scope,
    all: &mut BTreeMap<String, Planned>,
    planned: Planned,
) -> anyhow::Result<()> {
    let gang = format!("g{}", all.len());
    for _ in 0..2 {
        let name = format!("p{}", all.len());
        let mut pod = object(&name, &planned);
        pod["metadata"]["annotations"]["dranet.io/fabric"] = gang.as_str().into();
        pod["metadata"]["annotations"]["dranet.io/fabric-size"] = "2".into();
        create(scope, pod).await?;
        all.insert(name, planned.clone());
    }
    Ok(())
}

fn object(name: &str, planned: &Planned) -> Value {
    let mut pod = pod(name, planned.class, planned.gpus);
    pod["metadata"]["labels"]["guarded"] = planned.is_guarded.to_string().into();
    if let Some(job) = &planned.job {
        pod["metadata"]["labels"][JOB_SET] = job.as_str().into();
    }
    pod
}

/// Waits until each pod has a node and runs, or has been tried.
async fn running(scope: &Scope, all: &BTreeMap<String, Planned>) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let pods = scope.api::<Pod>().list(&ListParams::default()).await?;
        let open = pods.iter().filter(|pod| !is_running(pod) && !is_unschedulable(pod)).count();
        let is_there = pods.items.len() == all.len();
        Ok(Check::that(open == 0 && is_there, || format!("{open} pods were not tried")))
    })
    .await
}

/// A job of which a pod found no room does not run, so one of its pods can leave alone.
async fn only_whole_jobs(scope: &Scope, all: &mut BTreeMap<String, Planned>) -> anyhow::Result<()> {
    let pods = scope.api::<Pod>().list(&ListParams::default()).await?;
    let waiting = pods.iter().filter(|pod| !is_running(pod)).map(ResourceExt::name_any);
    let parts: BTreeSet<String> = waiting.filter_map(|name| all.get(&name)?.job.clone()).collect();
    for planned in all.values_mut() {
        planned.job = planned.job.take().filter(|job| !parts.contains(job));
    }
    Ok(())
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| it.type_ == "PodScheduled" && it.status == "False")
}

/// Waits until a preemption has come this far, or nothing is to be done.
async fn happened(scope: &Scope, step: usize) -> anyhow::Result<()> {
    let mut looks = 0;
    eventually(SOON, async || {
        looks += 1;
        let pods = scope.api::<Pod>().list(&ListParams::default()).await?;
        let ends = pods.iter().any(|pod| pod.metadata.deletion_timestamp.is_some());
        let kept = rules(scope).await?.len();
        let is_done = match step {
            0 => kept > 0,
            1 => kept > 1,
            2 => ends,
            3 => kept > 0 && ends,
            _ => !events(scope, "Preempted").await?.is_empty(),
        };
        Ok(Check::that(is_done || looks > 60, || "no preemption begins".to_owned()))
    })
    .await
}

/// Waits until no device is kept, none ends, and no pod waits for which others could leave.
async fn settled(scope: &Scope, all: &BTreeMap<String, Planned>) -> anyhow::Result<()> {
    let mut quiet = 0;
    eventually(SOON, async || {
        let pods = scope.api::<Pod>().list(&ListParams::default()).await?;
        let ends = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).count();
        let kept = rules(scope).await?.len();
        let untried =
            pods.iter().filter(|pod| node(pod).is_none() && !is_unschedulable(pod)).count();
        quiet = if ends + kept + untried == 0 { quiet + 1 } else { 0 };
        let waits: Vec<_> = pods
            .iter()
            .filter(|pod| node(pod).is_none())
            .filter_map(|pod| Some((pod.name_any(), all.get(&pod.name_any())?.priority)))
            .collect();
        // A round of preemptor takes a second, and a look here a twentieth at least.
        Ok(Check::that(quiet > 40, || format!("{kept} kept, {ends} end, {waits:?} wait")))
    })
    .await
}

async fn check(scope: &Scope, all: &BTreeMap<String, Planned>) -> anyhow::Result<usize> {
    nothing_kept(scope).await?;
    let there = names(scope).await?;
    let evicted: BTreeSet<&String> = all.keys().filter(|name| !there.contains(*name)).collect();
    for job in evicted.iter().filter_map(|victim| all[*victim].job.as_ref()) {
        let mut left =
            all.iter().filter(|(name, it)| it.job.as_ref() == Some(job) && there.contains(*name));
        anyhow::ensure!(left.next().is_none(), "only a part of {job} was evicted: {evicted:?}");
    }
    let said = events(scope, "Preempted").await?;
    for victim in &evicted {
        let planned = &all[*victim];
        anyhow::ensure!(!planned.is_guarded, "{victim} was evicted in spite of its budget");
        let note = said.get(*victim).with_context(|| format!("{victim} left without an event"))?;
        let whole = note.strip_prefix("evicted for ").and_then(|it| it.split_once(" of priority "));
        let (preemptors, _) = whole.with_context(|| note.clone())?;
        for name in preemptors.replace(" and ", ", ").split(", ") {
            let name = name.rsplit('/').next().context("a name")?.to_owned();
            let winner = all.get(&name).with_context(|| format!("`{name}` of `{note}`"))?;
            anyhow::ensure!(winner.priority > planned.priority, "{victim} for {name}: {all:?}");
            // It may itself have been evicted since, for one of a higher priority.
            if !evicted.contains(&name) {
                is_aligned(scope, &name, winner.gpus).await.with_context(|| note.clone())?;
            }
        }
    }
    let stopped = events(scope, "PreemptionStopped").await?;
    let in_vain = stopped.values().filter(|note| !note.contains("before anyone was evicted"));
    let in_vain: Vec<&String> = in_vain.collect();
    anyhow::ensure!(in_vain.is_empty(), "{in_vain:?}");
    Ok(evicted.len())
}
