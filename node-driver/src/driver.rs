//! The driver at work: facts in, decision, effects out; once, or again and
//! again until it is told to stop.

use crate::args::Args;
use crate::cloud::http::Patience;
use crate::cloud::{self, CloudMetadata, CloudProvider};
use crate::decision::{Decision, Facts, decide};
use crate::node::NodeIdentity;
use crate::plugin::run::beside;
use crate::publish::{PublishError, Published, Publisher};
use serve::chain::Chain;
use serve::http::Bound;
use serve::operations;
use serve::readiness::Readiness;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use topology_graph::HostRoot;

/// Runs the program to its end.
pub async fn run(args: Args) -> anyhow::Result<()> {
    serve::logging::init(&args.log)?;
    let host = HostRoot::at(&args.root);
    // A root without a sysfs is a wrong flag: said before anything is asked of
    // the cluster.
    topology_graph::read(&host)?;
    let client = serve::client::connect(&args.kube).await?;
    let node = NodeIdentity::get(&client, &args.node_name).await?;
    let cloud = cloud_metadata(args.cloud, &args.imds_url).await;
    let publisher = Publisher::new(&client, node);
    let mut driver = Driver { host: host.clone(), cloud, publisher };
    if args.once {
        return driver.publish().await;
    }
    tokio::try_join!(driver.serve(&args), beside(&args, &client, &host))?;
    Ok(())
}

/// What the cloud tells; nothing, with a warning, where it does not answer.
async fn cloud_metadata(provider: CloudProvider, url: &str) -> CloudMetadata {
    cloud::read(provider, url, Patience::default()).await.unwrap_or_else(|error| {
        tracing::warn!(error = %Chain(&error), "Going on without the cloud's attributes");
        CloudMetadata::default()
    })
}

struct Driver {
    host: HostRoot,
    cloud: CloudMetadata,
    publisher: Publisher,
}

impl Driver {
    /// Reads the machine and makes the server say what it is. NICs are
    /// published also where the topology cannot be.
    async fn publish(&mut self) -> anyhow::Result<()> {
        let snapshot = topology_graph::read(&self.host)?;
        let decision = decide(&Facts { snapshot, cloud: self.cloud.clone() });
        for anomaly in &decision.anomalies {
            tracing::debug!(%anomaly, "Strange machine");
        }
        let topology = self.publisher.topology(&decision.topology).await;
        let slices = self.publisher.slices(&decision.devices).await?;
        log(&decision, slices, &topology);
        topology?;
        Ok(())
    }

    /// Publishes again and again until told to stop. What was published stays:
    /// a restart makes no device vanish.
    async fn serve(&mut self, args: &Args) -> anyhow::Result<()> {
        let stop = serve::process::stop_on_signal()?;
        let readiness = Readiness::default();
        let mut first = Some(readiness.wait_for("the first publication"));
        let mut tasks = JoinSet::new();
        let operations = Bound::plain(args.operations.operations_listen)?;
        let registry = prometheus_client::registry::Registry::default();
        tasks.spawn(operations.serve(operations::router(readiness, registry), stop.clone()));
        let mut tick = tokio::time::interval(Duration::from_secs(args.rescan_seconds));
        while wait(&mut tick, &stop).await {
            match self.publish().await {
                Ok(()) => drop(first.take()),
                Err(error) => tracing::error!(error = format!("{error:#}"), "Not published"),
            }
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// Waits for the next turn; false when there is none.
async fn wait(tick: &mut tokio::time::Interval, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        _ = tick.tick() => true,
    }
}

fn log(decision: &Decision, slices: Published, topology: &Result<Published, PublishError>) {
    let writes = slices.writes + topology.as_ref().map_or(0, |published| published.writes);
    let devices = decision.devices.len();
    tracing::info!(devices, writes, anomalies = decision.anomalies.len(), "Published");
}

#[cfg(test)]
mod tests;
