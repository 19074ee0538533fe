//! The controller's process: watches, leader election, health and metrics.

mod args;

pub use args::{Args, LimitArgs, RuleArgs};

use crate::controller::{Controller, Settings};
use crate::metrics::Metrics;
use anyhow::Context as _;
use cluster_model::names::object;
use cluster_model::watch::{self, SharedView};
use fabric_controller::size_paths::SizePaths;
use prometheus_client::registry::Registry;
use serve::http::Bound;
use serve::lease::Lease;
use serve::readiness::Readiness;

/// Runs the controller until SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args { operations, kube, log, lease, drivers, namespace, size_paths, rules, limits } = args;
    process::logging::init(&log)?;
    cluster_model::drivers::use_file(drivers.as_deref())?;
    let stop = process::run::stop_on_signal().context("failed to listen for signals")?;
    let client = process::client::connect(&kube).await?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let operations = Bound::plain(operations.operations_listen)?;
    tracing::info!(operations = %operations.address(), "Starting");

    tokio::spawn(process::memory::keep_small());
    let mut registry = Registry::with_prefix("dranet");
    let metrics = Metrics::register(&mut registry);
    let readiness = Readiness::default();
    let view = SharedView::default();
    let listed = |kind| readiness.wait_for(kind);
    // Readiness waits from here on, not only from the start of the watches.
    let begun = listed("watches");
    let watches = async {
        let follow = watch::follow(client.clone(), view.clone(), listed);
        futures::join!(follow, async { drop(begun) });
    };
    let lease = Lease::new(client.clone(), &namespace, object::PREEMPTOR_LEASE, lease.duration());
    let settings = Settings {
        rules: rules.into(),
        limits: limits.into(),
        dry_run: limits.dry_run,
        evictions_per_minute: limits.evictions_per_minute,
        size_paths: SizePaths::with(size_paths),
    };
    let controller = Controller::new(client.clone(), view.clone(), settings, metrics);
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
