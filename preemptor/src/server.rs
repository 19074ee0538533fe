//! The controller's process.

mod args;

pub use args::{Args, LimitArgs, RuleArgs};

use crate::controller::{Controller, Settings};
use crate::metrics::Metrics;
use cluster_model::names::object;
use cluster_model::watch::{self, SharedView};
use fabric_controller::size_paths::SizePaths;
use k8s_openapi::api::core::v1::Namespace;
use prometheus_client::registry::Registry;
use serve::controller;

/// Runs the controller until SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args { controller, drivers, size_paths, rules, limits } = args;
    cluster_model::drivers::use_file(drivers.as_deref())?;
    let process = controller::Controller::start(controller, object::PREEMPTOR_LEASE).await?;
    let (client, readiness) = (process.client.clone(), process.readiness.clone());
    let mut registry = Registry::with_prefix("dranet");
    let view = SharedView::default();
    let settings = Settings {
        rules: rules.into(),
        limits: limits.into(),
        dry_run: limits.dry_run,
        evictions_per_minute: limits.evictions_per_minute,
        moves_per_hour: limits.moves_per_hour,
        size_paths: SizePaths::with(size_paths),
    };
    let metrics = Metrics::register(&mut registry);
    let controller = Controller::new(client.clone(), view.clone(), settings, metrics);
    let listed = |kind| readiness.wait_for(kind);
    let watches = async {
        futures::join!(
            watch::follow(client.clone(), view.clone(), listed),
            watch::follow_kind::<Namespace, _>(client, view, listed("namespaces")),
        );
    };
    Box::pin(process.run(registry, watches, || controller.work(&readiness))).await
}
