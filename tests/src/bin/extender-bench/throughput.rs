//! Measures how many pods per second kube-scheduler binds: in turn with our extender, with one that
//! does nothing, and without any.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use tests::{
    Check, ControlPlane, Extender, Options, SchedulerConfig, Scope, eventually,
    figures::{cpu_times, say, say_cpu},
    installation::Installation,
    machine::H100,
    random::Random,
    with_scope,
};
use tokio::time::timeout;

use crate::{
    Args,
    cluster::{self, Devices, SHAPES, TOGETHER},
    idle::Idle,
};

/// The measured scheduler; its pods wait until it is started.
const SCHEDULER: &str = "measured";
const LONG: Duration = Duration::from_mins(5);

/// Measures the scheduler with each of the three.
pub(crate) async fn measure(args: Args) -> anyhow::Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let kind = installation.machine("h100", H100).await?;
        let copy = async |number: usize| installation.add_copy(&kind, &format!("n{number}")).await;
        let copies = stream::iter(1..args.scheduler_nodes).map(copy).buffer_unordered(TOGETHER);
        let nodes: Vec<String> = copies.try_collect().await?;
        let devices = Devices::new(plane.client(), &kind).await?;
        cluster::use_half(scope, &nodes, &devices, &mut Random(0x5eed)).await?;
        for count in SHAPES {
            let template = json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": {"name": format!("shape-{count}")},
                "spec": {"spec": cluster::spec(count)},
            });
            scope.apply(serde_json::from_value(template)?).await?;
        }
        let idle = Idle::start().await?;
        let ours = installation.start_plain_extender(&["--log=warn"]).await?;
        let extenders = [
            ("no extender", None),
            ("an extender that does nothing", Some(format!("http://{}", idle.address))),
            ("the extender", Some(format!("http://{ours}"))),
        ];
        let mut rates: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for round in 0..args.repeats {
            // In another order each time, since the rate falls during the run.
            for step in 0..extenders.len() {
                let (name, url) = &extenders[(round + step) % extenders.len()];
                let rate = bind(&plane, scope, url.as_deref(), args.pods).await?;
                say(&format!("{name}: {rate:.1} pods per second"));
                rates.entry(name).or_default().push(rate);
            }
        }
        let mut median = |name: &str| {
            let rates = rates.get_mut(name)?;
            rates.sort_by(f64::total_cmp);
            rates.get(rates.len() / 2).copied()
        };
        let ours = median("the extender").context("it was measured")?;
        let idle = median("an extender that does nothing").context("it was measured")?;
        let share = 100.0 * ours / idle;
        say(&format!("the extender: {share:.0} % of one that does nothing (medians)"));
        plane.restart_scheduler(&SchedulerConfig::default()).await
    })
    .await
}

/// Binds pods and removes them. Returns the rate per second, from the first to the last.
async fn bind(
    plane: &ControlPlane,
    scope: &Scope,
    extender: Option<&str>,
    count: usize,
) -> anyhow::Result<f64> {
    plane.restart_scheduler(&SchedulerConfig::default()).await?;
    let pods: Api<Pod> = scope.api();
    // Pods with one and two pairs: every pod finds room on half-used nodes.
    let create = async |index: usize| -> anyhow::Result<()> {
        let template = format!("shape-{}", SHAPES[[0, 0, 0, 1][index % 4]]);
        let pod = json!({
            "metadata": {"name": format!("p{index}")},
            "spec": {
                "schedulerName": SCHEDULER,
                "containers": [{"name": "main", "image": "none"}],
                "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": template}],
            },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    };
    stream::iter(0..count).map(create).buffer_unordered(TOGETHER).try_collect::<()>().await?;
    claims_are(scope, count).await?;
    let mut config = SchedulerConfig::default();
    config.more.insert("profiles".into(), json!([{"schedulerName": SCHEDULER}]));
    config.extenders = extender.map(|url| Extender::new(url, "")).into_iter().collect();
    let watch = watcher(pods.clone(), watcher::Config::default()).default_backoff();
    let mut events = Box::pin(watch.applied_objects());
    plane.restart_scheduler(&config).await?;
    let (mut bound, mut first, mut last) = (BTreeSet::new(), None, Instant::now());
    let mut cpu = BTreeMap::new();
    while bound.len() < count {
        let pod = timeout(LONG, events.try_next()).await??.context("the watch ended")?;
        if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
            && bound.insert(pod.name_any())
        {
            last = Instant::now();
            if first.is_none() {
                (first, cpu) = (Some(last), cpu_times());
            }
        }
    }
    say_cpu(&cpu, count - 1);
    let took = last.duration_since(first.context("pods were bound")?);
    let now = DeleteParams::default().grace_period(0);
    pods.delete_collection(&now, &ListParams::default()).await?;
    claims_are(scope, 0).await?;
    let between = u32::try_from(count - 1)?;
    Ok(f64::from(between) / took.as_secs_f64())
}

/// Waits until the pods have this many claims.
async fn claims_are(scope: &Scope, count: usize) -> anyhow::Result<()> {
    let claims: Api<ResourceClaim> = scope.api();
    eventually(LONG, async || {
        let all = claims.list(&ListParams::default()).await?;
        let own = all.iter().filter(|claim| !claim.owner_references().is_empty()).count();
        Ok(Check::that(own == count, || format!("{own} claims of {count}")))
    })
    .await
}
