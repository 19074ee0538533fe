//! The graphs of nodes; each shape is stored once.

use super::{ClusterView, Index, ObjectKey, ViewError};
use crate::nic_drivers::{self, GraphName};
use crate::published_device::{NicName, is_active};
use crate::topology_policy::TopologyPolicy;
use std::collections::BTreeMap;
use std::sync::Arc;
use topology_graph::{
    DeviceIdentity, NodeTopology, NodeTopologySpec, PciAddress, ShapeHash, ShapeSpec, SpecError,
    Topology,
};

/// The addresses of a node's devices by UUID or name.
type Addresses = Box<[(Box<str>, PciAddress)]>;

/// The addresses of a node's NICs by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NicNames {
    rdma_devices: Addresses,
    interfaces: Addresses,
}

impl NicNames {
    fn new(identities: &[DeviceIdentity]) -> Self {
        let mut rdma_devices: Vec<(Box<str>, PciAddress)> = Vec::new();
        let mut interfaces: Vec<(Box<str>, PciAddress)> = Vec::new();
        for device in identities {
            let Ok(address) = device.at.parse() else { continue };
            rdma_devices.extend(device.rdma_device.as_deref().map(|name| (name.into(), address)));
            interfaces.extend(device.netdevs.iter().map(|name| (name.as_str().into(), address)));
        }
        Self { rdma_devices: rdma_devices.into(), interfaces: interfaces.into() }
    }

    /// Returns true if a NIC that a driver publishes by its name can be found elsewhere. Interfaces come
    /// and go with pods, so they count only if a driver publishes their names.
    fn differs(&self, other: &Self) -> bool {
        let has_interface_names = nic_drivers::all()
            .iter()
            .any(|driver| matches!(driver.graph_name, Some(GraphName::Interface(_))));
        self.rdma_devices != other.rdma_devices
            || has_interface_names && self.interfaces != other.interfaces
    }
}

/// Graphs by node.
#[derive(Clone, Debug, Default)]
pub(super) struct Graphs {
    nodes: BTreeMap<String, Arc<NodeGraph>>,
    shapes: BTreeMap<ShapeHash, Shape>,
    /// The published objects, if they are kept.
    objects: Option<BTreeMap<String, NodeTopology>>,
}

/// What a node has published.
#[derive(Debug)]
struct NodeGraph {
    graph: Arc<Topology>,
    /// Its fabric, which is not part of its shape.
    fabric: Option<String>,
    /// True if its driver lets no container lock all of its memory.
    limits_memory: bool,
    /// The policy of its kubelet for the GPUs of device plugins.
    policy: Option<TopologyPolicy>,
    /// The NICs whose port is not active.
    down: Box<[PciAddress]>,
    /// The addresses of GPUs by UUID, for drivers that publish no address.
    gpus: Addresses,
    /// The addresses of NICs by their names. Nodes of one type share them.
    nics: Arc<NicNames>,
}

/// The common part of nodes with one shape.
#[derive(Clone, Debug)]
struct Shape {
    /// The spec that was published first.
    spec: Arc<ShapeSpec>,
    graph: Arc<Topology>,
    /// The NICs' names on the node that published it first.
    nics: Arc<NicNames>,
    /// The number of nodes that have it.
    nodes: usize,
}

impl Graphs {
    pub(super) fn keep_objects(&mut self) {
        self.objects.get_or_insert_default();
    }

    pub(super) fn of(&self, node: &str) -> Option<&Arc<Topology>> {
        self.nodes.get(node).map(|node| &node.graph)
    }

    pub(super) fn fabric(&self, node: &str) -> Option<&str> {
        self.nodes.get(node)?.fabric.as_deref()
    }

