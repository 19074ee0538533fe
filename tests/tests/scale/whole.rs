//! The test: builds the cluster, compares, puts it under load, and reports.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Node, resource::v1::ResourceSlice};
use kube::{Api, Client, Resource, api::ListParams};
use tests::{
    Check, ControlPlane, Extender, SchedulerConfig, Scope, SeededRng,
    audit::Audit,
    eventually,
    figures::{megabytes, percentile},
    installation::Installation,
    machine::{A100, AMD_CLASS, H100, MI300X, P5},
    setting,
    suite::{Test, report},
    with_last_scope,
};
use tokio::{sync::oneshot, time::sleep};
use topology_graph::NodeTopology;

use super::{
    bars::Bars,
    chart, compare,
    course::Course,
    drivers::Drivers,
    faults, kubelets,
    lines::Lines,
    load, observer,
    observer::{BOUND_MAX, Observer},
    requests,
    size::Size,
    usage::{Sample, Sampler, mean_memory},
};

/// The flags of admission in the plain manifests, except for the log.
pub(crate) const ADMISSION: [&str; 2] = ["--fabric-controller", "--log=info"];
/// The flags of the other programs.
pub(crate) const CONTROLLER: [&str; 1] = ["--log=info"];
/// The programs of this project that run in the cluster.
const OURS: [&str; 4] = ["admission", "fabric-controller", "preemptor", "scheduler-ext"];
/// The most memory of each of them, in MB.
const MEMORY_MAX: f64 = 300.0;
/// The most by which a program may grow in the second half of the load.
const GROWTH_MAX: f64 = 1.02;
/// Samples of a load that says whether a program grows: its second half is beyond the start of all programs.
const GROWTH_SAMPLES: usize = 200;
const LONG: Duration = Duration::from_mins(5);

/// The test of the suite.
pub(crate) fn test(audit: Arc<Audit>) -> Test {
    let name = concat!(module_path!(), "::the_whole_system_keeps_its_promises_under_load");
    Test::new(name, move |plane| run(plane, Arc::clone(&audit)))
}

async fn run(plane: Arc<ControlPlane>, audit: Arc<Audit>) -> anyhow::Result<()> {
    let size = Size::from_environment()?;
    with_last_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.keep_default_leases();
        let (kinds, scheduler) = prepare(&plane, scope, &mut installation, size).await?;
        let (observer, _watches) = observer::start(&plane.client());
        let _kubelets = kubelets::play(&plane.client(), &observer);
        let mut bars = Bars::default();
        compare::write_template(scope, &observer).await?;
        if size.rounds > 0 {
            compare::measure(&plane, (scope, &observer), size, &mut bars).await?;
        }
        let drivers = Drivers::start(&plane, &installation, &kinds[0], size.drivers).await?;
        let recorder = Sampler::start(Arc::clone(&observer));
        let random = SeededRng::from_environment()?;
        let copies = (kinds.len()..size.nodes)
            .map(|index| format!("{}-{index}", kinds[index % kinds.len()]));
        let mut course = Course {
            plane: &plane,
            installation: &mut installation,
            // Nodes with drivers of their own stay.
            copies: copies.filter(|name| !name.starts_with(&kinds[0])).collect(),
            kinds: kinds.clone(),
            next: size.nodes,
            next_replica: 1,
            lines: Lines::to(plane.url())?,
            scheduler,
            random: random.clone(),
        };
        let loading =
            load::arrive((scope, "load"), size.pods_per_second(), random.clone(), sleep(size.load));
        let (arrived, away) = tokio::try_join!(loading, course.run(size))?;
        let samples = recorder.samples();
        report(&format!("{arrived:?}"));
        all_bound(&observer).await?;
        by_shape(&observer);
        judge_programs(&samples, &mut bars);
        requests::print(&audit, arrived.annotated, size.nodes)?;
        let busiest = requests::busiest_second(&audit, "node-driver", away)?;
        report(&format!(
            "{} drivers, after the API server was away: at most {busiest} requests in a second",
            size.drivers
        ));
        print_objects(&plane.client(), size).await?;
        write_chart(&samples)?;
        Box::pin(beside_faults(&mut course, (scope, &observer), size, random)).await?;
        all_bound(&observer).await?;
        drop(drivers);
        observer.verdict()?;
        bars.verdict()
    })
    .await
}

/// Pods and jobs arrive while programs, the control plane and nodes fail.
async fn beside_faults(
    course: &mut Course<'_, '_>,
    (scope, observer): (&Scope, &Observer),
    size: Size,
    random: SeededRng,
) -> anyhow::Result<()> {
    let (done, until_done) = oneshot::channel::<()>();
    let failing = async {
        Box::pin(faults::inject(course, scope, observer)).await?;
        drop(done);
        anyhow::Ok(())
    };
    let few = size.pods_per_second_beside_faults();
    let loading = load::arrive((scope, "beside-faults"), few, random, until_done);
    let (arrived, ()) = tokio::try_join!(loading, failing)?;
    report(&format!("beside faults: {arrived:?}"));
    Ok(())
}

