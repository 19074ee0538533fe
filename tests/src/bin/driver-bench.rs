//! Measures what the driver costs a node: time to its first slice, memory, CPU in an idle minute,
//! size of its binary, and time from a change to the API.

use std::{
    fs,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Parser;
use futures::TryStreamExt;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
    runtime::{WatchStreamExt, watcher},
};
use tempfile::TempDir;
use tests::{
    ControlPlane, Options, Process, binaries,
    figures::{megabytes, memory, refuse, say},
    installation::Installation,
    node::links::shell,
    with_scope,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinHandle,
    time::{sleep, timeout},
};
use topology_graph::fixture;

/// The interface to change, and its peer.
const LINK: [&str; 2] = ["dranet-bench0", "dranet-bench1"];
/// The longest wait for a slice.
const SOON: Duration = Duration::from_secs(30);

/// Measure the node driver. Needs root, since it creates a pair of interfaces.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Machine to run the driver on, from topology-graph; aws-p5 has 32 NICs
    #[arg(long, default_value = "aws-p5")]
    machine: String,
    /// Number of starts, and of changes to an interface.
    #[arg(long, default_value_t = 20)]
    times: usize,
    /// Idle time in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
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
        let installation = Installation::install(&plane, scope).await?;
        let node = scope.node("bench").await?.name_any();
        let kubeconfig = installation.node_kubeconfig("node-driver", &node).await?;
        let text = fixture::machine(&args.machine);
        let machine = text.with_context(|| format!("no machine is called `{}`", args.machine))?;
        let mut bench = Bench::start(&plane, node, &kubeconfig, machine);
        let size = fs::metadata(binaries::ours("node-driver")?)?.len();
        say(&format!("binary: {:.1} MB", megabytes(size)));
        bench.starts(args.times).await?;
        bench.rest(args.seconds).await?;
        bench.changes(args.times).await
    })
    .await
}

struct Bench<'a> {
    plane: &'a ControlPlane,
    node: String,
    kubeconfig: &'a Path,
    /// The machine's text.
    machine: &'a str,
    slices: Api<ResourceSlice>,
    events: UnboundedReceiver<(Instant, ResourceSlice)>,
    _watch: JoinHandle<()>,
}

impl<'a> Bench<'a> {
    fn start(
        plane: &'a ControlPlane,
        node: String,
        kubeconfig: &'a Path,
        machine: &'a str,
    ) -> Self {
        let slices: Api<ResourceSlice> = Api::all(plane.client());
        let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let stream = watcher(slices.clone(), config).default_backoff().applied_objects();
        let (sender, events) = unbounded_channel();
        let watch = tokio::spawn(async move {
            let mut stream = Box::pin(stream);
            while let Ok(Some(slice)) = stream.try_next().await {
                if sender.send((Instant::now(), slice)).is_err() {
                    return;
                }
            }
        });
        Self { plane, node, kubeconfig, machine, slices, events, _watch: watch }
    }

    fn spawn(&self, more: &[&str]) -> anyhow::Result<Process> {
        self.plane
            .program("node-driver")?
            .args(["--node-name", &self.node, "--cloud", "none"])
            .args(["--operations-listen", "127.0.0.1:0"])
            .args(["--kubeconfig".to_owned(), self.kubeconfig.display().to_string()])
            .args(more.iter().copied())
            .spawn()
    }

    /// Waits for a slice that satisfies `wanted`; returns the time when it was seen.
    async fn seen(&mut self, wanted: impl Fn(&ResourceSlice) -> bool) -> anyhow::Result<Instant> {
        let seen = async {
            loop {
                let (at, slice) = self.events.recv().await.context("the watch ended")?;
                if wanted(&slice) {
                    return Ok(at);
                }
            }
        };
        timeout(SOON, seen).await.context("no slice came")?
    }

    fn planted(&self) -> anyhow::Result<TempDir> {
        let folder = tempfile::tempdir()?;
        fixture::plant(self.machine, folder.path())?;
        Ok(folder)
    }

