//! Requests like kube-scheduler's, by the number of nodes in them and by what changed before.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Options, Scope, eventually,
    figures::{judge_memory, say},
    installation::Installation,
    machine::H100,
    random::Random,
    with_scope,
};

use crate::{
    Args,
    cluster::{self, Devices, SHAPES},
    http::Connection,
    idle::Idle,
};

/// The maximum number of nodes in a request in a large cluster, by `percentageOfNodesToScore`: 10 %
/// of 5,000.
const SAMPLE: usize = 500;
const SOON: Duration = Duration::from_mins(2);
/// The most memory of the extender, in bytes, with 5,000 nodes.
const MEMORY_MAX: u64 = 250_000_000;
const QUIET: [&str; 1] = ["--log=warn"];

/// Measures the responses.
pub(crate) async fn measure(args: Args) -> anyhow::Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let kind = installation.machine("h100", H100).await?;
        let begin = Instant::now();
        installation.copies(std::slice::from_ref(&kind), 1..args.nodes).await?;
        let mut nodes = vec![kind.clone()];
        nodes.extend((1..args.nodes).map(|number| format!("{kind}-{number}")));
        let devices = Devices::new(plane.client(), &kind).await?;
        let mut random = Random(0x5eed_5eed);
        cluster::use_half(scope, &nodes, &devices, &mut random).await?;
        let took = begin.elapsed();
        say(&format!("{} nodes, {} slices made in {took:.0?}", nodes.len(), 2 * nodes.len()));
        let address = starts(&mut installation, args.starts).await?;
        let pods = pods(scope).await?;
        Bench { args, scope, installation: &installation, nodes, devices, pods, address }
            .run(random)
            .await
    })
    .await
}

/// Starts the extender several times; the last one keeps running.
async fn starts(installation: &mut Installation<'_>, times: u32) -> anyhow::Result<SocketAddr> {
    let mut took = Vec::new();
    let mut address = None;
    for _ in 0..times.max(1) {
        installation.kill_extender();
        let begin = Instant::now();
        address = Some(installation.start_plain_extender(&QUIET).await?);
        took.push(begin.elapsed());
    }
    took.sort();
    let [median, slowest] = [took[took.len() / 2], took[took.len() - 1]];
    say(&format!(
        "the extender: ready {median:.1?} after its start, {slowest:.1?} at most of {}",
        took.len()
    ));
    address.context("it was started")
}

/// A pod of each shape as the scheduler sees it: its claim exists and is not allocated.
async fn pods(scope: &Scope) -> anyhow::Result<Vec<Value>> {
    let claims: Api<ResourceClaim> = scope.api();
    let mut pods = Vec::new();
    for count in SHAPES {
        let name = format!("shape-{count}");
        let claim = json!({"metadata": {"name": name}, "spec": cluster::spec(count)});
        claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        // Makes the pods as large as real ones.
        let environment: Vec<_> =
            (0..30).map(|n| json!({"name": format!("NCCL_{n}"), "value": "some value"})).collect();
        pods.push(json!({
            "metadata": {"name": name, "namespace": scope.namespace(), "uid": name},
            "spec": {
                "containers": [{"name": "nccl", "image": "nccl", "env": environment}],
                "resourceClaims": [{"name": "devices", "resourceClaimName": name}],
            },
            "status": {"phase": "Pending"},
        }));
    }
    // Checks that it is a valid pod.
    let _: Pod = serde_json::from_value(pods[0].clone())?;
    Ok(pods)
}

struct Bench<'a> {
    args: Args,
    scope: &'a Scope,
    installation: &'a Installation<'a>,
    nodes: Vec<String>,
    devices: Devices,
    pods: Vec<Value>,
    address: SocketAddr,
}

