//! The cluster as decisions see it: an index of slices, classes, claims, nodes and their
//! topologies.
//!
//! Watches and snapshots feed it through the same two functions; decisions read it. It does no IO
//! and reads no clock.

mod claims;
mod compute_domains;
mod devices;
mod foreign_topologies;
mod graphs;
mod grouped;
mod known_machines;
mod late_claims;
mod limit_ranges;
mod namespaces;
mod nic_pools;
mod plugin_pods;
mod pod_groups;
mod quotas;
mod recovered;
mod services;
mod versions;
mod volumes;

pub use claims::{ClosedClaim, KnownClaim};
pub use compute_domains::{ComputeDomains, MadeDomain};
pub use foreign_topologies::{ForeignTopologies, NodeHome};
pub use late_claims::{LateClaim, late_binding};
pub use limit_ranges::LimitRanges;
pub use nic_pools::{KnownPool, NicPools};
pub use plugin_pods::has_plugin_gpus;
pub use pod_groups::{GroupTree, PodGroups, UnknownGroup};
pub use quotas::Quotas;
pub use versions::NodeVersion;
pub use volumes::Volumes;

use crate::published_device::NicName;
use crate::remembered::{self, Remembered, RememberedError};
use crate::stand_in::StandIns;
use crate::topology_policy::TopologyPolicy;
use claims::Claims;
use dra_allocator::{ClaimName, DeviceId, Inventory, InventoryError, Settings};
use graphs::Graphs;
use grouped::Grouped;
use k8s_openapi::api::resource::v1::{ResourceClaimTemplate, ResourceClaimTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use plugin_pods::Units;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use topology_graph::{NodeTopology, PciAddress, SpecError, Topology};
use versions::Versions;

/// An object cannot be added to the view; the view is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The allocator does not support a slice, class, node or claim.
    #[error("failed to index {kind} `{name}`")]
    Inventory {
        /// The kind of the object.
        kind: &'static str,
        /// Its name, with the namespace if it has one.
        name: String,
        /// The error.
        source: InventoryError,
    },
    /// A NodeTopology does not hold a graph.
    #[error("failed to read the graph of NodeTopology `{name}`")]
    Topology {
        /// The name of the object, which is the node's name.
        name: String,
        /// The error.
        source: SpecError,
    },
    /// An entry of the remembered machines does not have this version's format.
    #[error("failed to read remembered machine `{key}`; delete it from its ConfigMap")]
    Remembered {
        /// The key in the ConfigMap.
        key: String,
        /// The error.
        source: RememberedError,
    },
}

/// The extended resource of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExtendedResource {
    name: String,
    /// The creation time of the class.
    created: Option<Timestamp>,
}

/// An extended resource of GPUs that a node's device plugin offers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PluginResource {
    name: &'static str,
    /// The units of the node, whether or not they are healthy or in use.
    units: u64,
}

/// Adds and removes objects of one kind; the only way to change an index.
pub trait Index<K> {
    /// Adds or replaces an object.
    fn apply(&mut self, object: K) -> Result<(), ViewError>;
    /// Removes the object with this key.
    fn delete(&mut self, key: &ObjectKey);
    /// Called when all existing objects have been applied.
    fn listed(&mut self) {}
    /// Called when the API server is known to serve the kind, which may have no object.
    fn served(&mut self) {}
}

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object.
    pub fn new(metadata: &ObjectMeta) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster_wide(name: &str) -> Self {
        Self { namespace: String::new(), name: name.to_owned() }
    }
}

impl From<&ObjectKey> for ClaimName {
    fn from(key: &ObjectKey) -> Self {
        Self::new(key.namespace.as_str(), key.name.as_str())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// Version numbers of parts of a view. They are never reused, so a decision made from a part is
/// current as long as its number is unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// Changes with everything that a plan is made from: slices, classes, graphs, nodes, the
    /// version. Claims do not count.
    pub epoch: u64,
    /// Changes with the claims.
    pub claims: u64,
    /// Changes with the templates of claims and with `ComputeDomain`s, which have templates.
    pub templates: u64,
    /// Changes with what other schedulers say of the network.
    pub levels: u64,
    /// Changes with volumes and with the labels of namespaces.
    pub placement: u64,
}

/// The indexed cluster, at first an empty one of the newest known version. Large parts are behind
/// pointers, so that copies are cheap.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    inventory: Inventory,
    settings: Settings,
    graphs: Graphs,
    claims: Claims,
    /// Claims for places by pool.
    late_claims: Grouped<LateClaim>,
    /// Pods with GPUs of a device plugin by node.
    plugin_pods: Grouped<Units>,
    templates: BTreeMap<ObjectKey, Arc<ResourceClaimTemplate>>,
    quotas: Quotas,
    limit_ranges: LimitRanges,
    /// Selectors of Services.
    services: services::Services,
    /// Labels of namespaces.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    volumes: Volumes,
    nic_pools: NicPools,
    pod_groups: PodGroups,
    compute_domains: ComputeDomains,
    foreign_topologies: ForeignTopologies,
    remembered: BTreeMap<String, Arc<Remembered>>,
    /// Extended resources by class, for classes that have one.
    extended: BTreeMap<String, ExtendedResource>,
    /// Extended resources of GPUs that device plugins offer, by node.
    plugins: BTreeMap<String, Vec<PluginResource>>,
    /// Nodes that take no new pods.
    closed: BTreeSet<String>,
    /// Graphs of nodes that publish none.
    stand_ins: StandIns,
    revision: Revision,
    versions: Versions,
}

