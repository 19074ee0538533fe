//! The driver's main loop: it sleeps until something changes, reads the machine, and
//! writes only what differs from the server.

use super::Driver;
use super::functions::Functions;
use super::vendor_driver::VendorDriver;
use crate::args::Args;
use crate::decide::decision::Decision;
use crate::decide::health::Problem;
use crate::facts::cloud::CloudMetadata;
use crate::facts::cloud::source::CloudSource;
use crate::facts::network::kernel::Changes;
use crate::facts::ports::Ports;
use crate::facts::watch::{self, Known};
use crate::kubelet::metrics::PluginMetrics;
use crate::probe;
use crate::publish::events::{NodeEvents, modules_notice, notices, vendor_driver_notice};
use crate::publish::metrics::Metrics;
use crate::publish::pace::Pace;
use futures::future::BoxFuture;
use kube::Client;
use process::chain::Chain;
use process::memory;
use prometheus_client::registry::Registry;
use serve::http::{Bound, ServeError};
use serve::operations;
use serve::readiness::{Readiness, Wait};
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch as value};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Interval, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use topology_graph::HostCondition;

/// How long changes are collected before the machine is read. They come in bursts, and a
/// pod's start must not wait long.
const GATHER: Duration = Duration::from_millis(20);

/// How often a cloud that has not answered is asked again.
const CLOUD_PERIOD: Duration = Duration::from_secs(30);

/// The longest pause after a publication that failed.
const MAX_PAUSE: Duration = Duration::from_secs(30);

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
    served: JoinHandle<Result<(), ServeError>>,
}

impl Operations {
    /// Starts serving. The process is ready after its first publication and after the
    /// registrations that its plugin adds.
    pub(super) fn start(args: &Args, plugin: &PluginMetrics) -> anyhow::Result<Self> {
        let stop = process::run::stop_on_signal()?;
        let readiness = Readiness::default();
        let first = Some(readiness.wait_for("the first publication"));
        // During an update two instances run; the second one waits until the first frees
        // the address.
        let bound = Bound::plain_or_later(args.operations.operations_listen)?;
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        plugin.register(&mut registry);
        if let Some(instance) = &args.plugin.instance {
            let socket = probe::socket(&args.plugin.run_dir, instance)?;
            tokio::spawn(probe::serve(socket, readiness.clone(), stop.clone()));
        }
        let router = operations::router(readiness.clone(), registry);
        let served = tokio::spawn(bound.serve(router, stop.clone()));
        Ok(Self { stop, first, metrics, readiness, served })
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
    let ports = Ports::of(&driver.host, driver.ports.clone());
    let vendor_driver = driver.vendor.as_ref().and_then(VendorDriver::file);
    watch::polled(&mut tasks, ports, driver.claims.clone(), vendor_driver, &wake);
    let (sender, metadata) = value::channel(driver.cloud.clone());
    if !cloud_answered {
        tasks.spawn(ask_again(cloud, sender, Arc::clone(&wake)));
    }
    let looked = CancellationToken::new();
    let known = watch::objects(&mut tasks, &client, &args.node_name, &wake, &looked);
    let events = NodeEvents::new(&client, driver.publisher.node().clone());
    let (first, metrics) = (operations.first.take(), operations.metrics.clone());
    let lacking = String::new();
    let steady = Steady {
        driver,
        metadata,
        known,
        looked,
        events,
        first,
        failures: 0,
        metrics,
        lacking,
        vendor_driver: None,
    };
    steady.run(&wake, interval(Duration::from_secs(args.rescan_seconds)), &operations.stop).await;
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
    known: Known,
    /// Cancelled after the first turn; then the watches begin.
    looked: CancellationToken,
    events: NodeEvents,
    /// Dropped at the first publication.
    first: Option<Wait>,
    /// Publications that failed in a row.
    failures: u32,
    metrics: Metrics,
    /// The last report of missing modules.
    lacking: String,
    /// What was said last of the vendor's driver.
    vendor_driver: Option<HostCondition>,
}

impl Steady {
    /// Runs a turn at once, after every change and at every tick.
    async fn run(mut self, wake: &Notify, mut tick: Interval, stop: &CancellationToken) {
        let mut pace = Pace::new(Instant::now());
        while self.due(wake, &mut tick, stop).await {
            if self.first.is_none() {
                let pause = GATHER.max(pace.wait(Instant::now()));
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep(pause) => {}
                }
            }
            // A refused write costs the server as much as an accepted one.
            if self.turn().await != Turn::Quiet {
                pace.spend(Instant::now());
            }
            self.looked.cancel();
            // Reading the machine needs more memory for a moment than the driver keeps.
            memory::give_back();
        }
    }

