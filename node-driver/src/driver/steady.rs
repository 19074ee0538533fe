//! The driver's main loop: it sleeps until something changes, reads the machine, and
//! writes only what differs from the server.

mod code;

use super::Driver;
use super::binding::LABELS_PERIOD;
use super::too_old;
use crate::args::Args;
use crate::facts::cloud::source::CloudSource;
use crate::facts::held::Claims;
use crate::facts::network::changes::Changes;
use crate::facts::node::get_node;
use crate::facts::ports::Ports;
use crate::facts::watch::{self, KnownObjects};
use crate::kubelet::run::Shared;
use crate::probe;
use crate::publish::events::{Findings, NodeEvents};
use crate::publish::metrics::Metrics;
use crate::publish::nic_counters::NicCounters;
use crate::publish::pace::Pace;
use cluster_model::names::DRIVER;
use code::Code;
use futures::future::BoxFuture;
use kube::Client;
use process::chain::Chain;
use process::memory;
use prometheus_client::registry::Registry;
use publication::cloud::CloudMetadata;
use publication::decision::Decision;
use publication::health::Problem;
use publication::judge::WithheldNic;
use serve::http::{Bound, ServeError};
use serve::operations;
use serve::progress::Progress;
use serve::readiness::{Readiness, Wait};
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch as value};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Interval, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// How long changes are collected before the machine is read. They come in bursts, and a
/// pod's start must not wait long.
const GATHER: Duration = Duration::from_millis(20);

/// How often a cloud that has not answered is asked again.
const CLOUD_PERIOD: Duration = Duration::from_secs(30);

/// The longest pause after a publication that failed.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Longest duration of one turn. An API server that does not answer, or a machine that cannot be
/// read, ends the turn and not the loop.
const TURN_PATIENCE: Duration = Duration::from_mins(2);

/// How many rescan intervals the loop may take for one turn until it counts as stuck.
const RESCANS_UNTIL_STUCK: u32 = 3;

/// What the loop needs besides the driver.
pub(super) struct Surroundings {
    /// Wakes the loop.
    pub(super) wake: Arc<Notify>,
    pub(super) changes: Option<Changes>,
    pub(super) client: Client,
    pub(super) cloud: CloudSource,
    /// Whether the cloud has already answered.
    pub(super) cloud_answered: bool,
    /// Keeps the addresses of the API servers current.
    pub(super) following: BoxFuture<'static, ()>,
}

/// Health and metrics, served from the process's start.
pub(super) struct Operations {
    /// Cancelled by a signal.
    pub(super) stop: CancellationToken,
    /// Dropped at the first publication.
    first: Option<Wait>,
    metrics: Metrics,
    /// What the process is still waiting for.
    pub(super) readiness: Readiness,
    /// Whether the loop turns.
    progress: Progress,
    served: JoinHandle<Result<(), ServeError>>,
}

impl Operations {
    /// Starts serving. The process is ready after its first publication and after the
    /// registrations that its plugin adds.
    pub(super) fn start(args: &Args, shared: &Shared) -> anyhow::Result<Self> {
        let stop = process::run::stop_on_signal()?;
        let readiness = Readiness::default();
        let first = Some(readiness.wait_for("the first publication"));
        // During an update two instances run; the second one waits until the first frees
        // the address.
        let bound = Bound::plain_or_later(args.operations.operations_listen)?;
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        shared.metrics.register(&mut registry);
        if let Some(paths) = args.plugin.paths(DRIVER) {
            let claims = Claims::new(Some(paths.checkpoint()));
            let sys = args.root.join("sys");
            let ports = shared.ports.clone();
            NicCounters::new(&sys, claims, ports, &args.node_name).register(&mut registry);
        }
        let progress = Progress::default();
        if let Some(instance) = &args.plugin.instance {
            let socket = probe::socket(&args.plugin.run_dir, instance)?;
            tokio::spawn(probe::serve(socket, readiness.clone(), progress.clone(), stop.clone()));
        }
        let router =
            operations::router_with_progress(readiness.clone(), registry, progress.clone());
        let served = tokio::spawn(bound.serve(router, stop.clone()));
        Ok(Self { stop, first, metrics, readiness, progress, served })
    }

    /// Waits until the HTTP server ends, which the signal causes.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        Ok(self.served.await??)
    }
}

