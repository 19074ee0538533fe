//! Measures how fast admission responds, and the memory of admission, of the fabric controller and of
//! preemptor, with the flags of the plain manifests. Reviews arrive over TLS at a steady rate, with
//! thousands of nodes and pods: alone, through kube-apiserver, while a group is placed, and while
//! all slices change.

use std::{
    collections::BTreeMap,
    fs,
    process::ExitCode,
    thread::{self, available_parallelism},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Parser;
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::ResourceSlice,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use rustix::process::{Pid, getpriority_process, setpriority_process};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Options, Scope, eventually,
    figures::{judge_memory, refuse, say},
    installation::{self, Installation, Webhook},
    machine::{H100, MI300X},
    with_last_scope,
};
use tokio::{
    runtime,
    sync::oneshot,
    time::{MissedTickBehavior, interval},
};

const SOON: Duration = Duration::from_secs(30);
/// The number of pods that need a new plan.
const NEW_PLANS: usize = 20;
/// The label that the fabric controller sets on nodes.
const FABRIC: &str = "topology.dranet.io/fabric";
/// The longest time to place a group.
const LONG: Duration = Duration::from_mins(5);
/// The interval between looks at pods that wait for a node.
const LOOK: Duration = Duration::from_millis(20);
/// The number of parallel requests to kube-apiserver that create or change objects.
const TOGETHER: usize = 64;
/// How much lower the niceness of undisturbed threads is.
const PRECEDENCE: i32 = 15;
/// The most memory of each program, in bytes, with 5,000 nodes.
const MEMORY_MAX: u64 = 150_000_000;
/// The flags of the plain manifests, except for the log.
const ADMISSION: [&str; 2] = ["--fabric-controller", "--log=warn"];
const CONTROLLER: [&str; 1] = ["--log=warn"];

/// Measure the webhook.
#[derive(Clone, Copy, Debug, Parser)]
struct Args {
    /// Nodes, in equal parts of three kinds: GB300, H100 and MI300X.
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Pods that run on them.
    #[arg(long, default_value_t = 100_000)]
    pods: usize,
    /// Pods of the group to place, each on a separate GB300 node.
    #[arg(long, default_value_t = 512)]
    group: usize,
    /// Pods that are created together and bound.
    #[arg(long, default_value_t = 200)]
    burst: usize,
    /// Reviews per second.
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// Seconds per measurement.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Give the webhook and the thread that sends requests priority over kube-apiserver, etcd and
    /// the rest of this program (niceness 15 lower, as root), so that waiting for a processor is
    /// not measured.
    #[arg(long)]
    undisturbed: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match measure(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

async fn measure(args: Args) -> anyhow::Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    with_last_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let kinds = [
            installation.gb300("gb300").await?,
            installation.machine("h100", H100).await?,
            installation.machine("mi300x", MI300X).await?,
        ];
        // These three nodes are labelled first; the other nodes are copies of them.
        installation.start_replicas(1, &ADMISSION).await?;
        installation.start_fabric_controllers(1, &CONTROLLER).await?;
        labelled(&plane, &kinds).await?;
        installation.kill_replica(0).await?;
        installation.kill_fabric_controller(0);
        let begin = Instant::now();
        installation.copies(&kinds, kinds.len()..args.nodes).await?;
        say(&format!("{} nodes made in {:.0?}", args.nodes, begin.elapsed()));
        let begin = Instant::now();
        running(scope, &args).await?;
        say(&format!("{} pods made in {:.0?}", args.pods, begin.elapsed()));
        installation.start_fabric_controllers(1, &CONTROLLER).await?;
        installation.start_preemptors(1, &CONTROLLER).await?;
        let controllers = [
            ("the fabric controller", installation.fabric_controllers()[0].process().pid()),
            ("preemptor", installation.preemptors()[0].process().pid()),
        ];
        let begin = Instant::now();
        installation.start_replica(0, &ADMISSION).await?;
        say(&format!("the webhook: ready {:.1?} after its start", begin.elapsed()));
        installation.answers().await?;
        let webhook = installation.webhook().await?;
        if args.undisturbed {
            raise(&format!("/proc/{}/task", webhook.pid()))?;
        }
        let client = webhook.client()?;
        Bench { args, plane: &plane, scope, client, webhook, controllers }.run().await
    })
    .await
}

