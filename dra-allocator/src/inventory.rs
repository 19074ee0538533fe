//! The index of a cluster's objects: nodes, slices, classes, and the devices that claims hold.
//!
//! A watch feeds it with `apply`, `delete` and `reset`. It holds exactly what the API server
//! reports, with the taints of `DeviceTaintRules` added to the devices. Allocations that a scheduler
//! has in flight are the caller's hypothesis, made on a clone of [`Inventory::state`].

mod broken;
mod held;
mod pools;
mod slices;
mod taint_rules;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as WireNode;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};

use crate::claim::Class;
use crate::device::{AttributeValue, Device};
use crate::hash::HashMap;
use crate::name::{ClaimName, DeviceId, PoolId};
use crate::node::Node;
use crate::settings::Settings;
use crate::slice::Slice;
use crate::state::AllocatedState;
use crate::wire::{self, Interner, WireError};
use held::Held;
use slices::SliceIndex;
use taint_rules::TaintRule;

pub use broken::PoolProblem;
pub use pools::GatherError;
pub(crate) use pools::{Pool, PoolHealth};
pub(crate) use slices::Place;

/// An object cannot be indexed; the index is unchanged.
#[derive(Debug, thiserror::Error)]
#[error("failed to index a {kind}")]
pub struct InventoryError {
    kind: &'static str,
    source: WireError,
}

impl InventoryError {
    fn of(kind: &'static str) -> impl FnOnce(WireError) -> Self {
        move |source| Self { kind, source }
    }
}

/// The index of a cluster's objects.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    texts: Interner,
    nodes: BTreeMap<Arc<str>, Arc<Node>>,
    classes: HashMap<Arc<str>, Arc<Class>>,
    slices: SliceIndex,
    /// The published slices of those to which rules add taints.
    untainted: HashMap<Arc<str>, Arc<Slice>>,
    taint_rules: BTreeMap<Arc<str>, Arc<TaintRule>>,
    held: Held,
}

impl Inventory {
    /// Creates an empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a `ResourceSlice`.
    pub fn apply_slice(&mut self, slice: &ResourceSlice) -> Result<(), InventoryError> {
        let slice = wire::slice(slice, &mut self.texts);
        self.apply_published(Arc::new(slice.map_err(InventoryError::of("ResourceSlice"))?));
        self.texts.tidy();
        Ok(())
    }

    /// Adds or replaces a slice, with the taints of the rules that concern it.
    fn apply_published(&mut self, slice: Arc<Slice>) {
        let rules = self.taint_rules.values().filter(|rule| rule.concerns(&slice));
        let rules: Vec<&TaintRule> = rules.map(|rule| &**rule).collect();
        if rules.is_empty() {
            self.untainted.remove(&slice.name);
            self.slices.apply(Arc::unwrap_or_clone(slice));
        } else {
            self.slices.apply(taint_rules::merged(&slice, &rules, &mut self.texts));
            self.untainted.insert(slice.name.clone(), slice);
        }
    }

    /// Adds or replaces a `DeviceTaintRule`. Returns the names of the slices that it changes.
    ///
    /// Whether the cluster's scheduler follows rules is its feature gate `DRADeviceTaintRules`; an
    /// API server with that gate off serves none.
    pub fn apply_taint_rule(&mut self, rule: &DeviceTaintRule) -> Vec<Arc<str>> {
        let name = rule.metadata.name.as_deref().unwrap_or_default();
        let new = TaintRule::new(rule, &mut self.texts).map(Arc::new);
        self.change_taint_rule(name, new.as_ref())
    }

    /// Removes the `DeviceTaintRule` with this name. Returns the names of the slices that change.
    pub fn delete_taint_rule(&mut self, name: &str) -> Vec<Arc<str>> {
        self.change_taint_rule(name, None)
    }

    fn change_taint_rule(&mut self, name: &str, new: Option<&Arc<TaintRule>>) -> Vec<Arc<str>> {
        let old = match new {
            Some(new) => self.taint_rules.insert(self.texts.text(name), new.clone()),
            None => self.taint_rules.remove(name),
        };
        if old.as_ref() == new {
            return Vec::new();
        }
        let changed: Vec<Arc<str>> = self
            .slices
            .all()
            .filter(|slice| old.iter().chain(new).any(|rule| rule.concerns(slice)))
            .map(|slice| slice.name.clone())
            .collect();
        self.texts.tidy();
        for name in &changed {
            let published = self.untainted.get(name).or_else(|| self.slices.get(name)).cloned();
            if let Some(published) = published {
                self.apply_published(published);
            }
        }
        changed
    }

    /// What decides on one node: the node, its slices and all others of their pools, the slices of
    /// several nodes, and the classes. It holds no claims and no rules for taints; the taints of rules
    /// are on the devices.
    #[must_use]
    pub fn of_node(&self, name: &str) -> Self {
        let node = self.nodes.get(name).map(|node| (node.name.clone(), node.clone()));
        Self {
            nodes: node.into_iter().collect(),
            classes: self.classes.clone(),
            slices: self.slices.of_node(name),
            ..Self::default()
        }
    }