/// Creates the nodes, and starts our programs. Returns the nodes of which the others are copies, and what
/// kube-scheduler runs with.
async fn prepare(
    plane: &ControlPlane,
    scope: &Scope,
    installation: &mut Installation<'_>,
    size: Size,
) -> anyhow::Result<(Vec<String>, SchedulerConfig)> {
    let begin = Instant::now();
    scope.apply_yaml(AMD_CLASS).await?;
    let kinds = vec![
        installation.gb300("gb300").await?,
        installation.gb300_in("gb300-other", "another-placement-group").await?,
        installation.machine("h100", H100).await?,
        installation.machine("mi300x", MI300X).await?,
        installation.machine("p5", P5).await?,
        installation.plugin_machine("a100", A100, 8).await?,
    ];
    installation.start_replicas(2, &ADMISSION).await?;
    installation.start_fabric_controllers(2, &CONTROLLER).await?;
    installation.copies(&kinds, kinds.len()..size.nodes).await?;
    labelled(&plane.client(), size.nodes).await?;
    installation.start_preemptors(1, &CONTROLLER).await?;
    let address = installation.start_plain_extender(&CONTROLLER).await?;
    let extender = Extender::new(&format!("http://{address}"), "");
    let scheduler = SchedulerConfig::with_extenders(vec![extender]);
    plane.restart_scheduler(&scheduler).await?;
    report(&format!("{} nodes are ready after {:.0?}", size.nodes, begin.elapsed()));
    Ok((kinds, scheduler))
}

/// Waits until fabric-controller has labelled the nodes that have a fabric.
async fn labelled(client: &Client, nodes: usize) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let with_fabric = ListParams::default().labels("topology.dranet.io/fabric");
    eventually(LONG, async || {
        let labelled = api.list_metadata(&with_fabric).await?.items.len();
        // Five of six kinds have a fabric.
        Ok(Check::that(labelled >= nodes / 2, || {
            format!("{labelled} of {nodes} nodes are labelled")
        }))
    })
    .await
}

/// Waits until no pod waits.
async fn all_bound(observer: &Observer) -> anyhow::Result<()> {
    eventually(BOUND_MAX, async || {
        let counts = observer.counts();
        Ok(Check::that(counts.waiting == 0, || format!("{counts:?}")))
    })
    .await
}

/// Prints the time from creation to binding of each shape under load.
fn by_shape(observer: &Observer) {
    let pods = observer.pods();
    let mut shapes: Vec<_> = pods.iter().map(|pod| &pod.shape).collect();
    shapes.sort_unstable();
    shapes.dedup();
    for shape in shapes {
        let of_shape = pods.iter().filter(|pod| pod.shape == *shape);
        let mut times: Vec<_> = of_shape
            .filter_map(|pod| Some(pod.bound?.saturating_duration_since(pod.created)))
            .collect();
        let [p50, p99] = [50, 99].map(|percent| percentile(&mut times, percent));
        report(&format!(
            "  {shape:22} {:5} pods, created → bound p50 {p50:8.2?} p99 {p99:8.2?}",
            times.len()
        ));
    }
}

/// Prints the use of each program, and compares ours with their limits.
fn judge_programs(samples: &[Sample], bars: &mut Bars) {
    let Some(last) = samples.last() else { return };
    for (name, program) in &last.programs {
        let sizes = samples.iter().filter_map(|sample| Some(sample.programs.get(name)?.memory));
        let peak = megabytes(sizes.max().unwrap_or_default());
        let cores = program.cpu.as_secs_f64() / last.at.as_secs_f64();
        report(&format!(
            "  {name:25} {cores:5.2} cores, {peak:6.1} MB at most, {:6.1} MB at the end",
            megabytes(program.memory)
        ));
    }
    let (half, quarter) = (samples.len() / 2, samples.len() / 4);
    for name in OURS {
        let sizes = samples.iter().filter_map(|sample| Some(sample.programs.get(name)?.memory));
        let peak = megabytes(sizes.max().unwrap_or_default());
        bars.at_most(&format!("{name}: MB of memory"), peak, MEMORY_MAX);
        if samples.len() < GROWTH_SAMPLES {
            continue;
        }
        let (before, after) = (&samples[half..half + quarter], &samples[half + quarter..]);
        if let (Some(before), Some(after)) = (mean_memory(before, name), mean_memory(after, name)) {
            bars.at_most(
                &format!("{name}: memory in the last quarter by that before"),
                after / before,
                GROWTH_MAX,
            );
        }
    }
}

/// Prints the objects that each node adds, and their size as JSON.
async fn print_objects(client: &Client, size: Size) -> anyhow::Result<()> {
    let (slices, slice_bytes) = objects::<ResourceSlice>(client, "spec.driver=dra.net").await?;
    let (graphs, graph_bytes) = objects::<NodeTopology>(client, "").await?;
    let each = |bytes: usize| bytes / size.nodes.max(1);
    report(&format!(
        "{slices} slices of NICs ({} bytes of JSON a node) and {graphs} graphs ({} bytes a node)",
        each(slice_bytes),
        each(graph_bytes)
    ));
    Ok(())
}

/// The number of objects of a kind and their bytes as JSON.
async fn objects<K>(client: &Client, fields: &str) -> anyhow::Result<(usize, usize)>
where
    K: Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + serde::Serialize
        + std::fmt::Debug,
{
    let all: Api<K> = Api::all(client.clone());
    let mut page = ListParams::default().fields(fields).limit(500);
    let (mut count, mut bytes) = (0, 0);
    loop {
        let list = all.list(&page).await?;
        for object in &list {
            count += 1;
            bytes += serde_json::to_vec(object)?.len();
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok((count, bytes)),
        }
    }
}

/// Writes the chart to the file `$DRANET_SCALE_CHART`, if it is set.
fn write_chart(samples: &[Sample]) -> anyhow::Result<()> {
    let file: String = setting("DRANET_SCALE_CHART", String::new())?;
    if file.is_empty() {
        return Ok(());
    }
    let svg = chart::svg(samples).map_err(|error| anyhow::anyhow!("the chart: {error}"))?;
    fs::write(&file, svg).with_context(|| format!("failed to write `{file}`"))
}