impl ClusterView {
    /// The slices, classes, nodes and allocated devices, in the allocator's form.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// The version and feature gates of the cluster's scheduler.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets the version and feature gates of the cluster's scheduler.
    pub fn set_settings(&mut self, settings: Settings) {
        if self.settings != settings {
            self.revision.epoch += 1;
            self.versions.everything_changed();
        }
        self.settings = settings;
    }

    /// The volumes that are known.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// Version numbers of the view's parts.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// A number that changes with everything that a plan is made from.
    pub fn epoch(&self) -> u64 {
        self.revision.epoch
    }

    /// Version numbers of everything that a result about a node depends on.
    pub fn node_version(&self, node: &str) -> NodeVersion {
        self.versions.of(node)
    }

    /// The class for an extended resource. Of several classes, the newest one is used; among those
    /// created at the same time, the first by name (`extendedresourcecache` in
    /// `k8s.io/dynamic-resource-allocation/deviceclass`).
    pub fn class_of_extended_resource(&self, resource: &str) -> Option<&str> {
        let classes = self.extended.iter().filter(|(_, of)| of.name == resource);
        // Among equal ones, `min_by_key` returns the first.
        classes.min_by_key(|(_, of)| Reverse(of.created)).map(|(class, _)| class.as_str())
    }

    /// The extended resource of a class, if any; quotas on it then apply.
    pub fn extended_resource(&self, class: &str) -> Option<&str> {
        self.extended.get(class).map(|of| of.name.as_str())
    }

    /// The nodes on which a device plugin offers an extended resource of GPUs.
    pub fn nodes_with_plugin(&self, resource: &str) -> impl Iterator<Item = &str> {
        let nodes = self.plugins.keys().map(String::as_str);
        let nodes = nodes.filter(|node| !self.is_remembered(node));
        nodes.filter(move |node| self.plugin_units(node, resource).is_some())
    }

    /// How many units of an extended resource of GPUs the device plugin of a node, or of a remembered
    /// machine, has, whether or not
    /// they are healthy or in use. `None` if no device plugin offers it.
    pub fn plugin_units(&self, node: &str, resource: &str) -> Option<u64> {
        let offered = self.plugins.get(node)?.iter().find(|offered| offered.name == resource)?;
        Some(offered.units)
    }

    /// The graph of a node: the published one, or else that of its machine type. Nodes of one shape
    /// share it, so its identities (UUIDs, names) may be those of another node.
    pub fn topology(&self, node: &str) -> Option<&Arc<Topology>> {
        self.graphs.of(node).or_else(|| self.stand_ins.topology(node))
    }

    /// The nodes without machines that are only remembered.
    pub fn present_nodes(&self) -> impl Iterator<Item = &str> {
        let nodes = self.inventory().node_names().map(|name| &**name);
        nodes.filter(|node| !self.is_remembered(node))
    }

    /// Whether a node takes no new pods: it is cordoned, not ready or under pressure.
    pub fn is_closed(&self, node: &str) -> bool {
        self.closed.contains(node)
    }

    /// The value of a label of a node.
    pub fn node_label(&self, node: &str, key: &str) -> Option<&str> {
        self.inventory().node(node)?.labels.get(key).map(|value| &**value)
    }

    /// The PCI address of a GPU of a node, from its graph.
    pub fn gpu_address(&self, node: &str, uuid: &str) -> Option<PciAddress> {
        self.graphs.gpu(node, uuid)
    }

    /// The PCI address of a NIC of a node by its RDMA device or interface, from its graph.
    pub fn nic_address(&self, node: &str, name: NicName<'_>) -> Option<PciAddress> {
        self.graphs.nic(node, name)
    }

    /// The network of a node's NICs, from its graph.
    pub fn fabric(&self, node: &str) -> Option<&str> {
        self.graphs.fabric(node)
    }

    /// Returns true if the driver of a node does not let containers lock all of their memory.
    pub fn limits_locked_memory(&self, node: &str) -> bool {
        self.graphs.limits_memory(node)
    }

    /// The policy of a node's kubelet for the GPUs of device plugins, if its driver knows it.
    pub fn topology_policy(&self, node: &str) -> Option<TopologyPolicy> {
        self.graphs.topology_policy(node)
    }

