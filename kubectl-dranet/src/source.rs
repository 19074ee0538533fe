//! The cluster, live or from files.

use crate::args::{AdmissionArgs, SourceArgs};
use admission::gang::nodes::Nodes;
use admission::gang::pods::Pods;
use anyhow::Context as _;
use cluster_model::view::ClusterView;
use cluster_model::{read as live, snapshot};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use serde_json::Value;
use std::io::Read as _;
use std::path::Path;

/// A cluster as admission sees it.
pub(crate) struct Seen {
    pub(crate) view: ClusterView,
    /// The namespace of what names none.
    pub(crate) namespace: Option<String>,
    /// What admission sees beside and who asks here may not.
    pub(crate) notes: Vec<String>,
}

/// Reads every object that graphs are shown from, once.
pub(crate) async fn read(args: &SourceArgs) -> anyhow::Result<ClusterView> {
    match &args.snapshot {
        Some(path) => Ok(snapshot::load(path)?.0),
        None => cluster(&serve::client::connect(&args.kube).await?).await,
    }
}

/// Reads the same and the quotas of all namespaces; what is to be said where these may
/// not be read.
pub(crate) async fn read_with_quotas(
    args: &SourceArgs,
) -> anyhow::Result<(ClusterView, Vec<String>)> {
    if let Some(path) = &args.snapshot {
        return Ok((snapshot::load(path)?.0, Vec::new()));
    }
    let client = serve::client::connect(&args.kube).await?;
    let mut view = cluster(&client).await?;
    let quotas = live::all_quotas(&client, &mut view).await;
    let note = quotas
        .err()
        .map(|error| format!("the quotas were not read, and no finding tells of them: {error}"));
    Ok((view, note.into_iter().collect()))
}

/// Reads the same, and what admission knows beside: quotas of the namespace, and
/// machines that were there once. Not all who may see nodes may see these, so
/// that their absence is told and no error.
pub(crate) async fn read_as_admission(
    args: &SourceArgs,
    admission: &AdmissionArgs,
    namespace: Option<&str>,
) -> anyhow::Result<Seen> {
    let asked = namespace.or(admission.namespace.as_deref()).map(str::to_owned);
    if let Some(path) = &args.snapshot {
        let (view, _) = snapshot::load(path)?;
        return Ok(Seen { view, namespace: asked, notes: Vec::new() });
    }
    let client = serve::client::connect(&args.kube).await?;
    let mut view = cluster(&client).await?;
    let namespace = asked.unwrap_or_else(|| client.default_namespace().to_owned());
    let quotas = live::quotas(&client, &namespace, &mut view).await;
    let machines = live::machines(&client, &admission.admission_namespace, &mut view).await;
    let quotas = quotas.err().map(|error| {
        format!("the quotas of namespace `{namespace}` were not read, and no warning tells of them: {error}")
    });
    let machines = machines.err().map(|error| {
        format!(
            "the machines that admission remembers in namespace `{}` were not read; a pool without \
             nodes is not planned for: {error}",
            admission.admission_namespace
        )
    });
    let notes = quotas.into_iter().chain(machines).collect();
    Ok(Seen { view, namespace: Some(namespace), notes })
}

async fn cluster(client: &Client) -> anyhow::Result<ClusterView> {
    live::cluster(client).await.context("failed to read the cluster")
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
    let listed = live::objects::<Pod>(&client).await;
    pods.reset(&listed.context("failed to list pods")?);
    let listed = live::objects::<Node>(&client).await;
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
