//! A controller's process: of several replicas, the one that holds the Lease works; all of them watch,
//! and serve health and metrics.

use crate::args::{LeaseArgs, OperationsArgs};
use crate::http::Bound;
use crate::lease::Lease;
use crate::operations;
use crate::readiness::Readiness;
use anyhow::Context as _;
use kube::Client;
use process::args::{KubeArgs, LogArgs};
use prometheus_client::registry::Registry;
use std::fmt;
use tokio_util::sync::CancellationToken;

/// Flags of every controller.
#[derive(clap::Args, Clone, Debug)]
pub struct ControllerArgs {
    /// Health and metrics.
    #[command(flatten)]
    pub operations: OperationsArgs,
    /// The cluster.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
    /// Leadership among replicas.
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// Namespace of its Lease; defaults to the service account's
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// A controller that has started and does nothing yet.
pub struct Controller {
    /// The cluster.
    pub client: Client,
    /// Delays the leader's work and `/readyz`.
    pub readiness: Readiness,
    operations: Bound,
    lease: Lease,
    stop: CancellationToken,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Controller {
    /// Connects to the cluster, and listens for signals and for requests of operators. `lease` is the
    /// name of the Lease.
    ///
    /// # Errors
    /// The cluster, or the address of the operators' server, cannot be used.
    pub async fn start(args: ControllerArgs, lease: &str) -> anyhow::Result<Self> {
        let ControllerArgs { operations, kube, log, lease: lease_args, namespace } = args;
        process::logging::init(&log)?;
        let stop = process::run::stop_on_signal().context("failed to listen for signals")?;
        let client = process::client::connect(&kube).await?;
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let operations = Bound::plain(operations.operations_listen)?;
        tracing::info!(operations = %operations.address(), "Starting");
        tokio::spawn(process::memory::keep_small());
        let lease = Lease::new(client.clone(), &namespace, lease, lease_args.duration());
        Ok(Self { client, readiness: Readiness::default(), operations, lease, stop })
    }

    /// Watches, serves, and works while this replica leads, until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// The watches or the operators' server ended.
    pub async fn run<W: Future<Output = ()>>(
        self,
        registry: Registry,
        watches: impl Future<Output = ()>,
        work: impl Fn() -> W,
    ) -> anyhow::Result<()> {
        let Self { client: _, readiness, operations, lease, stop } = self;
        // Readiness waits from here on, not only from the start of the watches.
        let begun = readiness.wait_for("watches");
        let watches = async { tokio::join!(watches, async { drop(begun) }) };
        let router = operations::router(readiness, registry);
        let ended = stop.clone();
        let serving = async {
            let result = tokio::select! {
                _ = watches => Err(anyhow::anyhow!("every watch ended")),
                served = operations.serve(router, stop.clone()) => served.map_err(Into::into),
            };
            ended.cancel();
            result
        };
        let (result, ()) = tokio::join!(serving, lease.lead(stop.clone(), work));
        result
    }
}