    /// Supposes that a device has no taints and that these attributes, as far as it publishes them,
    /// have these values: what the index would be if the device recovered.
    pub fn suppose(&mut self, id: &DeviceId, values: &[(&str, AttributeValue)]) {
        let own = self.slices.all().find(|slice| slice.devices.iter().any(|it| it.id == *id));
        let Some(mut slice) = own.cloned() else { return };
        for device in slice.devices.iter_mut().filter(|device| device.id == *id) {
            let untainted = device.with_taints(Vec::new());
            *device = values
                .iter()
                .fold(untainted, |device, (name, value)| device.with_value(name, value));
        }
        slice.likeness = self.texts.likeness(&slice);
        self.slices.apply(slice);
    }

    /// Removes the `ResourceSlice` with this name, if any.
    pub fn delete_slice(&mut self, name: &str) {
        self.untainted.remove(name);
        self.slices.delete(name);
    }

    /// Adds or replaces a `DeviceClass`.
    pub fn apply_class(&mut self, class: &DeviceClass) -> Result<(), InventoryError> {
        let class = wire::class(class, &mut self.texts);
        let class = class.map_err(InventoryError::of("DeviceClass"))?;
        self.classes.insert(class.name.clone(), Arc::new(class));
        Ok(())
    }

    /// Removes the `DeviceClass` with this name, if any.
    pub fn delete_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// Adds or replaces a Node.
    pub fn apply_node(&mut self, node: &WireNode) -> Result<(), InventoryError> {
        let node = wire::node(node, &mut self.texts).map_err(InventoryError::of("Node"))?;
        self.nodes.insert(node.name.clone(), Arc::new(node));
        self.texts.tidy();
        Ok(())
    }

    /// Removes the Node with this name, if any.
    pub fn delete_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Records the devices that a `ResourceClaim` holds.
    pub fn apply_claim(&mut self, claim: &ResourceClaim) -> Result<(), InventoryError> {
        let named = wire::claim_name(claim).map_err(InventoryError::of("ResourceClaim"))?;
        let held = wire::allocated_devices(claim, &mut self.texts);
        let held = held.map_err(InventoryError::of("ResourceClaim"))?;
        self.held.apply(named, held);
        self.texts.tidy();
        Ok(())
    }

    /// Releases the devices that a `ResourceClaim` held.
    pub fn delete_claim(&mut self, name: &ClaimName) {
        self.held.delete(name);
    }

    /// The names of all nodes, sorted.
    pub fn node_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.keys()
    }

    /// The node with this name.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    /// The `DeviceClass` with this name.
    pub fn class(&self, name: &str) -> Option<&Arc<Class>> {
        self.classes.get(name)
    }

    /// The names of all classes, in no defined order.
    pub fn class_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.classes.keys()
    }

    /// The devices that claims hold.
    pub fn state(&self) -> &AllocatedState {
        self.held.state()
    }

    /// The devices that a claim holds, as a whole or a share. Devices with admin access are not
    /// held.
    pub fn held_by<'i>(
        &'i self,
        claim: &ClaimName,
    ) -> impl Iterator<Item = &'i DeviceId> + use<'i> {
        self.held.held_by(claim)
    }

    /// A claim that holds the device or a share of it.
    pub fn holder(&self, device: &DeviceId) -> Option<&ClaimName> {
        self.holders(device).first()
    }

    /// The claims that hold the device or shares of it.
    pub fn holders(&self, device: &DeviceId) -> &[ClaimName] {
        self.held.holders(device)
    }

    /// The devices of a node that can be allocated, in search order. Devices of incomplete and
    /// invalid pools are not included.
    pub fn devices_on(&self, node: &str, settings: &Settings) -> Result<Vec<&Device>, GatherError> {
        let pools = self.pools_on(&self.node_or_named(node), settings)?;
        let slices = pools.into_iter().flat_map(|pool| pool.slices);
        Ok(slices.flat_map(|slice| &slice.devices).collect())
    }

    /// The pools of a node from which nothing can be allocated, with the reason.
    pub fn broken_pools_on(
        &self,
        node: &str,
        settings: &Settings,
    ) -> Result<Vec<(&PoolId, PoolProblem)>, GatherError> {
        Ok(broken::broken(self.pools_on(&self.node_or_named(node), settings)?))
    }

    /// The pools of a node, in search order.
    pub(crate) fn pools_on(
        &self,
        node: &Node,
        settings: &Settings,
    ) -> Result<Vec<Pool<'_>>, GatherError> {
        pools::gather(&self.slices, node, settings)
    }

    /// The node with this name, or a node without labels if it is unknown.
    pub(crate) fn node_or_named(&self, name: &str) -> Arc<Node> {
        self.nodes.get(name).cloned().unwrap_or_else(|| Arc::new(Node::named(name)))
    }

    /// The slices that belong to this node only.
    pub(crate) fn place(&self, node: &str) -> Option<&Place> {
        self.slices.place(node)
    }

    /// The slices of several nodes, in search order.
    pub(crate) fn shared_slices(&self) -> &[Arc<Slice>] {
        self.slices.shared()
    }

    /// The slices of one node only that hold counters, in search order.
    pub(crate) fn counter_slices(&self) -> &[Arc<Slice>] {
        self.slices.counters()
    }

    /// All slices, in no defined order.
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.slices.all()
    }

    /// The slice with this name.
    pub fn slice(&self, name: &str) -> Option<&Slice> {
        self.slices.get(name).map(|slice| &**slice)
    }
}
