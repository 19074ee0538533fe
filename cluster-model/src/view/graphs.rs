//! The graphs of nodes; each shape is stored once.

use super::{ClusterView, Index, ObjectKey, ViewError};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use topology_graph::{
    NodeTopology, NodeTopologySpec, PciAddress, ShapeHash, ShapeSpec, SpecError, Topology,
};

/// The addresses of a node's devices by UUID or name.
type Addresses = Box<[(Box<str>, PciAddress)]>;

/// Graphs by node.
#[derive(Clone, Debug, Default)]
pub(super) struct Graphs {
    nodes: BTreeMap<String, Arc<Topology>>,
    shapes: BTreeMap<ShapeHash, Shape>,
    /// The fabrics of nodes, which are not part of their shapes.
    fabrics: HashMap<String, String>,
    /// The nodes whose driver lets no container lock all of its memory.
    limited: BTreeSet<String>,
    /// The addresses of GPUs by UUID, for drivers that publish no address.
    gpus: HashMap<String, Addresses>,
    /// The addresses of NICs by RDMA device. Nodes of one type share them.
    nics: HashMap<String, Arc<Addresses>>,
    /// The published objects, if they are kept.
    objects: Option<BTreeMap<String, NodeTopology>>,
}

/// The common part of nodes with one shape.
#[derive(Clone, Debug)]
struct Shape {
    /// The spec that was published first.
    spec: Arc<ShapeSpec>,
    graph: Arc<Topology>,
    /// The RDMA devices of the node that published it first.
    nics: Arc<Addresses>,
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

    pub(super) fn gpu(&self, node: &str, uuid: &str) -> Option<PciAddress> {
        let known = self.gpus.get(node)?.iter().find(|(known, _)| **known == *uuid);
        known.map(|(_, address)| *address)
    }

    pub(super) fn nic(&self, node: &str, rdma_device: &str) -> Option<PciAddress> {
        let known = self.nics.get(node)?.iter().find(|(known, _)| **known == *rdma_device);
        known.map(|(_, address)| *address)
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
    /// another shape or with other GPUs.
    fn put(&mut self, object: NodeTopology) -> Result<bool, ViewError> {
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
        self.name_nics(&name, &object.spec);
        match &object.spec.fabric {
            Some(fabric) => self.fabrics.insert(name.clone(), fabric.clone()),
            None => self.fabrics.remove(&name),
        };
        match object.spec.locked_memory {
            Some(false) => self.limited.insert(name.clone()),
            _ => self.limited.remove(&name),
        };
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
        Ok(is_new)
    }

    /// Stores the names of a node's RDMA devices.
    fn name_nics(&mut self, node: &str, spec: &NodeTopologySpec) {
        let named = spec.identities.iter().filter_map(|device| {
            Some((device.rdma_device.as_deref()?.into(), device.at.parse().ok()?))
        });
        let mut named: Arc<Addresses> = Arc::new(named.collect());
        let shape = self.nodes.get(node).and_then(|graph| self.shapes.get_mut(&graph.shape()));
        if let Some(shape) = shape {
            if shape.nics.is_empty() {
                shape.nics = named.clone();
            } else if shape.nics == named {
                named = shape.nics.clone();
            }
        }
        self.nics.insert(node.to_owned(), named);
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
        if self.graphs.put(object)? {
            self.revision.epoch += 1;
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
