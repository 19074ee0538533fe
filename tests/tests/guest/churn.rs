//! Routes that come and go by the thousand, as a routing daemon with a full table makes them
//! (cilium 41836, calico 8665): more notifications than the kernel can deliver.
//!
//! `$DRANET_ROUTE_CHURN` sets how long they do, in seconds (20).
//!
//! Processor time in an emulated machine says how busy the real one is, so it is only printed here;
//! `routes_of_others_cost_a_read_little` in the suite `network` bounds that of one read.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use tests::{
    Check, ControlPlane, Scope, eventually,
    guest::{Guest, Hardware, NICS},
    installation::Installation,
    setting,
    suite::{Test, report},
    with_scope,
};
use topology_graph::NodeTopology;

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![routes_that_come_and_go_change_nothing].into_iter().map(Test::alone).collect()
}

/// The longest time until a change is in the API; emulation is slow on a busy machine.
const SEEN: Duration = Duration::from_mins(1);

/// How long nothing is written when the driver has seen everything.
const REST: Duration = Duration::from_secs(5);

/// Reads that the driver may do at once, before one each second (`publish/pace.rs`).
const BURST: f64 = 10.0;

/// An interface that is not published, routes for `ip -batch`, and a program that adds and removes them.
const CHURN: &str = "
ip link add churned type veth peer name other; ip link set other up; ip link set churned up
for verb in add del; do
  for i in {1..8000}; do echo route $verb 10.$((64 + i / 250)).$((i % 250)).0/24 dev churned; done >/run/$verb
done
cat >/run/churn <<'LOOP'
while :; do
  for verb in add del; do ip -batch /run/$verb; done
done
LOOP";

async fn routes_that_come_and_go_change_nothing(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let length = Duration::from_secs(setting("DRANET_ROUTE_CHURN", 20)?);
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let node = scope.node("churn").await?.metadata.name.context("a name")?;
        let guest = Guest::boot(&plane, "churn", &Hardware::default()).await?;
        let kubeconfig = installation.node_kubeconfig("node-driver", &node).await?;
        let kubeconfig = guest.add_kubeconfig(&kubeconfig)?;
        guest.install("node-driver").await?;
        guest.run(CHURN).await?;
        let driver = Driver { scope, guest: &guest, node: &node };
        let command =
            format!("/run/node-driver --node-name {node} --kubeconfig {kubeconfig} --cloud none");
        guest.start("node-driver", &command).await?;
        driver.is_published().await?;
        let published = driver.rests().await?;

        let before = driver.work().await?;
        guest.start("churn", "bash /run/churn").await?;
        driver.lives_through(length).await?;
        let cost = driver.work().await?.since(&before);
        cost.is_small()?;
        assert_eq!(driver.published().await?, published, "it was written again");

        // The routes still come and go.
        let slices: Api<ResourceSlice> = Api::all(scope.client());
        for name in published.slices.keys() {
            slices.delete(name, &DeleteParams::default()).await?;
        }
        let begin = Instant::now();
        let again = driver.is_published().await?;
        report(&format!("the slices are back after {:.1?}", begin.elapsed()));
        assert_eq!(again.devices, published.devices);
        assert_ne!(again.slices, published.slices);
        Ok(())
    })
    .await
}

/// What a driver has published: resource versions of the slices and of the graph, and the devices.
#[derive(Debug, PartialEq)]
struct Published {
    slices: BTreeMap<String, Option<String>>,
    graph: Option<String>,
    devices: Vec<String>,
}

/// What a driver has done since its start.
#[derive(Debug)]
struct Work {
    /// When this was read.
    at: Instant,
    /// Processor time, in seconds.
    busy: f64,
    /// Reads of the machine, and objects written.
    looks: f64,
    writes: f64,
}

/// What a driver did in a time: seconds, and the rest as in [`Work`].
#[derive(Debug)]
struct Cost {
    seconds: f64,
    busy: f64,
    looks: f64,
    writes: f64,
}