/// Waits until the nodes have the labels of the fabric controller.
async fn labelled(plane: &ControlPlane, nodes: &[String]) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(plane.client());
    eventually(SOON, async || {
        for name in nodes {
            if !api.get(name).await?.labels().contains_key(FABRIC) {
                return Ok(Check::NotYet(format!("node `{name}` has no label {FABRIC}")));
            }
        }
        Ok(Check::Done(()))
    })
    .await
}

/// Creates running pods, on all nodes in turn.
async fn running(scope: &Scope, args: &Args) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(scope.client()).list_metadata(&ListParams::default()).await?;
    let nodes: Vec<_> = nodes.iter().map(ResourceExt::name_any).collect();
    let api: Api<Pod> = scope.api();
    let made = stream::iter(0..args.pods).map(async |index| {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": format!("run-{index}"), "labels": {"app": format!("a{}", index % 500)}},
            "spec": {
                "nodeName": nodes[index % nodes.len()],
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "main", "image": "none", "resources": {"requests": {"cpu": "10m"}},
                }],
            },
        }))?;
        api.create(&PostParams::default(), &pod).await?;
        anyhow::Ok(())
    });
    made.buffer_unordered(TOGETHER).try_collect().await
}

struct Bench<'a> {
    args: Args,
    plane: &'a ControlPlane,
    scope: &'a Scope,
    /// A client of the webhook.
    client: Client,
    webhook: Webhook,
    /// The process IDs of the fabric controller and of preemptor.
    controllers: [(&'static str, u32); 2],
}

impl Bench<'_> {
    async fn run(&self) -> anyhow::Result<()> {
        let cores = available_parallelism()?;
        say(&format!("{} reviews per second, {cores} cores for everything", self.args.rate));
        self.new_plans().await?;
        self.alone().await?;
        self.held()?;
        self.until_bound().await?;
        self.beside().await?;
        self.while_placing().await?;
        self.while_slices_change().await?;
        self.held()
    }

    /// All figures are said before the first one that exceeds its limit ends the run.
    fn held(&self) -> anyhow::Result<()> {
        let all = [&[("the webhook", self.webhook.pid())][..], &self.controllers].concat();
        let judged = all.into_iter().map(|(name, pid)| judge_memory(name, pid, MEMORY_MAX));
        judged.collect::<Vec<_>>().into_iter().collect()
    }

    /// The time from the request that creates a pod until the pod has a node, for pods that are
    /// created together. The first of them wait for their template.
    async fn until_bound(&self) -> anyhow::Result<()> {
        let api: Api<Pod> = self.scope.api();
        let made = stream::iter(0..self.args.burst).map(async |index| {
            let mut pod = pod("2");
            pod["metadata"]["name"] = format!("burst-{index}").into();
            pod["metadata"]["labels"] = json!({"bench": "burst"});
            let begin = Instant::now();
            let pod = api.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
            anyhow::Ok((pod.name_any(), begin))
        });
        let bound = async {
            let mut bound: BTreeMap<String, Instant> = BTreeMap::new();
            let burst = ListParams::default().labels("bench=burst").match_any();
            let end = Instant::now() + LONG;
            while bound.len() < self.args.burst && Instant::now() < end {
                for pod in api.list(&burst).await? {
                    if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                        bound.entry(pod.name_any()).or_insert_with(Instant::now);
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
            anyhow::Ok(bound)
        };
        let made = made.buffer_unordered(TOGETHER).try_collect::<Vec<_>>();
        let (made, bound) = tokio::try_join!(made, bound)?;
        let took = made.iter().map(|(name, begin)| {
            let bound = bound.get(name).with_context(|| format!("`{name}` is not bound"))?;
            Ok(bound.duration_since(*begin))
        });
        report("from the creation of a pod until it is bound", took.collect())
    }

    /// Sends reviews while the pods of a group pass the webhook and the fabric controller places
    /// them.
    async fn while_placing(&self) -> anyhow::Result<()> {
        let reviews = self.reviews(vec![self.body(pod("2"))]);
        let (took, placed) = tokio::join!(reviews, self.place_group());
        say(&format!("{} pods placed on one fabric in {:.1?}", self.args.group, placed?));
        report("the webhook while a group is placed", took?)
    }

    async fn place_group(&self) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        let api: Api<Pod> = self.scope.api();
        let made = stream::iter(0..self.args.group).map(async |index| {
            let mut member = pod("per-gpu");
            member["metadata"]["name"] = format!("member-{index}").into();
            member["metadata"]["labels"] = json!({"bench": "group"});
            let annotations = &mut member["metadata"]["annotations"];
            annotations["dranet.io/fabric"] = "bench".into();
            annotations["dranet.io/fabric-size"] = self.args.group.to_string().into();
            member["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "4".into();
            api.create(&PostParams::default(), &serde_json::from_value(member)?).await?;
            anyhow::Ok(())
        });
        made.buffer_unordered(TOGETHER).try_collect::<()>().await?;
        let members = ListParams::default().labels("bench=group");
        eventually(LONG, async || {
            let pods = api.list(&members).await?;
            let is_held = |pod: &Pod| {
                let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
                gates.is_some_and(|gates| !gates.is_empty())
            };
            let held: Vec<_> = pods.iter().filter(|pod| is_held(pod)).collect();
            let why = || held.first().and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
            Ok(Check::that(held.is_empty(), || {
                format!("{} pods are held: {:?}", held.len(), why())
            }))
        })
        .await?;
        Ok(begin.elapsed())
    }

    /// Sends reviews while every slice gets another attribute.
    async fn while_slices_change(&self) -> anyhow::Result<()> {
        let api: Api<ResourceSlice> = Api::all(self.plane.client());
        let slices = api.list_metadata(&ListParams::default()).await?;
        let names: Vec<_> = slices.iter().map(ResourceExt::name_any).collect();
        let begin = Instant::now();
        let change = async {
            let patch = json!([{
                "op": "add",
                "path": "/spec/devices/0/attributes/bench.dranet.io~1changed",
                "value": {"bool": true},
            }]);
            let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
            let written = stream::iter(&names)
                .map(async |name| api.patch(name, &PatchParams::default(), &patch).await.map(drop));
            written.buffer_unordered(TOGETHER).try_collect::<()>().await?;
            anyhow::Ok(begin.elapsed())
        };
        let (took, changed) = tokio::join!(self.reviews(vec![self.body(pod("2"))]), change);
        say(&format!("{} slices changed in {:.1?}", names.len(), changed?));
        report("the webhook while all slices change", took?)
    }

    /// Each pod has another node selector, so none was planned before.
    async fn new_plans(&self) -> anyhow::Result<()> {
        let mut took = Vec::new();
        for index in 0..NEW_PLANS {
            let mut pod = pod("2");
            pod["spec"]["affinity"] = json!({"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [
                        {"key": format!("no-{index}"), "operator": "DoesNotExist"},
                    ]},
                ]},
            }});
            took.push(self.review(&self.body(pod)).await);
        }
        report("a new plan", took)
    }

    async fn alone(&self) -> anyhow::Result<()> {
        let bodies = ["1", "2"].map(|nics| self.body(pod(nics)));
        for body in &bodies {
            self.review(body).await?;
        }
        report("the webhook alone", self.reviews(bodies.to_vec()).await?)
    }

    async fn beside(&self) -> anyhow::Result<()> {
        let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", self.scope.namespace());
        let apiserver = self.plane.client();
        let mut plain = pod("2");
        plain["metadata"] = json!({"generateName": "p-"});
        let took = steady(self.args, |_| post(&apiserver, &path, &plain)).await;
        report("kube-apiserver, pods that the webhook does not see", took)?;
        let mut annotated = pod("2");
        annotated["metadata"]["generateName"] = "p-".into();
        let took = steady(self.args, |_| post(&apiserver, &path, &annotated)).await;
        report("kube-apiserver with the webhook", took)
    }

    /// Sends the bodies in turn at the configured rate. A separate thread sends them, so that other
    /// work of this program does not delay them.
    async fn reviews(&self, bodies: Vec<Value>) -> anyhow::Result<Answers> {
        let (args, webhook) = (self.args, self.webhook.clone());
        let (done, took) = oneshot::channel();
        thread::spawn(move || done.send(send_all(args, &webhook, &bodies)));
        took.await.context("the sending thread has ended")?
    }

    fn body(&self, pod: Value) -> Value {
        installation::review(self.scope.namespace(), pod)
    }

    async fn review(&self, body: &Value) -> anyhow::Result<Duration> {
        post(&self.client, "/mutate", body).await
    }
}

