//! How fast admission answers: reviews over TLS at a steady rate, with an
//! inventory of thousands of nodes, and kube-apiserver alone beside it.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Parser;
use futures::{StreamExt, stream};
use http::{Request, Uri};
use kube::{Client, Config};
use serde_json::{Value, json};
use tests::{
    ControlPlane, Options, Scope,
    machine::{H100, MI300X},
    rig::{Rig, Webhook},
    with_scope,
};
use tokio::time::{MissedTickBehavior, interval};

/// Measure the webhook.
#[derive(Clone, Copy, Debug, Parser)]
struct Args {
    /// Nodes, in equal parts of three kinds: GB300, H100 and MI300X.
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Reviews a second.
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
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
    with_scope(plane.client(), async |scope| {
        let mut rig = Rig::install(&plane, scope).await?;
        let kinds = [
            rig.gb300("gb300").await?,
            rig.machine("h100", H100).await?,
            rig.machine("mi300x", MI300X).await?,
        ];
        say(&format!("making {} nodes", args.nodes));
        let copies = (kinds.len()..args.nodes).map(|index| (&kinds[index % kinds.len()], index));
        let copies =
            stream::iter(copies).map(async |(kind, index)| rig.copy_node(kind, index).await);
        let made: Vec<anyhow::Result<()>> = copies.buffer_unordered(32).collect().await;
        made.into_iter().collect::<anyhow::Result<()>>()?;
        rig.start_replicas(1, &["--log=warn"]).await?;
        let webhook = rig.webhook().await?;
        report(args, &plane, scope, &webhook).await
    })
    .await
}

async fn report(
    args: Args,
    plane: &ControlPlane,
    scope: &Scope,
    webhook: &Webhook,
) -> anyhow::Result<()> {
    let client = client(webhook)?;
    let namespace = scope.namespace();
    // Where every node has one more label, no plan is one that was made before.
    let mut new = Vec::new();
    for index in 0..20 {
        let mut pod = pod("2");
        pod["spec"]["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": format!("no-{index}"), "operator": "DoesNotExist"}]},
            ]},
        }});
        new.push(post(&client, "/mutate", &review(namespace, pod)).await?);
    }
    say(&line("a new plan", &mut new));
    for nics in ["1", "2"] {
        post(&client, "/mutate", &review(namespace, pod(nics))).await?;
    }
    let bodies = ["1", "2"].map(|nics| review(namespace, pod(nics)));
    let mut alone = steady(args, |index| post(&client, "/mutate", &bodies[index % 2])).await?;
    say(&line("the webhook alone", &mut alone));
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let apiserver = plane.client();
    let plain = json!({
        "metadata": {"generateName": "p-"},
        "spec": {"containers": [{"name": "nccl", "image": "nccl"}]},
    });
    let mut bare = steady(args, |_| post(&apiserver, &path, &plain)).await?;
    say(&line("kube-apiserver, pods that the webhook does not see", &mut bare));
    let mut annotated = pod("2");
    annotated["metadata"] = json!({
        "generateName": "p-",
        "annotations": annotated["metadata"]["annotations"],
    });
    let mut both = steady(args, |_| post(&apiserver, &path, &annotated)).await?;
    say(&line("kube-apiserver with the webhook", &mut both));
    say(&format!("memory of the webhook: {} MiB", webhook.resident_kib()? / 1024));
    Ok(())
}

/// Sends at the rate, whatever the answers take; returns what each took.
async fn steady<F>(args: Args, send: impl Fn(usize) -> F) -> anyhow::Result<Vec<Duration>>
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
    let took: Vec<_> = answers.buffer_unordered(count).collect().await;
    took.into_iter().collect()
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

/// A client of the webhook that trusts its authority, as kube-apiserver does.
fn client(webhook: &Webhook) -> anyhow::Result<Client> {
    let mut config = Config::new(webhook.url.parse::<Uri>().context("its URL")?);
    config.root_cert = Some(vec![webhook.authority.clone()]);
    config.tls_server_name = Some(webhook.name.clone());
    Ok(Client::try_from(config)?)
}

fn pod(nics: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"dranet.io/aligned-nics": nics}},
        "spec": {"containers": [
            {"name": "nccl", "image": "nccl", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        ]},
    })
}

fn review(namespace: &str, mut pod: Value) -> Value {
    pod["metadata"]["namespace"] = namespace.into();
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "p",
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {},
            "object": pod,
            "dryRun": false,
        },
    })
}

fn line(what: &str, took: &mut [Duration]) -> String {
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    format!(
        "{what}: {} requests, p50 {:.2?}, p99 {:.2?}, slowest {:.2?}",
        took.len(),
        at(50),
        at(99),
        at(100)
    )
}

#[expect(clippy::print_stdout, reason = "a command line program")]
fn say(line: &str) {
    println!("{line}");
}

#[expect(clippy::print_stderr, reason = "a command line program")]
fn refuse(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