    /// Waits until the next turn is due; false when told to stop.
    async fn due(&self, wake: &Notify, tick: &mut Interval, stop: &CancellationToken) -> bool {
        let retry = async {
            match self.failures {
                0 => pending().await,
                failures => sleep(pause_after(failures)).await,
            }
        };
        let now = Instant::now();
        let functions = self.driver.functions.as_ref().and_then(|it| it.next_change(now));
        let next = self.driver.health.next_change(now).into_iter().chain(functions).min();
        let recovery = async {
            match next {
                Some(at) => sleep_until(at.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => false,
            () = wake.notified() => true,
            _ = tick.tick() => true,
            () = retry => true,
            () = recovery => true,
        }
    }

    /// Reads the machine, and publishes if the server's objects differ.
    async fn turn(&mut self) -> Turn {
        self.driver.cloud.clone_from(&self.metadata.borrow_and_update());
        match self.look_and_publish().await {
            Ok(writes) => {
                self.failures = 0;
                if writes > 0 { Turn::Wrote } else { Turn::Quiet }
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "Not published");
                self.failures += 1;
                self.metrics.failures.inc();
                Turn::Failed
            }
        }
    }

    async fn look_and_publish(&mut self) -> anyhow::Result<usize> {
        let before = self.driver.problems.clone();
        let decision = self.driver.look().await?;
        self.count(&decision);
        let mut notices = notices(&before, &self.driver.problems);
        notices.extend(modules_notice(&mut self.lacking, &decision.host));
        notices.extend(vendor_driver_notice(&mut self.vendor_driver, &decision.host));
        if let Some(functions) = &mut self.driver.functions {
            notices.extend(functions.notices());
        }
        self.metrics.notices.inc_by(u64::try_from(notices.len()).unwrap_or(u64::MAX));
        let published = if self.is_early() { Ok(0) } else { self.publish(&decision).await };
        // After the slices, which pods wait for.
        self.events.say(notices).await;
        published
    }

    /// Whether the first publication waits for virtual functions that are being created.
    fn is_early(&self) -> bool {
        let functions = self.driver.functions.as_ref().filter(|_| self.first.is_some());
        functions.is_some_and(|functions| functions.is_awaited(Instant::now()))
    }

    async fn publish(&mut self, decision: &Decision) -> anyhow::Result<usize> {
        if self.first.is_none() && self.driver.is_published(decision, &self.known) {
            self.driver.said();
            return Ok(0);
        }
        let published = self.driver.publish(decision).await?;
        self.driver.said();
        self.first = None;
        self.metrics.writes.inc_by(u64::try_from(published.writes).unwrap_or(u64::MAX));
        Ok(published.writes)
    }

    fn count(&self, decision: &Decision) {
        let tainted = decision.devices.iter().filter(|device| device.taints.is_some()).count();
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.looks.inc();
        self.metrics.devices.set(gauge(decision.devices.len()));
        self.metrics.tainted_devices.set(gauge(tainted));
        self.metrics.anomalies.set(gauge(decision.anomalies.len()));
        let functions = self.driver.functions.as_ref();
        self.metrics.missing_functions.set(functions.map_or(0, Functions::missing));
        for problem in Problem::ALL {
            let having = self.driver.problems.values().filter(|all| all.contains(&problem));
            self.metrics.problems_of(problem).set(gauge(having.count()));
        }
    }
}

/// One second, doubled with each failure.
pub(super) fn pause_after(failures: u32) -> Duration {
    Duration::from_secs(1).saturating_mul(1 << failures.saturating_sub(1).min(5)).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests;