/// The time of each response.
type Answers = Vec<anyhow::Result<Duration>>;

fn send_all(args: Args, webhook: &Webhook, bodies: &[Value]) -> anyhow::Result<Answers> {
    if args.undisturbed {
        let this = fs::read_link("/proc/thread-self")?;
        prefer(this.file_name().and_then(|id| id.to_str()).context("the thread's number")?)?;
    }
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let client = webhook.client()?;
        Ok(steady(args, |index| post(&client, "/mutate", &bodies[index % bodies.len()])).await)
    })
}

/// Raises the priority of every thread in the folder by the same amount.
fn raise(threads: &str) -> anyhow::Result<()> {
    for thread in fs::read_dir(threads).context("the webhook's threads")? {
        prefer(&thread?.file_name().to_string_lossy())?;
    }
    Ok(())
}

/// On Linux each thread has its own priority.
fn prefer(thread: &str) -> anyhow::Result<()> {
    let thread = Some(Pid::from_raw(thread.parse()?).context("the number of a thread")?);
    let niceness = getpriority_process(thread)? - PRECEDENCE;
    setpriority_process(thread, niceness).context("a higher priority needs root")
}

/// Sends at the rate, however long responses take.
async fn steady<F>(args: Args, send: impl Fn(usize) -> F) -> Answers
where
    F: Future<Output = anyhow::Result<Duration>>,
{
    let mut tick = interval(Duration::from_secs(1) / args.rate);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let ticks = stream::unfold(tick, async |mut tick| {
        tick.tick().await;
        Some(((), tick))
    });
    let count = (args.rate * args.seconds) as usize;
    let answers = ticks.take(count).enumerate().map(|(index, ())| send(index));
    answers.buffer_unordered(count).collect().await
}

