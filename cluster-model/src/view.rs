//! The cluster as decisions see it: slices, classes, claims, nodes and their
//! topologies, indexed.
//!
//! Watches and snapshots feed it by the same three verbs; whoever decides reads
//! it. No IO, no clock.

mod quotas;
pub(crate) mod recall;

pub use quotas::Quotas;

use crate::gpu_drivers::GPU_DRIVERS;
use crate::remembered::{Remembered, RememberedError};
use crate::stand_in::StandIns;
use dra_allocator::{ClaimName, Inventory, InventoryError, MinorVersion, Settings};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceClaimTemplateSpec, ResourceSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use topology_graph::{NodeTopology, ShapeHash, SpecError, Topology};

/// An object could not be taken into the view; the view is as before.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// A slice, class, node or claim is not what the allocator understands.
    #[error("failed to index {kind} `{name}`")]
    Inventory {
        /// Its kind.
        kind: &'static str,
        /// Its name, with the namespace where it has one.
        name: String,
        /// What is wrong.
        source: InventoryError,
    },
    /// A NodeTopology does not hold a graph.
    #[error("failed to read the graph of NodeTopology `{name}`")]
    Topology {
        /// Name of the object, which is the node's.
        name: String,
        /// What is wrong.
        source: SpecError,
    },
    /// An entry of the remembered machines is not what this version wrote.
    #[error("failed to read remembered machine `{key}`; delete it from its ConfigMap")]
    Remembered {
        /// Key in the ConfigMap.
        key: String,
        /// What is wrong.
        source: RememberedError,
    },
}

/// Objects of one kind go in and out of an index by these verbs only.
pub trait Index<K> {
    /// Adds the object, or replaces the one of its name.
    fn apply(&mut self, object: K) -> Result<(), ViewError>;
    /// Removes the object of this name.
    fn delete(&mut self, object: &K);
    /// Replaces all objects of the kind; returns an error for each that was
    /// left out.
    fn reset(&mut self, objects: Vec<K>) -> Vec<ViewError>;
}

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The indexed cluster.
#[derive(Debug)]
pub struct ClusterView {
    inventory: Inventory,
    settings: Settings,
    nodes: BTreeMap<String, ShapeHash>,
    shapes: BTreeMap<ShapeHash, Arc<Topology>>,
    topologies: BTreeMap<String, NodeTopology>,
    claims: BTreeMap<ObjectKey, ResourceClaim>,
    templates: BTreeMap<ObjectKey, ResourceClaimTemplate>,
    quotas: Quotas,
    remembered: BTreeMap<String, Remembered>,
    /// Extended resource by class, where the class stands for one.
    extended: BTreeMap<String, String>,
    /// Extended resources of GPUs that device plugins offer, by node.
    plugins: BTreeMap<String, Vec<String>>,
    /// Graphs of nodes that publish none.
    stand_ins: StandIns,
    epoch: u64,
}

impl Default for ClusterView {
    /// An empty cluster of the newest version that is known.
    fn default() -> Self {
        Self {
            inventory: Inventory::new(),
            settings: Settings::defaults_of(MinorVersion::V1_37),
            nodes: BTreeMap::new(),
            shapes: BTreeMap::new(),
            topologies: BTreeMap::new(),
            claims: BTreeMap::new(),
            templates: BTreeMap::new(),
            quotas: Quotas::default(),
            remembered: BTreeMap::new(),
            extended: BTreeMap::new(),
            plugins: BTreeMap::new(),
            stand_ins: StandIns::default(),
            epoch: 0,
        }
    }
}

