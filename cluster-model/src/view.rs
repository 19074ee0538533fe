//! The cluster as decisions see it: slices, classes, claims, nodes and their
//! topologies, indexed.
//!
//! Watches and snapshots feed it by the same three verbs; whoever decides reads
//! it. No IO, no clock.

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
    templates: BTreeMap<ObjectKey, ResourceClaimTemplateSpec>,
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
    }

    /// The graph of a node, if it has published one. Nodes of one shape share
    /// it, so its identities (UUIDs, names) are those of any of them.
    pub fn topology(&self, node: &str) -> Option<&Arc<Topology>> {
        self.shapes.get(self.nodes.get(node)?)
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

    /// What a template holds.
    pub fn template(&self, key: &ObjectKey) -> Option<&ResourceClaimTemplateSpec> {
        self.templates.get(key)
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
        self.forget_topology(&name);
        let hash = topology.shape();
        self.shapes.entry(hash).or_insert_with(|| Arc::new(topology));
        self.nodes.insert(name.clone(), hash);
        self.topologies.insert(name, object);
        Ok(())
    }

    fn delete(&mut self, object: &NodeTopology) {
        self.forget_topology(object.metadata.name.as_deref().unwrap_or_default());
    }

    fn reset(&mut self, objects: Vec<NodeTopology>) -> Vec<ViewError> {
        self.nodes.clear();
        self.shapes.clear();
        self.topologies.clear();
        apply_all(self, objects)
    }
}

impl Index<ResourceClaimTemplate> for ClusterView {
    fn apply(&mut self, object: ResourceClaimTemplate) -> Result<(), ViewError> {
        self.templates.insert(key(&object.metadata), object.spec.unwrap_or_default());
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

/// The kinds that only the allocator keeps, by name.
macro_rules! index_in_inventory {
    ($kind:ident, $apply:ident, $delete:ident, $reset:ident) => {
        impl Index<$kind> for ClusterView {
            fn apply(&mut self, object: $kind) -> Result<(), ViewError> {
                self.inventory.$apply(&object).map_err(|source| ViewError::Inventory {
                    kind: stringify!($kind),
                    name: object.metadata.name.clone().unwrap_or_default(),
                    source,
                })
            }

            fn delete(&mut self, object: &$kind) {
                self.inventory.$delete(object.metadata.name.as_deref().unwrap_or_default());
            }

            fn reset(&mut self, objects: Vec<$kind>) -> Vec<ViewError> {
                self.inventory.$reset([]);
                apply_all(self, objects)
            }
        }
    };
}

index_in_inventory!(ResourceSlice, apply_slice, delete_slice, reset_slices);
index_in_inventory!(DeviceClass, apply_class, delete_class, reset_classes);
index_in_inventory!(Node, apply_node, delete_node, reset_nodes);

fn apply_all<K>(view: &mut impl Index<K>, objects: Vec<K>) -> Vec<ViewError> {
    objects.into_iter().filter_map(|object| view.apply(object).err()).collect()
}

fn key(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
