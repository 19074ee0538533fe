//! The controller's process: watches, leader election, health and metrics.

mod args;
pub(crate) mod metrics;

pub use args::{Args, PlacementArgs};

use crate::controller::Controller;
use crate::level_labels::LevelSources;
use crate::size_paths::SizePaths;
use anyhow::Context as _;
use cluster_model::names::object;
use cluster_model::watch::{self, SharedView};
use metrics::Metrics;
use prometheus_client::registry::Registry;
use serve::http::Bound;
use serve::lease::Lease;
use serve::readiness::Readiness;

/// Runs the controller until SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args {
        operations,
        kube,
        log,
        lease,
        drivers,
        namespace,
        pod_groups,
        placement,
        label_rate,
        level_labels,
        size_paths,
    } = args;
    process::logging::init(&log)?;
    cluster_model::drivers::use_file(drivers.as_deref())?;
    let stop = process::run::stop_on_signal().context("failed to listen for signals")?;
    let client = process::client::connect(&kube).await?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let operations = Bound::plain(operations.operations_listen)?;
    tracing::info!(operations = %operations.address(), "Starting");

    tokio::spawn(process::memory::keep_small());
    let mut registry = Registry::with_prefix("dranet_fabric_controller");
    let metrics = Metrics::register(&mut registry);
    let readiness = Readiness::default();
    let view = SharedView::default();
    let listed = |kind| readiness.wait_for(kind);
    // Readiness waits from here on, not only from the start of the watches.
    let begun = listed("watches");
    let watches = async {
        futures::join!(
            watch::follow(client.clone(), view.clone(), listed),
            watch::follow_foreign_topologies(client.clone(), view.clone(), listed),
            async { drop(begun) },
        );
    };
    let lease = Lease::new(client.clone(), &namespace, object::FABRIC_LEASE, lease.duration());
    let controller = Controller {
        client: client.clone(),
        view: view.clone(),
        policy: placement.into(),
        pod_groups,
        label_rate,
        level_sources: LevelSources::with(level_labels),
        size_paths: SizePaths::with(size_paths),
        metrics,
    };
    let router = serve::operations::router(readiness.clone(), registry);
    let ended = stop.clone();
    let serving = async {
        let result = tokio::select! {
            () = watches => Err(anyhow::anyhow!("every watch ended")),
            served = operations.serve(router, stop.clone()) => served.map_err(Into::into),
        };
        ended.cancel();
        result
    };
    let leading = lease.lead(stop.clone(), || controller.work(&readiness));
    let (result, ()) = tokio::join!(serving, leading);
    result
}
