//! Compares a node's devices with the server's ResourceSlices and plans the writes that
//! make them equal. Pure: existing slices in, a plan out.
//!
//! Follows `resourceslice/resourceslicecontroller.go` of Kubernetes 1.37. The index in a
//! slice's name identifies it. One changed slice keeps the pool's generation; any larger
//! change raises it in all slices. Slices that do not belong to the pool are deleted
//! first.

use crate::node::NodeIdentity;
use cluster_model::names::DRIVER;
use k8s_openapi::api::resource::v1::{Device, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

/// Devices per slice. This is the API server's limit for slices with tainted devices; it
/// always applies, so that a taint never moves a device to another slice.
pub const DEVICES_PER_SLICE: usize = 64;

/// How many answers with dropped fields are remembered, latest first: more than a node
/// has slices.
const MAX_DROPPED: usize = 16;

/// The writes, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlicePlan {
    /// Names of slices that do not belong to the pool.
    pub delete: Vec<String>,
    /// Slices that exist with other content.
    pub update: Vec<ResourceSlice>,
    /// Slices that do not exist yet.
    pub create: Vec<ResourceSlice>,
}

impl SlicePlan {
    /// The number of requests.
    pub fn writes(&self) -> usize {
        self.delete.len() + self.update.len() + self.create.len()
    }
}

/// What this process knows about the pool from its own reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The pool's highest generation. It survives the deletion of slices by others, so
    /// that the pool does not start again from 1.
    generation: i64,
    /// Pairs of spec sent and spec stored, for servers that dropped fields they do not
    /// know. Sending the same spec again would change nothing.
    dropped: Vec<(ResourceSliceSpec, ResourceSliceSpec)>,
}

impl Memory {
    /// Records the slices that exist.
    pub fn saw(&mut self, node: &NodeIdentity, existing: &[ResourceSlice]) {
        self.generation = self.generation.max(highest_generation(existing, node));
    }

    /// Records a write and its answer. Returns whether the server dropped a field.
    pub fn wrote(&mut self, sent: &ResourceSliceSpec, kept: &ResourceSliceSpec) -> bool {
        self.generation = self.generation.max(sent.pool.generation);
        let (sent, kept) = (normal(sent), normal(kept));
        let is_dropped = sent != kept;
        if is_dropped {
            self.dropped.truncate(MAX_DROPPED - 1);
            self.dropped.insert(0, (sent, kept));
        }
        is_dropped
    }

    fn is_all_that_is_kept(&self, there: &ResourceSliceSpec, wanted: &ResourceSliceSpec) -> bool {
        let (there, wanted) = (normal(there), normal(wanted));
        self.dropped.iter().any(|(sent, kept)| *sent == wanted && *kept == there)
    }
}

/// Compares the slices that the devices need with those of the server.
///
/// `existing` holds this driver's slices for this node and no other.
pub fn plan(
    node: &NodeIdentity,
    devices: &[Device],
    existing: &[ResourceSlice],
    memory: &Memory,
) -> SlicePlan {
    let wanted = wanted(node, devices);
    let (mut matched, delete) = match_by_index(node, existing, wanted.len());
    let highest = highest_generation(existing, node).max(memory.generation);
    let changes = matched
        .iter()
        .filter(|(index, slice)| !is_up_to_date(slice, &wanted[**index], highest, memory))
        .count();
    let missing = wanted.len() - matched.len();
    let generation = match (missing, changes) {
        (0, ..=1) => highest.max(1),
        _ => highest + 1,
    };
    let mut plan = SlicePlan { delete, ..SlicePlan::default() };
    for (index, mut slice) in wanted.into_iter().enumerate() {
        slice.spec.pool.generation = generation;
        match matched.remove(&index) {
            Some(there) if is_up_to_date(there, &slice, generation, memory) => {}
            Some(there) => plan.update.push(rewritten(there, slice)),
            None => plan.create.push(slice),
        }
    }
    plan
}

/// The slices for these devices, without a generation. A node without devices has one
/// empty slice, which says "no devices" and not "unknown".
fn wanted(node: &NodeIdentity, devices: &[Device]) -> Vec<ResourceSlice> {
    let count = devices.len().div_ceil(DEVICES_PER_SLICE).max(1);
    let slices = (0..count).map(|index| {
        let chunk = devices.chunks(DEVICES_PER_SLICE).nth(index).unwrap_or_default();
        slice(node, index, count, chunk.to_vec())
    });
    slices.collect()
}

