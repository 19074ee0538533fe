//! The graphs of nodes; each shape is stored once.

use super::{ClusterView, Index, ObjectKey, ViewError};
use crate::nic_drivers::{self, GraphName};
use crate::published_device::{NicName, is_active};
use crate::topology_policy::TopologyPolicy;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    nodes: BTreeMap<String, Arc<Topology>>,
    shapes: BTreeMap<ShapeHash, Shape>,
    /// The fabrics of nodes, which are not part of their shapes.
    fabrics: HashMap<String, String>,
    /// The nodes whose driver lets no container lock all of its memory.
    limited: BTreeSet<String>,
    /// The policies of kubelets for the GPUs of device plugins.
    policies: HashMap<String, TopologyPolicy>,
    /// The NICs whose port is not active, of nodes that have one.
    down: HashMap<String, Box<[PciAddress]>>,
    /// The addresses of GPUs by UUID, for drivers that publish no address.
    gpus: HashMap<String, Addresses>,
    /// The addresses of NICs by their names. Nodes of one type share them.
    nics: HashMap<String, Arc<NicNames>>,
    /// The published objects, if they are kept.
    objects: Option<BTreeMap<String, NodeTopology>>,
}

/// The common part of nodes with one shape.
#[derive(Clone, Debug)]
struct Shape {
    /// The spec that was published first.
    spec: Arc<ShapeSpec>,
    graph: Arc<Topology>,
    /// The NICs' names on the node that published it first.
    nics: Arc<NicNames>,
}

impl Graphs {
    pub(super) fn keep_objects(&mut self) {
        self.objects.get_or_insert_default();
    }

    pub(super) fn of(&self, node: &str) -> Option<&Arc<Topology>> {
        self.nodes.get(node)
    }

    pub(super) fn fabric(&self, node: &str) -> Option<&str> {
        self.fabrics.get(node).map(String::as_str)
    }

    pub(super) fn limits_memory(&self, node: &str) -> bool {
        self.limited.contains(node)
    }

    pub(super) fn topology_policy(&self, node: &str) -> Option<TopologyPolicy> {
        self.policies.get(node).copied()
    }

    pub(super) fn is_port_down(&self, node: &str, nic: PciAddress) -> bool {
        self.down.get(node).is_some_and(|down| down.contains(&nic))
    }

    pub(super) fn gpu(&self, node: &str, uuid: &str) -> Option<PciAddress> {
        let known = self.gpus.get(node)?.iter().find(|(known, _)| **known == *uuid);
        known.map(|(_, address)| *address)
    }

    pub(super) fn nic(&self, node: &str, name: NicName<'_>) -> Option<PciAddress> {
        let names = self.nics.get(node)?;
        let (names, name) = match name {
            NicName::RdmaDevice(name) => (&names.rdma_devices, name),
            NicName::Interface(name) => (&names.interfaces, name),
        };
        names.iter().find(|(known, _)| **known == *name).map(|(_, address)| *address)
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
        let graph = self
            .graph(&object.spec)
            .map_err(|source| ViewError::Topology { name: name.clone(), source })?;
        let is_new = self.nodes.get(&name).is_none_or(|known| known.shape() != graph.shape());
        if is_new {
            self.remove(&name);
            let spec = || Arc::new(object.spec.shape.clone());
            let shape = self.shapes.entry(graph.shape());
            let shape =
                shape.or_insert_with(|| Shape { spec: spec(), graph, nics: Arc::default() });
            self.nodes.insert(name.clone(), shape.graph.clone());
        }
        let has_other_names = self.name_nics(&name, &object.spec);
        match &object.spec.fabric {
            Some(fabric) => self.fabrics.insert(name.clone(), fabric.clone()),
            None => self.fabrics.remove(&name),
        };
        match object.spec.locked_memory {
            Some(false) => self.limited.insert(name.clone()),
            _ => self.limited.remove(&name),
        };
        let is_new = is_new || has_other_names;
        let has_other_state = self.keep_state(&name, &object.spec);
        let named =
            object.spec.identities.iter().filter_map(|device| {
                Some((device.uuid.as_deref()?.into(), device.at.parse().ok()?))
            });
        let named: Box<[(Box<str>, PciAddress)]> = named.collect();
        let had = self.gpus.insert(name.clone(), named.clone());
        let is_new = is_new || had.is_none_or(|had| had != named);
        if let Some(objects) = &mut self.objects {
            objects.insert(name, object);
        }
        Ok((is_new, has_other_state))
    }

    /// Stores what can change while the machine runs. Returns true if it did.
    fn keep_state(&mut self, node: &str, spec: &NodeTopologySpec) -> bool {
        let policy = spec.topology_manager_policy.as_deref().and_then(|name| name.parse().ok());
        let had_policy = match policy {
            Some(policy) => self.policies.insert(node.to_owned(), policy),
            None => self.policies.remove(node),
        };
        let down =
            spec.nics.iter().filter(|nic| nic.state.as_deref().is_some_and(|it| !is_active(it)));
        let down = down.filter_map(|nic| nic.at.parse().ok());
        let down: Box<[PciAddress]> = down.collect();
        let is_same = down[..] == *self.down.get(node).map(|down| &**down).unwrap_or_default();
        if down.is_empty() {
            self.down.remove(node);
        } else {
            self.down.insert(node.to_owned(), down);
        }
        had_policy != policy || !is_same
    }

    /// Stores the names of a node's RDMA devices and interfaces. Returns true if they changed, as far as
    /// NICs are found by them.
    fn name_nics(&mut self, node: &str, spec: &NodeTopologySpec) -> bool {
        let mut named = Arc::new(NicNames::new(&spec.identities));
        let shape = self.nodes.get(node).and_then(|graph| self.shapes.get_mut(&graph.shape()));
        if let Some(shape) = shape {
            if *shape.nics == NicNames::default() {
                shape.nics = named.clone();
            } else if shape.nics == named {
                named = shape.nics.clone();
            }
        }
        let had = self.nics.insert(node.to_owned(), named.clone());
        had.is_some_and(|had| had.differs(&named))
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
        self.fabrics.remove(node);
        self.limited.remove(node);
        self.policies.remove(node);
        self.down.remove(node);
        self.gpus.remove(node);
        self.nics.remove(node);
        let Some(graph) = self.nodes.remove(node) else { return };
        // One reference is `graph`, the other is the entry in `shapes`.
        if Arc::strong_count(&graph) == 2 {
            self.shapes.remove(&graph.shape());
        }
    }
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
        delete(&mut view, "b");
        assert_eq!(view.graphs.shapes.len(), 0, "a shape that no node has is forgotten");
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
