//! The cluster, live or from files.

use crate::args::{AdmissionArgs, SourceArgs};
use crate::live::Cluster;
use anyhow::Context as _;
use cluster_model::snapshot;
use cluster_model::view::ClusterView;
use fabric_controller::nodes::Nodes;
use fabric_controller::pods::Pods;
use k8s_openapi::api::core::v1::Pod;
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
pub(crate) fn read(args: &SourceArgs) -> anyhow::Result<ClusterView> {
    match &args.snapshot {
        Some(path) => Ok(snapshot::load(path)?.0),
        None => Cluster::connect(&args.kube)?.view(),
    }
}

/// Reads the same, and the namespace of the kubeconfig's context.
pub(crate) fn read_with_namespace(
    args: &SourceArgs,
) -> anyhow::Result<(ClusterView, Option<String>)> {
    if let Some(path) = &args.snapshot {
        return Ok((snapshot::load(path)?.0, None));
    }
    let cluster = Cluster::connect(&args.kube)?;
    Ok((cluster.view()?, Some(cluster.default_namespace())))
}

/// Reads the same and the quotas of all namespaces; what is to be said where these may
/// not be read.
pub(crate) fn read_with_quotas(args: &SourceArgs) -> anyhow::Result<(ClusterView, Vec<String>)> {
    if let Some(path) = &args.snapshot {
        return Ok((snapshot::load(path)?.0, Vec::new()));
    }
    let cluster = Cluster::connect(&args.kube)?;
    let mut view = cluster.view()?;
    let quotas = cluster.add_quotas(&mut view);
    let note = quotas
        .err()
        .map(|error| format!("the quotas were not read, and no finding tells of them: {error}"));
    Ok((view, note.into_iter().collect()))
}

/// Reads the same, and what admission knows beside: quotas of the namespace, and
/// machines that were there once. Not all who may see nodes may see these, so
/// that their absence is told and no error.
pub(crate) fn read_as_admission(
    args: &SourceArgs,
    admission: &AdmissionArgs,
    namespace: Option<&str>,
) -> anyhow::Result<Seen> {
    let asked = namespace.or(admission.namespace.as_deref()).map(str::to_owned);
    if let Some(path) = &args.snapshot {
        let (view, _) = snapshot::load(path)?;
        return Ok(Seen { view, namespace: asked, notes: Vec::new() });
    }
    let cluster = Cluster::connect(&args.kube)?;
    let mut view = cluster.view()?;
    let namespace = asked.unwrap_or_else(|| cluster.default_namespace());
    let quotas = cluster.add_quotas_of(&namespace, &mut view);
    let machines = cluster.add_remembered_machines(&admission.admission_namespace, &mut view);
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

/// The pods and nodes as the choice of a fabric sees them.
pub(crate) fn read_for_groups(args: &SourceArgs) -> anyhow::Result<(Pods, Nodes)> {
    let Some(path) = &args.snapshot else {
        return Cluster::connect(&args.kube)?.pods_and_nodes();
    };
    let (mut pods, mut nodes) = (Pods::default(), Nodes::default());
    for object in snapshot::load_objects(path)? {
        match object["kind"].as_str() {
            Some("Pod") => _ = pods.apply(&serde_json::from_value(object)?),
            Some("Node") => _ = nodes.apply(&serde_json::from_value(object)?),
            _ => {}
        }
    }
    Ok((pods, nodes))
}

/// The pods of a namespace, or of all.
pub(crate) fn pods(args: &SourceArgs, namespace: Option<&str>) -> anyhow::Result<Vec<Pod>> {
    let Some(path) = &args.snapshot else { return Cluster::connect(&args.kube)?.pods(namespace) };
    let mut pods = Vec::new();
    for object in snapshot::load_objects(path)? {
        if object["kind"] != "Pod" {
            continue;
        }
        let pod: Pod = serde_json::from_value(object)?;
        if namespace.is_none_or(|asked| pod.metadata.namespace.as_deref() == Some(asked)) {
            pods.push(pod);
        }
    }
    Ok(pods)
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