fn slice(node: &NodeIdentity, index: usize, count: usize, devices: Vec<Device>) -> ResourceSlice {
    let count = i64::try_from(count).expect("a machine has fewer than 2^63 slices");
    ResourceSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{index:05x}-{DRIVER}-{}-", node.name)),
            owner_references: Some(vec![node.owner_reference()]),
            ..ObjectMeta::default()
        },
        spec: ResourceSliceSpec {
            driver: DRIVER.to_owned(),
            node_name: Some(node.name.clone()),
            pool: ResourcePool {
                name: node.name.clone(),
                generation: 0,
                resource_slice_count: count,
            },
            devices: Some(devices),
            ..ResourceSliceSpec::default()
        },
    }
}

/// Returns the existing slices by index, and the names of those to delete. If two have
/// the same index, the first by name stays. A slice of another pool is deleted, because a
/// slice's pool is immutable.
fn match_by_index<'a>(
    node: &NodeIdentity,
    existing: &'a [ResourceSlice],
    count: usize,
) -> (BTreeMap<usize, &'a ResourceSlice>, Vec<String>) {
    let mut sorted: Vec<_> = existing.iter().collect();
    sorted.sort_by_key(|slice| slice.metadata.name.as_deref());
    let (mut matched, mut obsolete) = (BTreeMap::new(), Vec::new());
    for slice in sorted {
        let Some(name) = &slice.metadata.name else { continue };
        let index = index_of(name).filter(|_| slice.spec.pool.name == node.name);
        match index {
            Some(index) if index < count && !matched.contains_key(&index) => {
                matched.insert(index, slice);
            }
            _ => obsolete.push(name.clone()),
        }
    }
    (matched, obsolete)
}

/// The index in a slice's name, `00000-dra.net-…`.
fn index_of(name: &str) -> Option<usize> {
    let (index, rest) = name.split_once('-')?;
    let is_ours = index.len() >= 5
        && index.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && rest.starts_with(DRIVER);
    is_ours.then(|| usize::from_str_radix(index, 16).ok())?
}

/// The highest generation of the node's pool among the slices.
fn highest_generation(existing: &[ResourceSlice], node: &NodeIdentity) -> i64 {
    let ours = existing.iter().map(|slice| &slice.spec.pool).filter(|pool| pool.name == node.name);
    ours.map(|pool| pool.generation).max().unwrap_or(0)
}

/// Whether the server's slice equals the wanted one at this generation.
fn is_up_to_date(
    there: &ResourceSlice,
    wanted: &ResourceSlice,
    generation: i64,
    memory: &Memory,
) -> bool {
    let mut spec = wanted.spec.clone();
    spec.pool.generation = generation;
    owners(there) == owners(wanted)
        && (normal(&there.spec) == normal(&spec) || memory.is_all_that_is_kept(&there.spec, &spec))
}

fn owners(slice: &ResourceSlice) -> &[OwnerReference] {
    slice.metadata.owner_references.as_deref().unwrap_or_default()
}

/// Normalizes a spec for comparison: an empty list equals an absent one, and the server
/// sets the time of a taint.
fn normal(spec: &ResourceSliceSpec) -> ResourceSliceSpec {
    let mut spec = spec.clone();
    spec.devices = spec.devices.filter(|devices| !devices.is_empty());
    for taint in
        spec.devices.iter_mut().flatten().flat_map(|device| device.taints.iter_mut().flatten())
    {
        taint.time_added = None;
    }
    spec
}

/// The server's slice with the wanted content. It keeps its name and resource version, so
/// that the server refuses the update if the slice has changed meanwhile.
fn rewritten(there: &ResourceSlice, wanted: ResourceSlice) -> ResourceSlice {
    let mut slice = there.clone();
    slice.metadata.owner_references = wanted.metadata.owner_references;
    slice.metadata.managed_fields = None;
    slice.spec = wanted.spec;
    keep_times(&mut slice.spec, &there.spec);
    slice
}

/// Keeps the server's time for taints that stay.
fn keep_times(spec: &mut ResourceSliceSpec, there: &ResourceSliceSpec) {
    for device in spec.devices.iter_mut().flatten() {
        let Some(before) = there.devices.iter().flatten().find(|other| other.name == device.name)
        else {
            continue;
        };
        for taint in device.taints.iter_mut().flatten() {
            let before = before.taints.iter().flatten().find(|other| {
                (&other.key, &other.value, &other.effect)
                    == (&taint.key, &taint.value, &taint.effect)
            });
            taint.time_added = before.and_then(|before| before.time_added.clone());
        }
    }
}

#[cfg(test)]
mod tests;