    /// Returns true if the port of a node's NIC is not active, as its graph said last.
    pub fn is_port_down(&self, node: &str, nic: PciAddress) -> bool {
        self.graphs.is_port_down(node, nic)
    }

    /// The claims for places of a pool: NICs that are chosen when a pod starts.
    pub fn late_claims(&self, pool: &str) -> impl Iterator<Item = &LateClaim> {
        self.late_claims.of(pool).map(|(_, claim)| claim)
    }

    /// The same with their names.
    pub fn late_claims_by_key(&self, pool: &str) -> impl Iterator<Item = (&ObjectKey, &LateClaim)> {
        self.late_claims.of(pool)
    }

    /// What a claim for places holds; `None` if it has no places.
    pub fn late_claim(&self, key: &ObjectKey) -> Option<&LateClaim> {
        self.late_claims.get(key).map(|(_, claim)| claim)
    }

    /// The pods on a node with units of an extended resource of GPUs, and how many each has. Only programs
    /// that watch pods know any.
    pub fn plugin_pods(
        &self,
        node: &str,
        resource: &str,
    ) -> impl Iterator<Item = (&ObjectKey, u64)> {
        let pods = self.plugin_pods.of(node);
        pods.filter_map(move |(pod, units)| Some((pod, *units.get(resource)?)))
    }

    /// Returns true if any node has published a graph.
    pub fn has_graphs(&self) -> bool {
        !self.graphs.is_empty()
    }

    /// Keeps every `NodeTopology` added from now on unchanged, for display. Decisions use the graph
    /// of the shape, which is stored once.
    pub fn keep_topologies(&mut self) {
        self.graphs.keep_objects();
    }

    /// The `NodeTopology` of a node with its own identities, if they are kept.
    pub fn node_topology(&self, node: &str) -> Option<&NodeTopology> {
        self.graphs.object(node)
    }

    /// All kept `NodeTopologies`, by node name.
    pub fn node_topologies(&self) -> impl Iterator<Item = (&str, &NodeTopology)> {
        self.graphs.objects()
    }

    /// The claim with this key.
    pub fn claim(&self, key: &ObjectKey) -> Option<&KnownClaim> {
        self.claims.get(key)
    }

    /// Every claim.
    pub fn claims(&self) -> impl Iterator<Item = (&ObjectKey, &KnownClaim)> {
        self.claims.iter()
    }

    /// The claims after this key in name order, or all claims, for iteration in several steps.
    pub fn claims_after(
        &self,
        key: Option<&ObjectKey>,
    ) -> impl Iterator<Item = (&ObjectKey, &KnownClaim)> {
        self.claims.after(key)
    }

    /// The spec of a template.
    pub fn template(&self, key: &ObjectKey) -> Option<&ResourceClaimTemplateSpec> {
        self.templates.get(key)?.spec.as_ref()
    }

    /// Every template.
    pub fn templates(&self) -> impl Iterator<Item = (&ObjectKey, &ResourceClaimTemplate)> {
        self.templates.iter().map(|(key, template)| (key, &**template))
    }

    /// A template with its metadata.
    pub fn template_object(&self, key: &ObjectKey) -> Option<&ResourceClaimTemplate> {
        self.templates.get(key).map(|template| &**template)
    }

    /// The resources that quotas limit in each namespace.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// What `LimitRange`s demand in each namespace.
    pub fn limit_ranges(&self) -> &LimitRanges {
        &self.limit_ranges
    }

    /// Returns true if a node is a remembered machine instead of a real node.
    pub fn is_remembered(&self, node: &str) -> bool {
        remembered::is_name(node)
    }

    /// The devices that a claim holds, as a whole or a share.
    pub fn held_by(&self, claim: &ObjectKey) -> impl Iterator<Item = &DeviceId> + use<'_> {
        self.inventory.held_by(&claim.into())
    }

    /// The node of a device: mostly its pool is named like it.
    pub fn node_of(&self, device: &DeviceId) -> Option<Arc<str>> {
        if self.inventory.node(&device.pool).is_some() {
            return Some(Arc::clone(&device.pool));
        }
        let mut slices = self.inventory.slices();
        let slice =
            slices.find(|it| it.pool.driver == device.driver && it.pool.pool == device.pool);
        slice?.node_name().cloned()
    }
}

impl Index<ResourceClaimTemplate> for ClusterView {
    fn apply(&mut self, mut object: ResourceClaimTemplate) -> Result<(), ViewError> {
        object.metadata.managed_fields = None;
        self.revision.templates += 1;
        self.templates.insert(ObjectKey::new(&object.metadata), Arc::new(object));
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.revision.templates += 1;
        self.templates.remove(key);
    }
}

fn inventory_error(kind: &'static str, metadata: &ObjectMeta, source: InventoryError) -> ViewError {
    ViewError::Inventory { kind, name: ObjectKey::new(metadata).to_string(), source }
}

fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}
