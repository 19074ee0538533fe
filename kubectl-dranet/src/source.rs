//! The cluster, live or from files.

use crate::args::SourceArgs;
use anyhow::Context as _;
use cluster_model::view::ClusterView;
use cluster_model::{snapshot, watch};

/// Reads every object that the commands need, once.
pub(crate) async fn read(args: &SourceArgs) -> anyhow::Result<ClusterView> {
    if let Some(path) = &args.snapshot {
        let (view, _) = snapshot::load(path)?;
        return Ok(view);
    }
    let client = serve::client::connect(&args.kube).await?;
    watch::read(client).await.context("failed to read the cluster")
}
