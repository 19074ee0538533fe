//! Nodes to add, copied from existing or remembered nodes.

use crate::args::AddedNodes;
use crate::nodes::machine;
use cluster_model::room::Nodes;
use cluster_model::view::{ClusterView, Index as _};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use topology_graph::NodeTopology;

const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// The objects of a node.
struct Objects {
    node: Node,
    slices: Vec<ResourceSlice>,
    graph: Option<NodeTopology>,
}

/// Adds nodes named `added-1` and so on after `before`; returns how many were added. `kept` has
/// the nodes, slices and graphs of the cluster.
pub(super) fn add(
    view: &mut ClusterView,
    facts: &mut Nodes,
    kept: &[Value],
    (asked, before): (&AddedNodes, usize),
) -> anyhow::Result<usize> {
    let model = model(view, &asked.shape)?;
    for number in before..before + asked.number {
        let name = format!("added-{}", number + 1);
        anyhow::ensure!(
            view.inventory().node(&name).is_none(),
            "cannot add node `{name}`: a node with this name exists"
        );
        let Objects { node, slices, graph } = match view.remembered_node(&model) {
            Some(remembered) => {
                let objects = remembered.as_node(&name);
                let (node, graph) = (objects.node, Some(objects.topology));
                Objects { node, slices: objects.slices, graph }
            }
            None => like(&model, kept, &name)?,
        };
        facts.apply_of_file(&node);
        view.apply(node)?;
        graph.map_or(Ok(()), |graph| view.apply(graph))?;
        slices.into_iter().try_for_each(|slice| view.apply(slice))?;
    }
    Ok(asked.number)
}

/// The named node, or the machine that admission remembers.
fn model(view: &ClusterView, shape: &str) -> anyhow::Result<String> {
    let all = || {
        let remembered =
            view.inventory().node_names().map(|name| &**name).filter(|it| view.is_remembered(it));
        view.present_nodes().chain(remembered)
    };
    let found = all().find(|node| {
        let hash = view.topology(node).map(|graph| graph.shape().to_string());
        *node == shape || machine(view, node) == shape || hash.as_deref() == Some(shape)
    });
    if let Some(found) = found {
        return Ok(found.to_owned());
    }
    let known: BTreeSet<String> = all().map(|node| machine(view, node)).collect();
    let known = known.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    anyhow::bail!("invalid value `{shape}`: no node has this shape; machine types: {known}")
}

/// Copies the objects of a node of the cluster under another name.
fn like(model: &str, kept: &[Value], name: &str) -> anyhow::Result<Objects> {
    let of_kind = |kind: &'static str| kept.iter().filter(move |object| object["kind"] == kind);
    let named = |object: &&Value| object["metadata"]["name"] == model;
    let mut node: Node = read(of_kind("Node").find(named).unwrap_or(&Value::Null))?;
    node.metadata.name = Some(name.to_owned());
    node.metadata.labels.get_or_insert_default().insert(HOSTNAME_LABEL.to_owned(), name.to_owned());
    let mut slices = Vec::new();
    for slice in of_kind("ResourceSlice").filter(|slice| slice["spec"]["nodeName"] == model) {
        let mut slice: ResourceSlice = read(slice)?;
        slice.metadata.name = Some(format!("{name}/{}", slices.len()));
        slice.spec.node_name = Some(name.to_owned());
        let pool = &mut slice.spec.pool.name;
        *pool = if pool == model { name.to_owned() } else { format!("{pool}-{name}") };
        slices.push(slice);
    }
    let graph = of_kind("NodeTopology").find(named).map(read::<NodeTopology>).transpose()?;
    let graph = graph.map(|mut graph| {
        graph.metadata.name = Some(name.to_owned());
        graph
    });
    Ok(Objects { node, slices, graph })
}

fn read<K: DeserializeOwned>(object: &Value) -> anyhow::Result<K> {
    Ok(K::deserialize(object)?)
}
