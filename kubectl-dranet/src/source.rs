//! The cluster, live or from files.

use crate::args::SourceArgs;
use admission::gang::nodes::Nodes;
use admission::gang::pods::Pods;
use anyhow::Context as _;
use cluster_model::view::ClusterView;
use cluster_model::{snapshot, watch};
use k8s_openapi::api::core::v1::{Node, Pod};
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

/// The pods and nodes as the choice of a fabric sees them.
pub(crate) async fn read_for_groups(args: &SourceArgs) -> anyhow::Result<(Pods, Nodes)> {
    let (mut pods, mut nodes) = (Pods::default(), Nodes::default());
    if let Some(path) = &args.snapshot {
        for object in snapshot::load_objects(path)? {
            match object["kind"].as_str() {
                Some("Pod") => _ = pods.apply(&serde_json::from_value(object)?),
                Some("Node") => _ = nodes.apply(&serde_json::from_value(object)?),
                _ => {}
            }
        }
        return Ok((pods, nodes));
    }
    let client = serve::client::connect(&args.kube).await?;
    let listed = watch::objects::<Pod>(client.clone()).await;
    pods.reset(&listed.context("failed to list pods")?);
    let listed = watch::objects::<Node>(client).await;
    nodes.reset(&listed.context("failed to list nodes")?);
    Ok((pods, nodes))
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
