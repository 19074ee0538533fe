//! The cluster, live or from files.

use crate::args::SourceArgs;
use anyhow::Context as _;
use cluster_model::view::ClusterView;
use cluster_model::{snapshot, watch};
use serde_json::Value;
use std::io::Read as _;
use std::path::Path;

/// Reads every object that the commands need, once.
pub(crate) async fn read(args: &SourceArgs) -> anyhow::Result<ClusterView> {
    if let Some(path) = &args.snapshot {
        let (view, _) = snapshot::load(path)?;
        return Ok(view);
    }
    let client = serve::client::connect(&args.kube).await?;
    watch::read(client).await.context("failed to read the cluster")
}

/// The objects of a file; `-` is standard input.
pub(crate) fn objects(path: &Path) -> anyhow::Result<Vec<Value>> {
    if path != Path::new("-") {
        return Ok(snapshot::objects(path)?);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("failed to read standard input")?;
    Ok(snapshot::parse(&text, path)?)
}