    async fn starts(&mut self, times: usize) -> anyhow::Result<()> {
        let machine = self.planted()?;
        let mut took = Vec::new();
        for _ in 0..times {
            let all = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
            self.slices.delete_collection(&DeleteParams::default(), &all).await?;
            let begin = Instant::now();
            let driver = self.spawn(&[&below("--root", machine.path(), "")])?;
            took.push(self.seen(|_| true).await?.duration_since(begin));
            driver.kill();
            while self.events.try_recv().is_ok() {}
        }
        say(&format!("start to the first slice: {}", spread(&mut took)));
        Ok(())
    }

    /// Measures the idle driver, with the kubelet's side as deployed.
    async fn rest(&mut self, seconds: u64) -> anyhow::Result<()> {
        let (machine, node) = (self.planted()?, tempfile::tempdir()?);
        let folders = [
            below("--root", machine.path(), ""),
            below("--kubelet-dir", node.path(), "kubelet"),
            below("--cdi-dir", node.path(), "cdi"),
            below("--run-dir", node.path(), "run"),
            below("--netns-dir", node.path(), "netns"),
        ];
        let driver = self.spawn(&folders.each_ref().map(String::as_str))?;
        sleep(Duration::from_secs(seconds)).await;
        let before = cpu(driver.pid())?;
        let held = [memory(driver.pid(), "VmRSS")?, memory(driver.pid(), "RssAnon")?];
        sleep(Duration::from_secs(seconds)).await;
        let used = cpu(driver.pid())?.saturating_sub(before);
        let [all, anonymous] = held.map(megabytes);
        say(&format!(
            "resident after {seconds} s: {all:.1} MB, {anonymous:.1} MB of them anonymous"
        ));
        say(&format!("CPU in {seconds} s of rest: {} ms", used.as_millis()));
        Ok(())
    }

    /// Makes one change per second, since the driver does not write faster for long.
    async fn changes(&mut self, times: usize) -> anyhow::Result<()> {
        let [link, peer] = LINK;
        // Left by an earlier run.
        let _ = shell(&format!("ip link delete {link}"));
        shell(&format!("ip link add {link} type veth peer name {peer}"))?;
        let outcome = self.timed_changes(times).await;
        shell(&format!("ip link delete {link}"))?;
        say(&format!("change of an interface to the API: {}", spread(&mut outcome?)));
        Ok(())
    }

    async fn timed_changes(&mut self, times: usize) -> anyhow::Result<Vec<Duration>> {
        let driver = self.spawn(&["--filter=", "--rescan-seconds=3600"])?;
        self.seen(|slice| mtu(slice).is_some()).await?;
        let mut took = Vec::new();
        for index in 0..times {
            sleep(Duration::from_millis(1500)).await;
            let wanted = 1300 + i64::try_from(index)?;
            shell(&format!("ip link set {} mtu {wanted}", LINK[0]))?;
            let begin = Instant::now();
            took.push(self.seen(|slice| mtu(slice) == Some(wanted)).await?.duration_since(begin));
        }
        driver.kill();
        Ok(took)
    }
}

/// The MTU of the interface in a slice.
fn mtu(slice: &ResourceSlice) -> Option<i64> {
    let device = slice.spec.devices.iter().flatten().find(|device| device.name == LINK[0])?;
    device.attributes.as_ref()?.get("dra.net/mtu")?.int
}

/// A flag with a folder, or with a path below it.
fn below(flag: &str, folder: &Path, name: &str) -> String {
    format!("{flag}={}", folder.join(name).display())
}

/// User and system time (`proc_pid_stat(5)`), in hundredths of a second.
fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("a name ends")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
    Ok(Duration::from_millis(10 * ticks.sum::<Result<u64, _>>()?))
}

fn spread(took: &mut [Duration]) -> String {
    took.sort();
    let at = |index: usize| took.get(index).copied().unwrap_or_default();
    let (median, last) = (at(took.len() / 2), at(took.len().saturating_sub(1)));
    format!("min {:.0?}, median {median:.0?}, max {last:.0?} of {}", at(0), took.len())
}