    pub(super) fn limits_memory(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| node.limits_memory)
    }

    pub(super) fn topology_policy(&self, node: &str) -> Option<TopologyPolicy> {
        self.nodes.get(node)?.policy
    }

    pub(super) fn is_port_down(&self, node: &str, nic: PciAddress) -> bool {
        self.nodes.get(node).is_some_and(|node| node.down.contains(&nic))
    }

    pub(super) fn gpu(&self, node: &str, uuid: &str) -> Option<PciAddress> {
        address_of(uuid, &self.nodes.get(node)?.gpus)
    }

    pub(super) fn nic(&self, node: &str, name: NicName<'_>) -> Option<PciAddress> {
        let names = &self.nodes.get(node)?.nics;
        match name {
            NicName::RdmaDevice(name) => address_of(name, &names.rdma_devices),
            NicName::Interface(name) => address_of(name, &names.interfaces),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn object(&self, node: &str) -> Option<&NodeTopology> {
        self.objects.as_ref()?.get(node)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = (&str, &NodeTopology)> {
        self.objects.iter().flatten().map(|(name, object)| (name.as_str(), object))
    }

    /// Adds or replaces the graph of a node. Returns true if the node had no graph, or one of
    /// another shape or with other GPUs, and whether something else about its devices changed.
    fn put(&mut self, object: NodeTopology) -> Result<(bool, bool), ViewError> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let spec = &object.spec;
        let graph = self
            .graph(spec)
            .map_err(|source| ViewError::Topology { name: name.clone(), source })?;
        let known = self.nodes.get(&name).cloned();
        let known = known.filter(|known| known.graph.shape() == graph.shape());
        if known.is_none() {
            self.remove(&name);
        }
        let shape = self.shapes.entry(graph.shape());
        let shape = shape.or_insert_with(|| Shape::new(spec, graph));
        shape.nodes += usize::from(known.is_none());
        let node = Arc::new(NodeGraph::new(spec, shape));
        let is_new = known.as_ref().is_none_or(|known| known.differs(&node));
        let has_other_state = known.is_some_and(|known| known.has_other_state(&node));
        self.nodes.insert(name.clone(), node);
        if let Some(objects) = &mut self.objects {
            objects.insert(name, object);
        }
        Ok((is_new, has_other_state))
    }

    /// The graph for a spec, reused if its shape is known: thousands of nodes have few shapes, and
    /// building a graph takes much longer than comparing specs.
    fn graph(&self, spec: &NodeTopologySpec) -> Result<Arc<Topology>, SpecError> {
        let hash = spec.shape.hash.parse::<ShapeHash>();
        let known = hash.ok().and_then(|hash| self.shapes.get(&hash));
        match known.filter(|known| *known.spec == spec.shape) {
            Some(known) => Ok(known.graph.clone()),
            None => Topology::from_spec(spec).map(Arc::new),
        }
    }

    fn remove(&mut self, node: &str) {
        if let Some(objects) = &mut self.objects {
            objects.remove(node);
        }
        let Some(node) = self.nodes.remove(node) else { return };
        // Readers may have its graph for longer.
        let hash = node.graph.shape();
        let Some(shape) = self.shapes.get_mut(&hash) else { return };
        shape.nodes -= 1;
        if shape.nodes == 0 {
            self.shapes.remove(&hash);
        }
    }
}

impl Shape {
    fn new(spec: &NodeTopologySpec, graph: Arc<Topology>) -> Self {
        let nics = Arc::new(NicNames::new(&spec.identities));
        Self { spec: Arc::new(spec.shape.clone()), graph, nics, nodes: 0 }
    }
}

impl NodeGraph {
    fn new(spec: &NodeTopologySpec, shape: &Shape) -> Self {
        let nics = NicNames::new(&spec.identities);
        let down =
            spec.nics.iter().filter(|nic| nic.state.as_deref().is_some_and(|it| !is_active(it)));
        let named = spec
            .identities
            .iter()
            .filter_map(|device| Some((device.uuid.as_deref()?.into(), device.at.parse().ok()?)));
        Self {
            graph: shape.graph.clone(),
            fabric: spec.fabric.clone(),
            limits_memory: spec.locked_memory == Some(false),
            policy: spec.topology_manager_policy.as_deref().and_then(|name| name.parse().ok()),
            down: down.filter_map(|nic| nic.at.parse().ok()).collect(),
            gpus: named.collect(),
            nics: if *shape.nics == nics { shape.nics.clone() } else { Arc::new(nics) },
        }
    }

    /// Returns true if devices that a driver publishes by their names can be found elsewhere.
    fn differs(&self, other: &Self) -> bool {
        self.gpus != other.gpus || self.nics.differs(&other.nics)
    }

    /// Returns true if what can change while a machine runs is different.
    fn has_other_state(&self, other: &Self) -> bool {
        self.policy != other.policy || self.down != other.down
    }
}

fn address_of(name: &str, known: &Addresses) -> Option<PciAddress> {
    known.iter().find(|(known, _)| **known == *name).map(|(_, address)| *address)
}

impl Index<NodeTopology> for ClusterView {
    fn apply(&mut self, object: NodeTopology) -> Result<(), ViewError> {
        // The shape does not include anything that changes while a machine runs.
        let node = object.metadata.name.clone().unwrap_or_default();
        let (is_new, has_other_state) = self.graphs.put(object)?;
        // Plans do not read the state.
        self.revision.epoch += u64::from(is_new);
        if is_new || has_other_state {
            self.versions.devices_changed(&node);
        }
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.revision.epoch += 1;
        self.versions.devices_changed(&key.name);
        self.graphs.remove(&key.name);
        self.forget_if_gone(&key.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;
    use std::path::Path;

    const EXAMPLE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/examples/aks-gb300/cluster.yaml");

    /// The example's published object, renamed to another node.
    fn published(name: &str) -> NodeTopology {
        let objects = snapshot::objects(Path::new(EXAMPLE)).unwrap().into_iter();
        let mut graphs = objects.filter(|object| object["kind"] == "NodeTopology");
        let mut graph: NodeTopology = serde_json::from_value(graphs.next().unwrap()).unwrap();
        graph.metadata.name = Some(name.to_owned());
        graph
    }

    #[test]
    fn nodes_of_one_shape_share_its_graph() {
        let mut view = ClusterView::default();
        view.apply(published("a")).unwrap();
        view.apply(published("b")).unwrap();
        let graph = |view: &ClusterView, node| view.topology(node).cloned();
        assert!(Arc::ptr_eq(&graph(&view, "a").unwrap(), &graph(&view, "b").unwrap()));
        assert!(view.node_topology("a").is_none(), "objects are not kept unasked");

        let epoch = view.epoch();
        view.apply(published("a")).unwrap();
        assert_eq!(view.epoch(), epoch, "what is the same makes no plan old");

        let delete = |view: &mut ClusterView, node| {
            Index::<NodeTopology>::delete(view, &ObjectKey::cluster_wide(node));
        };
        delete(&mut view, "a");
        assert!(graph(&view, "a").is_none() && graph(&view, "b").is_some());
        assert_eq!(view.graphs.shapes.len(), 1);
        let (copy, read) = (view.clone(), graph(&view, "b"));
        delete(&mut view, "b");
        assert_eq!(view.graphs.shapes.len(), 0, "a shape that no node has, whoever reads it");
        assert!(read.is_some() && copy.graphs.shapes.len() == 1);
    }

    /// A known shape is trusted only if it equals the spec that was published first.
    #[test]
    fn an_invalid_graph_is_rejected_even_with_a_known_hash() {
        let mut view = ClusterView::default();
        view.apply(published("a")).unwrap();
        let mut wrong = published("b");
        wrong.spec.shape.vertices[0].at = "nowhere".to_owned();
        assert!(view.apply(wrong).is_err());
        assert!(view.topology("b").is_none());
    }

    #[test]
    fn each_node_has_its_own_fabric() {
        let mut view = ClusterView::default();
        let put = |view: &mut ClusterView, node: &str, fabric: Option<&str>| {
            let mut graph = published(node);
            graph.spec.fabric = fabric.map(str::to_owned);
            view.apply(graph).unwrap();
        };
        put(&mut view, "a", Some("east"));
        put(&mut view, "b", Some("west"));
        assert_eq!((view.fabric("a"), view.fabric("b")), (Some("east"), Some("west")));
        put(&mut view, "a", Some("west"));
        put(&mut view, "b", None);
        assert_eq!((view.fabric("a"), view.fabric("b")), (Some("west"), None));
        Index::<NodeTopology>::delete(&mut view, &ObjectKey::cluster_wide("a"));
        assert_eq!(view.fabric("a"), None);
    }

    #[test]
    fn objects_are_kept_on_request() {
        let mut view = ClusterView::default();
        view.keep_topologies();
        view.apply(published("a")).unwrap();
        assert!(view.node_topology("a").is_some());
        Index::<NodeTopology>::delete(&mut view, &ObjectKey::cluster_wide("a"));
        assert!(view.node_topology("a").is_none());
    }
}