impl Bench<'_> {
    async fn run(&self, mut random: Random) -> anyhow::Result<()> {
        let idle = Idle::start().await?;
        let mut doing_nothing = Connection::open(idle.address)?;
        let mut extender = Connection::open(self.address)?;
        self.plain(&mut doing_nothing, "an extender that does nothing")?;
        self.plain(&mut extender, "the extender")?;
        for size in self.sizes() {
            self.warm(&mut doing_nothing, size, "an extender that does nothing")?;
            self.knows(&mut extender, size)?;
            self.warm(&mut extender, size, "the extender, nothing changed")?;
            self.all_changed(&mut extender, size).await?;
        }
        self.really_changed(&mut extender, &mut random).await?;
        self.memory()
    }

    /// The numbers of nodes in requests.
    fn sizes(&self) -> [usize; 2] {
        [SAMPLE.min(self.nodes.len()), self.nodes.len()]
    }

    fn body(&self, pod: usize, nodes: usize) -> String {
        json!({"Pod": self.pods[pod], "Nodes": null, "NodeNames": self.nodes[..nodes]}).to_string()
    }

    /// Measures pods without claims.
    fn plain(&self, connection: &mut Connection, what: &str) -> anyhow::Result<()> {
        let mut pod = self.pods[0].clone();
        pod["spec"].as_object_mut().context("a spec")?.remove("resourceClaims");
        let [names, _] = self.sizes();
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": self.nodes[..names]}).to_string();
        let times: anyhow::Result<_> =
            (0..20 * self.args.requests).map(|_| connection.ask(&body)).collect();
        report(&format!("{what}, pods without claims, {SAMPLE} names"), times?);
        Ok(())
    }

    fn warm(&self, connection: &mut Connection, size: usize, what: &str) -> anyhow::Result<()> {
        let mut times = Vec::new();
        for _ in 0..self.args.requests {
            for pod in 0..self.pods.len() {
                times.push(connection.ask(&self.body(pod, size))?);
            }
        }
        report(&format!("{what}, {size} names"), times);
        Ok(())
    }

    /// Sends one request per shape, and checks that the scores differ.
    fn knows(&self, connection: &mut Connection, size: usize) -> anyhow::Result<()> {
        for (pod, pairs) in SHAPES.iter().enumerate() {
            connection.ask(&self.body(pod, size))?;
            let scores: Vec<Value> = serde_json::from_slice(connection.body())?;
            anyhow::ensure!(scores.len() == size, "{} scores of {size}", scores.len());
            let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
            for score in scores {
                *counts.entry(score["Score"].as_i64().context("a score")?).or_default() += 1;
            }
            // Few nodes have more than two free pairs.
            let is_common = *pairs <= 2;
            anyhow::ensure!(counts.len() > 2 || !is_common, "too few different scores: {counts:?}");
            say(&format!("{pairs} pairs, {size} names: scores {counts:?}"));
        }
        Ok(())
    }

    /// Before each request, something changes that affects all nodes.
    async fn all_changed(&self, connection: &mut Connection, size: usize) -> anyhow::Result<()> {
        let mut times = Vec::new();
        for number in 0..self.args.requests {
            for pod in 0..self.pods.len() {
                let touched = Instant::now();
                cluster::touch_class(self.scope.client(), number * 4 + pod + size).await?;
                self.has_seen("deviceclasses", touched).await?;
                times.push(connection.ask(&self.body(pod, size))?);
            }
        }
        report(&format!("the extender, all nodes changed (a class), {size} names"), times);
        Ok(())
    }

    /// The use of devices changes on every node.
    async fn really_changed(
        &self,
        connection: &mut Connection,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        let mut times: BTreeMap<usize, Vec<Duration>> = BTreeMap::new();
        for _ in 0..self.args.changes {
            for size in self.sizes() {
                cluster::change(self.scope, &self.nodes, &self.devices, random).await?;
                let last = Instant::now();
                let end = self.nodes.last().context("there are nodes")?.clone();
                cluster::change(self.scope, &[end], &self.devices, random).await?;
                self.has_seen("resourceclaims", last).await?;
                for pod in 0..self.pods.len() {
                    times.entry(size).or_default().push(connection.ask(&self.body(pod, size))?);
                }
            }
        }
        for (size, times) in times {
            report(&format!("the extender, all nodes changed (claims), {size} names"), times);
        }
        Ok(())
    }

    /// Waits until the extender has received events of a kind after this time.
    async fn has_seen(&self, kind: &str, since: Instant) -> anyhow::Result<()> {
        let name = format!("dranet_scheduler_ext_view_age_seconds{{kind=\"{kind}\"}}");
        eventually(SOON, async || {
            let metrics = self.installation.extender()?.metrics().await?;
            let age = *metrics.get(&name).with_context(|| format!("no {name}"))?;
            let fresh = age < since.elapsed().as_secs_f64();
            Ok(Check::that(fresh, || format!("{kind} are {age} s old")))
        })
        .await
    }

    fn memory(&self) -> anyhow::Result<()> {
        judge_memory("the extender", self.installation.extender()?.process().pid(), MEMORY_MAX)
    }
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let Some(last) = times.len().checked_sub(1) else { return };
    let at = |percent: usize| times[last * percent / 100];
    say(&format!(
        "{what}: {} requests, p50 {:.2?}, p99 {:.2?}, slowest {:.2?}",
        times.len(),
        at(50),
        at(99),
        at(100)
    ));
}