/// Publishes until told to stop. Published objects stay, so that a restart removes no
/// device.
pub(super) async fn run(
    driver: Driver,
    surroundings: Surroundings,
    operations: &mut Operations,
    args: &Args,
) {
    let mut tasks = JoinSet::new();
    let Surroundings { wake, changes, client, cloud, cloud_answered, following } = surroundings;
    tasks.spawn(following);
    // Listening starts before the first read, so that no change is missed in between.
    if let Some(changes) = changes {
        watch::kernel(&mut tasks, changes, &wake);
    }
    let ports = Ports::new(&driver.host, driver.ports.clone());
    let setup = driver.setup.as_ref().map(|setup| setup.stamp());
    watch::polled(&mut tasks, ports, driver.claims.clone(), setup, &wake);
    let (sender, metadata) = value::channel(driver.cloud.clone());
    if !cloud_answered {
        tasks.spawn(ask_again(cloud, sender, Arc::clone(&wake)));
    }
    let labels = driver.binding.clone();
    let node = (client.clone(), args.node_name.clone());
    tasks.spawn(labels.follow(node, Arc::clone(&wake), LABELS_PERIOD));
    let looked = CancellationToken::new();
    let known = watch::objects(&mut tasks, &client, &args.node_name, &wake, &looked);
    let events = NodeEvents::new(&client, driver.publisher.node().clone());
    let (first, metrics) = (operations.first.take(), operations.metrics.clone());
    let steady = Steady {
        driver,
        metadata,
        known,
        looked,
        events,
        first,
        failures: 0,
        retry: None,
        metrics,
        progress: operations.progress.clone(),
        client: client.clone(),
        found: Findings::default(),
    };
    let (asking, node, speaker) = (client, args.node_name.clone(), steady.events.clone());
    let looked = steady.looked.clone();
    tasks.spawn(async move {
        // Pods wait for the first publication.
        looked.cancelled().await;
        speaker.say(too_old::notices(&asking, &node).await).await;
    });
    let rescan = Duration::from_secs(args.rescan_seconds);
    let limit = RESCANS_UNTIL_STUCK * rescan + TURN_PATIENCE;
    steady.progress.expect_within(limit, Instant::now());
    steady.run(&wake, interval(rescan), &operations.stop).await;
    tasks.shutdown().await;
}

/// Asks the cloud until it answers.
async fn ask_again(cloud: CloudSource, answer: value::Sender<CloudMetadata>, wake: Arc<Notify>) {
    loop {
        match cloud.ask().await {
            Ok(metadata) => {
                answer.send_replace(metadata);
                wake.notify_one();
                return;
            }
            Err(error) => tracing::debug!(error = %Chain(&error), "Metadata service still away"),
        }
        sleep(CLOUD_PERIOD).await;
    }
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nothing had to be written.
    Quiet,
    Wrote,
    Failed,
}

struct Steady {
    driver: Driver,
    metadata: value::Receiver<CloudMetadata>,
    known: KnownObjects,
    /// Cancelled after the first turn; then the watches begin.
    looked: CancellationToken,
    events: NodeEvents,
    /// Dropped at the first publication.
    first: Option<Wait>,
    /// Publications that failed in a row.
    failures: u32,
    /// When to try again after a failure.
    retry: Option<Instant>,
    metrics: Metrics,
    progress: Progress,
    client: Client,
    /// What the last look found.
    found: Findings,
}