impl ClusterView {
    /// Slices, classes, nodes and allocated devices, as the allocator takes them.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Version and feature gates of the cluster's scheduler.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Says which version and gates the scheduler has.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
        self.epoch += 1;
    }

    /// A number that changes with everything that a plan is made from: slices,
    /// classes, graphs, nodes, the version. Claims do not count.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The classes that stand for an extended resource, by name.
    pub fn classes_of_extended_resource(&self, resource: &str) -> impl Iterator<Item = &str> {
        let classes = self.extended.iter();
        classes.filter(move |(_, of)| *of == resource).map(|(class, _)| class.as_str())
    }

    /// Whether a class stands for an extended resource, so that quota holds.
    pub fn extended_resource(&self, class: &str) -> Option<&str> {
        self.extended.get(class).map(String::as_str)
    }

    /// The nodes on which a device plugin offers an extended resource of GPUs.
    pub fn nodes_with_plugin(&self, resource: &str) -> impl Iterator<Item = &str> {
        let offers = move |names: &[String]| names.iter().any(|name| name == resource);
        let nodes = self.plugins.iter().filter(move |(_, names)| offers(names));
        nodes.map(|(node, _)| node.as_str())
    }

    /// The graph of a node, if it has published one, else that of its type of
    /// machine. Nodes of one shape share it, so its identities (UUIDs, names) are
    /// those of any of them.
    pub fn topology(&self, node: &str) -> Option<&Arc<Topology>> {
        let own = self.nodes.get(node).and_then(|shape| self.shapes.get(shape));
        own.or_else(|| self.stand_ins.topology(node))
    }

    /// The NodeTopology of a node, with its own identities.
    pub fn node_topology(&self, node: &str) -> Option<&NodeTopology> {
        self.topologies.get(node)
    }

    /// Every published NodeTopology, by node name.
    pub fn node_topologies(&self) -> impl Iterator<Item = (&str, &NodeTopology)> {
        self.topologies.iter().map(|(name, object)| (name.as_str(), object))
    }

    /// A claim.
    pub fn claim(&self, key: &ObjectKey) -> Option<&ResourceClaim> {
        self.claims.get(key)
    }

    /// Every claim.
    pub fn claims(&self) -> impl Iterator<Item = (&ObjectKey, &ResourceClaim)> {
        self.claims.iter()
    }

    /// What a template holds.
    pub fn template(&self, key: &ObjectKey) -> Option<&ResourceClaimTemplateSpec> {
        self.templates.get(key)?.spec.as_ref()
    }

    /// Every template.
    pub fn templates(&self) -> impl Iterator<Item = (&ObjectKey, &ResourceClaimTemplate)> {
        self.templates.iter()
    }

    /// A template with its metadata.
    pub fn template_object(&self, key: &ObjectKey) -> Option<&ResourceClaimTemplate> {
        self.templates.get(key)
    }

    /// What namespaces may use of each resource.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Whether a node is none that is there, but a machine that was there once.
    pub fn is_remembered(&self, node: &str) -> bool {
        recall::is_name(node)
    }

    fn forget_topology(&mut self, node: &str) {
        self.topologies.remove(node);
        let Some(hash) = self.nodes.remove(node) else { return };
        if !self.nodes.values().any(|other| *other == hash) {
            self.shapes.remove(&hash);
        }
    }
}

impl Index<NodeTopology> for ClusterView {
    fn apply(&mut self, object: NodeTopology) -> Result<(), ViewError> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let topology = Topology::from_spec(&object.spec)
            .map_err(|source| ViewError::Topology { name: name.clone(), source })?;
        self.epoch += 1;
        self.forget_topology(&name);
        let hash = topology.shape();
        self.shapes.entry(hash).or_insert_with(|| Arc::new(topology));
        self.nodes.insert(name.clone(), hash);
        self.topologies.insert(name, object);
        Ok(())
    }

    fn delete(&mut self, object: &NodeTopology) {
        self.epoch += 1;
        self.forget_topology(object.metadata.name.as_deref().unwrap_or_default());
    }

    fn reset(&mut self, objects: Vec<NodeTopology>) -> Vec<ViewError> {
        self.epoch += 1;
        self.nodes.clear();
        self.shapes.clear();
        self.topologies.clear();
        let errors = apply_all(self, objects);
        self.recall();
        errors
    }
}

impl Index<ResourceClaimTemplate> for ClusterView {
    fn apply(&mut self, mut object: ResourceClaimTemplate) -> Result<(), ViewError> {
        object.metadata.managed_fields = None;
        self.templates.insert(key(&object.metadata), object);
        Ok(())
    }

    fn delete(&mut self, object: &ResourceClaimTemplate) {
        self.templates.remove(&key(&object.metadata));
    }

    fn reset(&mut self, objects: Vec<ResourceClaimTemplate>) -> Vec<ViewError> {
        self.templates.clear();
        apply_all(self, objects)
    }
}

impl Index<ResourceClaim> for ClusterView {
    fn apply(&mut self, object: ResourceClaim) -> Result<(), ViewError> {
        self.inventory.apply_claim(&object).map_err(|source| ViewError::Inventory {
            kind: "ResourceClaim",
            name: key(&object.metadata).to_string(),
            source,
        })?;
        self.claims.insert(key(&object.metadata), object);
        Ok(())
    }