impl Work {
    fn since(&self, before: &Self) -> Cost {
        Cost {
            seconds: (self.at - before.at).as_secs_f64(),
            busy: self.busy - before.busy,
            looks: self.looks - before.looks,
            writes: self.writes - before.writes,
        }
    }
}

impl Cost {
    fn is_small(&self) -> anyhow::Result<()> {
        let &Self { seconds, busy, looks, writes } = self;
        report(&format!("{looks} reads in {seconds:.0} s, {busy:.1} s of processor time"));
        anyhow::ensure!(looks >= 1.0, "the churn was not noticed: {self:?}");
        anyhow::ensure!(looks <= seconds + BURST + 1.0, "too many reads: {self:?}");
        anyhow::ensure!(writes == 0.0, "something was written: {self:?}");
        Ok(())
    }
}

struct Driver<'a> {
    scope: &'a Scope,
    guest: &'a Guest,
    node: &'a str,
}

impl Driver<'_> {
    /// Waits until all NICs and the graph are published.
    async fn is_published(&self) -> anyhow::Result<Published> {
        eventually(SEEN, async || {
            let published = self.published().await?;
            let is_whole = published.devices.len() == NICS.len() && published.graph.is_some();
            let state = format!("{published:?}\n{}", self.guest.log("node-driver"));
            Ok(if is_whole { Check::Done(published) } else { Check::NotYet(state) })
        })
        .await
    }

    /// Waits until nothing more is written, and returns what is published.
    async fn rests(&self) -> anyhow::Result<Published> {
        let mut last = (Instant::now(), self.published().await?);
        eventually(SEEN, async || {
            let now = self.published().await?;
            if now != last.1 {
                last = (Instant::now(), now);
            }
            let rests = last.0.elapsed() >= REST;
            Ok(if rests { Check::Done(()) } else { Check::NotYet("it still publishes".to_owned()) })
        })
        .await?;
        Ok(last.1)
    }

    async fn published(&self) -> anyhow::Result<Published> {
        let client = self.scope.client();
        let graphs: Api<NodeTopology> = Api::all(client.clone());
        let graph = graphs.get_opt(self.node).await?.and_then(|graph| graph.resource_version());
        let slices: Api<ResourceSlice> = Api::all(client);
        let own = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let all = slices.list(&own).await?.items;
        let devices = all.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        Ok(Published {
            devices: devices.map(|device| format!("{device:?}")).collect(),
            slices: all.iter().map(|it| (it.name_any(), it.resource_version())).collect(),
            graph,
        })
    }

    /// Liveness for this long.
    async fn lives_through(&self, length: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + length;
        let mut look = tokio::time::interval(Duration::from_secs(1));
        while Instant::now() < end {
            look.tick().await;
            let health = self.get("/healthz").await?;
            anyhow::ensure!(health.starts_with("HTTP/1.0 200"), "not alive: {health}");
        }
        Ok(())
    }

    async fn work(&self) -> anyhow::Result<Work> {
        let metrics = self.get("/metrics").await?;
        let ticks = self.guest.run("cut -d' ' -f14,15 /proc/$(cat /run/node-driver.pid)/stat");
        let ticks = ticks.await?;
        let ticks: Vec<f64> = ticks.split_whitespace().flat_map(str::parse).collect();
        Ok(Work {
            at: Instant::now(),
            busy: ticks.iter().sum::<f64>() / 100.0,
            looks: sample(&metrics, "dranet_driver_looks_total")?,
            writes: sample(&metrics, "dranet_driver_writes_total")?,
        })
    }

    async fn get(&self, path: &str) -> anyhow::Result<String> {
        let script = format!(
            r"exec 3<>/dev/tcp/127.0.0.1/9178; printf 'GET {path} HTTP/1.0\r\n\r\n' >&3; cat <&3"
        );
        self.guest.run(&script).await
    }
}

fn sample(metrics: &str, name: &str) -> anyhow::Result<f64> {
    let mut lines = metrics.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.find(|(found, _)| *found == name).with_context(|| name.to_owned())?;
    Ok(value.trim().parse()?)
}
