//! A node that does not exist yet: a copy of a node of the cluster, a machine that admission remembers, or
//! a machine type that is built in. Its devices are healthy.

use crate::nodes::machine;
use cluster_model::names::label::INSTANCE_TYPE;
use cluster_model::names::{self, attribute};
use cluster_model::published_device::recovered;
use cluster_model::view::{ClusterView, Index as _};
use fabric_controller::machine_labels;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::api::resource::v1::{Device, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use publication::machine_type::{MachineType, MachineTypeError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::NodeTopology;

const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Labels of machines that kubelets set.
const OS_LABEL: (&str, &str) = ("kubernetes.io/os", "linux");

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
            return match MachineType::built_in(shape) {
                Ok(machine) => Self::built_in(machine, name),
                Err(MachineTypeError::Unknown { .. }) => Err(unknown(view, shape)),
                Err(error) => Err(error.into()),
            };
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
        let of_kind = |kind: &'static str| kept.iter().filter(move |object| object["kind"] == kind);
        let named = |object: &&Value| object["metadata"]["name"] == model;
        let mut node: Node = read(of_kind("Node").find(named).unwrap_or(&Value::Null))?;
        node.metadata.name = Some(name.to_owned());
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert(HOSTNAME_LABEL.to_owned(), name.to_owned());
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
        Ok(Self { node, slices, graph })
    }

    /// A node of a machine type that is built in. Its CPUs and memory are not known.
    pub(crate) fn built_in(machine: MachineType, name: &str) -> anyhow::Result<Self> {
        let MachineType { gpu_driver, gpus, nics, graph, .. } = machine;
        let labels = [(HOSTNAME_LABEL, name), OS_LABEL];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut labels = BTreeMap::from(labels);
        let types = nics.iter().filter_map(|nic| nic.attributes.as_ref());
        let size = types.flat_map(|attributes| {
            let names = attribute::MACHINE_TYPES.iter();
            names.filter_map(move |name| attributes.get(*name)?.string.clone())
        });
        labels.extend(size.take(1).map(|size| (INSTANCE_TYPE.to_owned(), size)));
        let node = Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            ..Node::default()
        };
        let of_gpus = gpu_driver.map(|driver| slice(driver.driver, name, gpus));
        let slices = of_gpus.into_iter().chain([slice(names::DRIVER, name, nics)]).collect();
        Self { node, slices, graph: Some(NodeTopology::new(name, graph)) }.labelled(name)
    }

    /// The same with the labels that fabric-controller sets.
    fn labelled(mut self, name: &str) -> anyhow::Result<Self> {
        let mut view = ClusterView::default();
        self.put_into(&mut view)?;
        let due = machine_labels::due(&view).into_iter().filter(|(node, _)| node == name);
        let labels = due.filter_map(|(_, labels)| read::<BTreeMap<String, String>>(&labels).ok());
        self.node.metadata.labels.get_or_insert_default().extend(labels.flatten());
        Ok(self)
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

/// Its name and labels.
fn plain(metadata: &ObjectMeta) -> ObjectMeta {
    let ObjectMeta { name, labels, .. } = metadata.clone();
    ObjectMeta { name, labels, ..ObjectMeta::default() }
}

/// A slice with all devices of a driver on a node.
fn slice(driver: &str, node: &str, devices: Vec<Device>) -> ResourceSlice {
    ResourceSlice {
        metadata: ObjectMeta { name: Some(format!("{node}-{driver}")), ..ObjectMeta::default() },
        spec: ResourceSliceSpec {
            driver: driver.to_owned(),
            node_name: Some(node.to_owned()),
            pool: ResourcePool { name: node.to_owned(), generation: 1, resource_slice_count: 1 },
            devices: Some(devices),
            ..ResourceSliceSpec::default()
        },
    }
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
    anyhow::anyhow!(
        "invalid value `{shape}`: no node has this shape, and no machine type with this name is built \
         in; machine types of the cluster: {known}; `kubectl dranet machines` lists all"
    )
}

fn read<K: DeserializeOwned>(object: &Value) -> anyhow::Result<K> {
    Ok(K::deserialize(object)?)
}
