//! The controller's process.

mod args;
pub(crate) mod metrics;

pub use args::{Args, PlacementArgs};

use crate::controller::Controller;
use crate::level_labels::LevelSources;
use crate::size_paths::SizePaths;
use cluster_model::names::object;
use cluster_model::watch::{self, SharedView, VolumesOnDemand};
use k8s_openapi::api::core::v1::Namespace;
use metrics::Metrics;
use prometheus_client::registry::Registry;
use serve::controller;

/// Runs the controller until SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args { controller, drivers, pod_groups, placement, label_rate, level_labels, size_paths } =
        args;
    cluster_model::drivers::use_file(drivers.as_deref())?;
    let process = controller::Controller::start(controller, object::FABRIC_LEASE).await?;
    let (client, readiness) = (process.client.clone(), process.readiness.clone());
    let mut registry = Registry::with_prefix("dranet_fabric_controller");
    let view = SharedView::default();
    let controller = Controller {
        client: client.clone(),
        view: view.clone(),
        volumes: VolumesOnDemand::new(client.clone(), view.clone()),
        policy: placement.into(),
        pod_groups,
        label_rate,
        level_sources: LevelSources::with(level_labels),
        size_paths: SizePaths::with(size_paths),
        metrics: Metrics::register(&mut registry),
    };
    let listed = |kind| readiness.wait_for(kind);
    let watches = async {
        futures::join!(
            watch::follow(client.clone(), view.clone(), listed),
            watch::follow_kind::<Namespace, _>(client.clone(), view.clone(), listed("namespaces")),
            watch::follow_foreign_topologies(client, view, listed),
        );
    };
    Box::pin(process.run(registry, watches, || controller.work(&readiness))).await
}