async fn post(client: &Client, path: &str, body: &Value) -> anyhow::Result<Duration> {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(body)?)?;
    let begin = Instant::now();
    let answer: Value = client.request(request).await?;
    let took = begin.elapsed();
    let refused = answer["response"]["allowed"] == false;
    anyhow::ensure!(!refused, "refused: {}", answer["response"]["status"]["message"]);
    Ok(took)
}

fn pod(nics: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"annotations": {"dranet.io/aligned-nics": nics}},
        "spec": {"containers": [
            {"name": "nccl", "image": "nccl", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        ]},
    })
}

/// Prints the response times. If the machine is too small for the rate, some responses are too late
/// for kube-apiserver.
fn report(what: &str, answers: Answers) -> anyhow::Result<()> {
    let (took, failed): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    let failed: Vec<_> = failed.into_iter().filter_map(Result::err).collect();
    let mut took: Vec<_> = took.into_iter().flatten().collect();
    took.sort_unstable();
    let Some(last) = took.len().checked_sub(1) else {
        let first = failed.into_iter().next();
        return first.map_or(Ok(()), |error| Err(error.context(what.to_owned())));
    };
    let at = |percent: usize| took[last * percent / 100];
    let why = failed.first().map(|error| format!(" (the first: {error:#})"));
    say(&format!(
        "{what}: {} requests, {} failed{}, p50 {:.2?}, p99 {:.2?}, slowest {:.2?}",
        took.len(),
        failed.len(),
        why.unwrap_or_default(),
        at(50),
        at(99),
        at(100)
    ));
    Ok(())
}
