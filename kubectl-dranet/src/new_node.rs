//! A node that does not exist yet: a copy of a node of the cluster, a machine that admission remembers, or
//! a machine type that is built in. Its devices are healthy.

#[cfg(feature = "machines")]
pub(crate) mod built_in;
#[cfg(not(feature = "machines"))]
#[path = "new_node/no_built_in.rs"]
pub(crate) mod built_in;

use crate::nodes::machine;
use cluster_model::published_device::recovered;
use cluster_model::view::{ClusterView, Index as _};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use topology_graph::NodeTopology;

const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// The objects of a node.
#[derive(Clone, Debug)]
pub(crate) struct NewNode {
    pub(crate) node: Node,
    pub(crate) slices: Vec<ResourceSlice>,
    pub(crate) graph: Option<NodeTopology>,
}

impl NewNode {
    /// A node like one of the cluster or one that admission remembers, or else of a machine type that is
    /// built in. `kept` has the nodes, slices and graphs of the cluster.
    pub(crate) fn of_type(
        shape: &str,
        name: &str,
        (view, kept): (&ClusterView, &[Value]),
    ) -> anyhow::Result<Self> {
        let Some(model) = model(view, shape) else {
            return built_in::node(shape, name)?.ok_or_else(|| unknown(view, shape));
        };
        let new = match view.remembered_node(&model) {
            Some(remembered) => {
                let objects = remembered.as_node(name);
                Self { node: objects.node, slices: objects.slices, graph: Some(objects.topology) }
            }
            None => Self::like(&model, kept, name)?,
        };
        Ok(new.healthy())
    }

    /// Copies the objects of a node of the cluster under another name.
    fn like(model: &str, kept: &[Value], name: &str) -> anyhow::Result<Self> {
        let mut node: Node = read(object(kept, "Node", model).unwrap_or(&Value::Null))?;
        node.metadata.name = Some(name.to_owned());
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert(HOSTNAME_LABEL.to_owned(), name.to_owned());
        let mut slices = Vec::new();
        let own = kept
            .iter()
            .filter(|it| it["kind"] == "ResourceSlice" && it["spec"]["nodeName"] == model);
        for slice in own {
            let mut slice: ResourceSlice = read(slice)?;
            slice.metadata.name = Some(format!("{name}/{}", slices.len()));
            slice.spec.node_name = Some(name.to_owned());
            let pool = &mut slice.spec.pool.name;
            *pool = if pool == model { name.to_owned() } else { format!("{pool}-{name}") };
            slices.push(slice);
        }
        let graph = object(kept, "NodeTopology", model).map(read::<NodeTopology>).transpose()?;
        let graph = graph.map(|mut graph| {
            graph.metadata.name = Some(name.to_owned());
            graph
        });
        Ok(Self { node, slices, graph })
    }

    /// Adds the objects to a view.
    pub(crate) fn put_into(&self, view: &mut ClusterView) -> anyhow::Result<()> {
        view.apply(self.node.clone())?;
        self.graph.clone().map_or(Ok(()), |graph| view.apply(graph))?;
        self.slices.iter().try_for_each(|slice| view.apply(slice.clone()))?;
        Ok(())
    }

    /// The same without what passes: troubles of devices, conditions and taints of the node, and its
    /// cordon; and without what else is of one node, such as owners.
    fn healthy(mut self) -> Self {
        for slice in &mut self.slices {
            slice.metadata = plain(&slice.metadata);
            let devices = slice.spec.devices.take();
            slice.spec.devices = devices.map(|all| all.into_iter().map(recovered).collect());
        }
        if let Some(graph) = &mut self.graph {
            graph.metadata = plain(&graph.metadata);
        }
        self.node.metadata = plain(&self.node.metadata);
        let taints = self.node.spec.take().and_then(|spec| spec.taints).unwrap_or_default();
        let kept = taints.into_iter().filter(|taint| !taint.key.contains("node.kubernetes.io/"));
        let kept: Vec<Taint> = kept.collect();
        self.node.spec =
            (!kept.is_empty()).then(|| NodeSpec { taints: Some(kept), ..NodeSpec::default() });
        self.node.status = self.node.status.take().map(|status| NodeStatus {
            allocatable: status.allocatable,
            capacity: status.capacity,
            ..NodeStatus::default()
        });
        self
    }
}

/// The object with this kind and name.
fn object<'k>(kept: &'k [Value], kind: &str, name: &str) -> Option<&'k Value> {
    kept.iter().find(|it| it["kind"] == kind && it["metadata"]["name"] == name)
}

/// Its name and labels.
fn plain(metadata: &ObjectMeta) -> ObjectMeta {
    let ObjectMeta { name, labels, .. } = metadata.clone();
    ObjectMeta { name, labels, ..ObjectMeta::default() }
}

/// The named node, or a node or a remembered machine of this type or shape.
fn model(view: &ClusterView, shape: &str) -> Option<String> {
    let found = models(view).find(|node| {
        let hash = view.topology(node).map(|graph| graph.shape().to_string());
        *node == shape || machine(view, node) == shape || hash.as_deref() == Some(shape)
    });
    found.map(str::to_owned)
}

/// The nodes and the remembered machines of a cluster.
pub(crate) fn models(view: &ClusterView) -> impl Iterator<Item = &str> {
    let remembered =
        view.inventory().node_names().map(|name| &**name).filter(|it| view.is_remembered(it));
    view.present_nodes().chain(remembered)
}

fn unknown(view: &ClusterView, shape: &str) -> anyhow::Error {
    let known: BTreeSet<String> = models(view).map(|node| machine(view, node)).collect();
    let known = known.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let known =
        if known.is_empty() { known } else { format!("; machine types of the cluster: {known}") };
    anyhow::anyhow!(
        "invalid value `{shape}`: no node has this shape, and no machine type with this name is built \
         in{known}; `kubectl dranet machines` lists all"
    )
}

fn read<K: DeserializeOwned>(object: &Value) -> anyhow::Result<K> {
    Ok(K::deserialize(object)?)
}