impl Steady {
    /// Runs a turn at once, after every change and at every tick.
    async fn run(mut self, wake: &Notify, mut tick: Interval, stop: &CancellationToken) {
        let (mut writes, mut looks) = (Pace::new(Instant::now()), Pace::new(Instant::now()));
        let mut code = Code::default();
        loop {
            tokio::select! {
                is_due = self.due(wake, &mut tick, stop) => if !is_due { return },
                () = code.rested() => {
                    code.give_back(Instant::now());
                    continue;
                }
            }
            if self.first.is_none() {
                let now = Instant::now();
                let pause = GATHER.max(writes.wait(now)).max(looks.wait(now));
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep(pause) => {}
                }
            }
            looks.spend(Instant::now());
            // A refused write costs the server as much as an accepted one.
            if self.turn().await != Turn::Quiet {
                writes.spend(Instant::now());
            }
            self.progress.turned(Instant::now());
            self.looked.cancel();
            // Reading the machine needs more memory for a moment than the driver keeps.
            memory::give_back();
            code.ran(Instant::now());
        }
    }

    /// Waits until the next turn is due; false when told to stop.
    async fn due(&self, wake: &Notify, tick: &mut Interval, stop: &CancellationToken) -> bool {
        let now = Instant::now();
        let setup = self.driver.setup.as_ref().and_then(|it| it.next_change(now));
        let health = self.driver.history.health.next_change(now);
        let next = [setup, health, self.retry].into_iter().flatten().min();
        let later = async {
            match next {
                Some(at) => sleep_until(at.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => false,
            () = wake.notified() => true,
            _ = tick.tick() => true,
            () = later => true,
        }
    }

    /// Reads the machine, and publishes if the server's objects differ.
    async fn turn(&mut self) -> Turn {
        self.driver.cloud.clone_from(&self.metadata.borrow_and_update());
        let turn = timeout(TURN_PATIENCE, self.look_and_publish()).await.unwrap_or_else(|_| {
            Err(anyhow::anyhow!("the turn was not complete within {TURN_PATIENCE:?}"))
        });
        match turn {
            Ok(writes) => {
                (self.failures, self.retry) = (0, None);
                if writes > 0 { Turn::Wrote } else { Turn::Quiet }
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "Not published");
                self.failures += 1;
                self.retry = Some(Instant::now() + pause_after(self.failures));
                self.metrics.failures.inc();
                Turn::Failed
            }
        }
    }

    async fn look_and_publish(&mut self) -> anyhow::Result<usize> {
        let decision = self.driver.look().await?;
        self.count(&decision);
        let now = Findings {
            problems: self.driver.history.problems.clone(),
            withheld: decision.withheld.clone(),
            has_devices: !decision.devices.is_empty(),
        };
        let mut notices = self.found.notices(&now);
        log_withheld(&self.found.withheld, &now.withheld);
        self.found = now;
        if let Some(setup) = &mut self.driver.setup {
            notices.extend(setup.notices());
        }
        self.metrics.notices.inc_by(u64::try_from(notices.len()).unwrap_or(u64::MAX));
        let published = if self.is_early() { Ok(0) } else { self.publish(&decision).await };
        // After the slices, which pods wait for.
        self.events.say(notices).await;
        published
    }

    /// Whether the first publication waits for virtual functions that are being created.
    fn is_early(&self) -> bool {
        let setup = self.driver.setup.as_ref().filter(|_| self.first.is_some());
        setup.is_some_and(|setup| setup.is_awaited(Instant::now()))
    }

    async fn publish(&mut self, decision: &Decision) -> anyhow::Result<usize> {
        if self.first.is_none() && self.driver.is_published(decision, &self.known) {
            self.driver.said();
            return Ok(0);
        }
        if self.first.is_none() {
            self.renew_node().await?;
        }
        let published = self.driver.publish(decision).await?;
        self.driver.said();
        self.first = None;
        self.metrics.writes.inc_by(u64::try_from(published.writes).unwrap_or(u64::MAX));
        Ok(published.writes)
    }

    /// Gets the Node again before something is written. If it was created anew, the objects that
    /// belonged to the former one are collected, which is why there is something to write.
    async fn renew_node(&mut self) -> anyhow::Result<()> {
        let before = self.driver.publisher.node().clone();
        let node = get_node(&self.client, &before.name).await?;
        if node.uid != before.uid {
            tracing::info!(node = node.name, uid = node.uid, "The Node was created anew");
            self.driver.publisher.set_node(node.clone());
            self.events = NodeEvents::new(&self.client, node);
        }
        Ok(())
    }

    fn count(&self, decision: &Decision) {
        let tainted = decision.devices.iter().filter(|device| device.taints.is_some()).count();
        self.metrics.looks.inc();
        self.metrics.devices.set(gauge(decision.devices.len()));
        self.metrics.tainted_devices.set(gauge(tainted));
        self.metrics.anomalies.set(gauge(decision.anomalies.len()));
        self.metrics.count_withheld(decision.withheld.iter().map(|nic| nic.reason.word()));
        let missing = self.driver.setup.as_ref().map_or(0, |setup| setup.missing_functions());
        self.metrics.missing_functions.set(missing);
        for problem in Problem::ALL {
            let having = self.driver.history.problems.values().filter(|all| all.contains(&problem));
            self.metrics.problems_of(problem).set(gauge(having.count()));
        }
    }
}

/// A count as the value of a gauge.
fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Logs what was not withheld before.
fn log_withheld(before: &[WithheldNic], now: &[WithheldNic]) {
    for nic in now.iter().filter(|nic| !before.contains(nic)) {
        let WithheldNic { name, interface, reason } = nic;
        tracing::info!(device = name, interface, %reason, "Not published");
    }
}

/// One second, doubled with each failure.
pub(super) fn pause_after(failures: u32) -> Duration {
    Duration::from_secs(1).saturating_mul(1 << failures.saturating_sub(1).min(5)).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests;
