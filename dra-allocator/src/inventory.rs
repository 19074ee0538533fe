//! The index of what a cluster has: nodes, slices, classes, and what claims hold.
//!
//! A watch feeds it by `apply`, `delete` and `reset`; questions read it. It holds what the
//! API server says and no more: what a scheduler has in flight is a hypothesis of the caller,
//! made on a clone of [`Inventory::state`]. Taints of `DeviceTaintRules` are not applied here.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as WireNode;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};

use crate::claim::Class;
use crate::device::Device;
use crate::name::{ClaimName, DeviceId, PoolId};
use crate::node::Node;
use crate::pools::{GatherError, gather};
use crate::settings::Settings;
use crate::slice::Slice;
use crate::state::AllocatedState;
use crate::wire::{self, HeldDevice, Interner, WireError};

/// An object could not be taken into the index; the index is as it was before.
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

/// The index.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    texts: Interner,
    nodes: BTreeMap<Arc<str>, Arc<Node>>,
    classes: HashMap<Arc<str>, Arc<Class>>,
    /// By object name. The number says when the slice first came.
    slices: HashMap<Arc<str>, (u64, Arc<Slice>)>,
    /// The names of the slices of one node alone.
    on_node: HashMap<Arc<str>, Vec<Arc<str>>>,
    /// The names of the slices of several nodes.
    shared: Vec<Arc<str>>,
    /// The names of the slices of one node alone that hold counters.
    counters: Vec<Arc<str>>,
    by_pool: HashMap<PoolId, Vec<Arc<str>>>,
    next_slice: u64,
    claims: HashMap<ClaimName, Vec<HeldDevice>>,
    holders: HashMap<DeviceId, Vec<ClaimName>>,
    state: AllocatedState,
}

impl Inventory {
    /// An empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a `ResourceSlice`, or replaces the one of its name.
    pub fn apply_slice(&mut self, slice: &ResourceSlice) -> Result<(), InventoryError> {
        let slice = wire::slice(slice, &mut self.texts);
        let slice = slice.map_err(InventoryError::of("ResourceSlice"))?;
        let kept = self.slices.get(&slice.name).map(|(number, _)| *number);
        self.delete_slice(&slice.name);
        let number = kept.unwrap_or(self.next_slice);
        self.next_slice += u64::from(kept.is_none());
        let name = slice.name.clone();
        match slice.node_name() {
            Some(node) => {
                self.on_node.entry(node.clone()).or_default().push(name.clone());
                self.counters.extend((!slice.shared_counters.is_empty()).then(|| name.clone()));
            }
            None => self.shared.push(name.clone()),
        }
        self.by_pool.entry(slice.pool.clone()).or_default().push(name.clone());
        self.slices.insert(name, (number, Arc::new(slice)));
        Ok(())
    }

    /// Removes the `ResourceSlice` of a name, if there is one.
    pub fn delete_slice(&mut self, name: &str) {
        let Some((_, slice)) = self.slices.remove(name) else { return };
        match slice.node_name() {
            Some(node) => {
                forget(&mut self.on_node, node, name);
                self.counters.retain(|known| **known != *name);
            }
            None => self.shared.retain(|known| **known != *name),
        }
        forget(&mut self.by_pool, &slice.pool, name);
    }