    fn delete(&mut self, object: &ResourceClaim) {
        let key = key(&object.metadata);
        self.inventory.delete_claim(&ClaimName::new(key.namespace.as_str(), key.name.as_str()));
        self.claims.remove(&key);
    }

    fn reset(&mut self, objects: Vec<ResourceClaim>) -> Vec<ViewError> {
        self.claims.clear();
        // Emptied first; each object then goes through `apply`, which keeps it here too.
        self.inventory.reset_claims([]);
        apply_all(self, objects)
    }
}

impl Index<ResourceSlice> for ClusterView {
    fn apply(&mut self, object: ResourceSlice) -> Result<(), ViewError> {
        self.epoch += 1;
        self.stand_ins.apply(&object);
        let result = self.inventory.apply_slice(&object);
        result.map_err(|source| inventory_error("ResourceSlice", &object.metadata, source))
    }

    fn delete(&mut self, object: &ResourceSlice) {
        self.epoch += 1;
        self.stand_ins.delete(object);
        self.inventory.delete_slice(name(&object.metadata));
    }

    fn reset(&mut self, objects: Vec<ResourceSlice>) -> Vec<ViewError> {
        self.epoch += 1;
        self.stand_ins = StandIns::default();
        self.inventory.reset_slices([]);
        let errors = apply_all(self, objects);
        self.recall();
        errors
    }
}

impl Index<DeviceClass> for ClusterView {
    fn apply(&mut self, object: DeviceClass) -> Result<(), ViewError> {
        self.epoch += 1;
        let result = self.inventory.apply_class(&object);
        result.map_err(|source| inventory_error("DeviceClass", &object.metadata, source))?;
        let class = name(&object.metadata).to_owned();
        match object.spec.and_then(|spec| spec.extended_resource_name) {
            Some(resource) => self.extended.insert(class, resource),
            None => self.extended.remove(&class),
        };
        Ok(())
    }

    fn delete(&mut self, object: &DeviceClass) {
        self.epoch += 1;
        self.extended.remove(name(&object.metadata));
        self.inventory.delete_class(name(&object.metadata));
    }

    fn reset(&mut self, objects: Vec<DeviceClass>) -> Vec<ViewError> {
        self.epoch += 1;
        self.extended.clear();
        self.inventory.reset_classes([]);
        apply_all(self, objects)
    }
}

impl Index<Node> for ClusterView {
    fn apply(&mut self, object: Node) -> Result<(), ViewError> {
        let before = self.inventory.node(name(&object.metadata)).cloned();
        let result = self.inventory.apply_node(&object);
        result.map_err(|source| inventory_error("Node", &object.metadata, source))?;
        // A node's status changes all the time; what plans see of it does not.
        let plugins = plugins(&object);
        let node = name(&object.metadata);
        let same = self.inventory.node(node) == before.as_ref()
            && self.plugins.get(node).map(Vec::as_slice).unwrap_or_default() == plugins;
        self.epoch += u64::from(!same);
        if plugins.is_empty() {
            self.plugins.remove(node);
        } else {
            self.plugins.insert(node.to_owned(), plugins);
        }
        Ok(())
    }

    fn delete(&mut self, object: &Node) {
        self.epoch += 1;
        self.plugins.remove(name(&object.metadata));
        self.inventory.delete_node(name(&object.metadata));
    }

    fn reset(&mut self, objects: Vec<Node>) -> Vec<ViewError> {
        self.epoch += 1;
        self.plugins.clear();
        self.inventory.reset_nodes([]);
        let errors = apply_all(self, objects);
        self.recall();
        errors
    }
}

/// The extended resources of GPUs that device plugins offer on a node.
fn plugins(node: &Node) -> Vec<String> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let known = GPU_DRIVERS.iter().flat_map(|driver| driver.extended_resources);
    let offered = |resource: &&&str| {
        allocatable
            .and_then(|allocatable| allocatable.get(**resource))
            .is_some_and(|quantity| quantity.0 != "0")
    };
    known.filter(offered).map(|resource| (*resource).to_owned()).collect()
}

fn inventory_error(kind: &'static str, metadata: &ObjectMeta, source: InventoryError) -> ViewError {
    ViewError::Inventory { kind, name: name(metadata).to_owned(), source }
}

fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

fn apply_all<K>(view: &mut impl Index<K>, objects: Vec<K>) -> Vec<ViewError> {
    objects.into_iter().filter_map(|object| view.apply(object).err()).collect()
}

fn key(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