    /// Replaces all `ResourceSlices`; those that cannot be understood are left out and returned.
    pub fn reset_slices<'a>(
        &mut self,
        slices: impl IntoIterator<Item = &'a ResourceSlice>,
    ) -> Vec<InventoryError> {
        self.slices.clear();
        self.on_node.clear();
        self.shared.clear();
        self.counters.clear();
        self.by_pool.clear();
        self.texts.shrink();
        slices.into_iter().filter_map(|slice| self.apply_slice(slice).err()).collect()
    }

    /// Adds a `DeviceClass`, or replaces the one of its name.
    pub fn apply_class(&mut self, class: &DeviceClass) -> Result<(), InventoryError> {
        let class = wire::class(class, &mut self.texts);
        let class = class.map_err(InventoryError::of("DeviceClass"))?;
        self.classes.insert(class.name.clone(), Arc::new(class));
        Ok(())
    }

    /// Removes the `DeviceClass` of a name, if there is one.
    pub fn delete_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// Replaces all `DeviceClasses`; those that cannot be understood are left out and returned.
    pub fn reset_classes<'a>(
        &mut self,
        classes: impl IntoIterator<Item = &'a DeviceClass>,
    ) -> Vec<InventoryError> {
        self.classes.clear();
        classes.into_iter().filter_map(|class| self.apply_class(class).err()).collect()
    }

    /// Adds a Node, or replaces the one of its name.
    pub fn apply_node(&mut self, node: &WireNode) -> Result<(), InventoryError> {
        let node = wire::node(node, &mut self.texts).map_err(InventoryError::of("Node"))?;
        self.nodes.insert(node.name.clone(), Arc::new(node));
        Ok(())
    }

    /// Removes the Node of a name, if there is one.
    pub fn delete_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Replaces all Nodes; those that cannot be understood are left out and returned.
    pub fn reset_nodes<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = &'a WireNode>,
    ) -> Vec<InventoryError> {
        self.nodes.clear();
        nodes.into_iter().filter_map(|node| self.apply_node(node).err()).collect()
    }

    /// Takes over what a `ResourceClaim` holds now.
    pub fn apply_claim(&mut self, claim: &ResourceClaim) -> Result<(), InventoryError> {
        let named = wire::claim_name(claim).map_err(InventoryError::of("ResourceClaim"))?;
        let held = wire::allocated_devices(claim, &mut self.texts);
        let held = held.map_err(InventoryError::of("ResourceClaim"))?;
        self.delete_claim(&named);
        if held.is_empty() {
            return Ok(());
        }
        for device in &held {
            self.holders.entry(device.device.clone()).or_default().push(named.clone());
            hold(&mut self.state, device);
        }
        self.state.settle();
        self.claims.insert(named, held);
        Ok(())
    }

    /// Frees what a `ResourceClaim` held.
    pub fn delete_claim(&mut self, name: &ClaimName) {
        let Some(held) = self.claims.remove(name) else { return };
        for HeldDevice { device, .. } in &held {
            if let Some(holders) = self.holders.get_mut(device) {
                holders.retain(|holder| holder != name);
                if holders.is_empty() {
                    self.holders.remove(device);
                }
            }
            self.state.remove(device);
            self.restore(device);
        }
        self.state.settle();
    }

    /// Marks what other claims still hold of a device.
    fn restore(&mut self, device: &DeviceId) {
        for holder in self.holders.get(device).into_iter().flatten() {
            let held = self.claims.get(holder).into_iter().flatten();
            held.filter(|held| held.device == *device).for_each(|held| hold(&mut self.state, held));
        }
    }

    /// Replaces what all claims hold; those that cannot be understood are left out and returned.
    pub fn reset_claims<'a>(
        &mut self,
        claims: impl IntoIterator<Item = &'a ResourceClaim>,
    ) -> Vec<InventoryError> {
        self.claims.clear();
        self.holders.clear();
        self.state = AllocatedState::new();
        claims.into_iter().filter_map(|claim| self.apply_claim(claim).err()).collect()
    }

    /// The names of all nodes, sorted.
    pub fn node_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.keys()
    }

    /// The node of a name.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    /// The `DeviceClass` of a name.
    pub fn class(&self, name: &str) -> Option<&Arc<Class>> {
        self.classes.get(name)
    }

    /// The names of all classes, in no defined order.
    pub fn class_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.classes.keys()
    }

    /// What claims hold.
    pub fn state(&self) -> &AllocatedState {
        &self.state
    }

    /// A claim that holds the device, or a share of it.
    pub fn holder(&self, device: &DeviceId) -> Option<&ClaimName> {
        self.holders.get(device)?.first()
    }

    /// The devices of a node that can be allocated, in the order in which they are tried; those
    /// of incomplete and invalid pools are left out.
    pub fn devices_on(&self, node: &str, settings: &Settings) -> Result<Vec<&Device>, GatherError> {
        let node = self.node_or_named(node);
        let pools = gather(self, &node, settings)?;
        let slices = pools.into_iter().flat_map(|pool| pool.slices);
        Ok(slices.flat_map(|slice| &slice.devices).collect())
    }

    /// The node of a name; one without labels where nothing is known of it.
    pub(crate) fn node_or_named(&self, name: &str) -> Arc<Node> {
        self.nodes.get(name).cloned().unwrap_or_else(|| Arc::new(Node::named(name)))
    }

    /// The slices of a node: its own, and those of several nodes.
    pub(crate) fn slices_for(&self, node: &str) -> impl Iterator<Item = (u64, &Slice)> {
        let names = self.on_node.get(node).into_iter().flatten().chain(&self.shared);
        self.named(names)
    }

    /// The slices with counters that are of another node alone.
    pub(crate) fn counter_slices_elsewhere(
        &self,
        node: &str,
    ) -> impl Iterator<Item = (u64, &Slice)> {
        self.named(self.counters.iter())
            .filter(move |(_, slice)| slice.node_name().is_none_or(|name| **name != *node))
    }

    /// All slices of a pool, of any generation.
    pub(crate) fn slices_of_pool(&self, pool: &PoolId) -> impl Iterator<Item = (u64, &Slice)> {
        self.named(self.by_pool.get(pool).into_iter().flatten())
    }

    /// All slices, in no defined order.
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.slices.values().map(|(_, slice)| &**slice)
    }

    fn named<'a>(
        &'a self,
        names: impl Iterator<Item = &'a Arc<str>>,
    ) -> impl Iterator<Item = (u64, &'a Slice)> {
        names.filter_map(|name| self.slices.get(name)).map(|(number, slice)| (*number, &**slice))
    }
}

fn hold(state: &mut AllocatedState, held: &HeldDevice) {
    match &held.share {
        Some(consumed) => state.insert_share(held.device.clone(), consumed),
        None => {
            state.insert(held.device.clone());
        }
    }
}

fn forget<K: Hash + Eq>(lists: &mut HashMap<K, Vec<Arc<str>>>, key: &K, name: &str) {
    if let Some(names) = lists.get_mut(key) {
        names.retain(|known| **known != *name);
        if names.is_empty() {
            lists.remove(key);
        }
    }
}
