//! Finds claims for GPUs and NICs that nothing keeps near each other.

use super::constraints::tie;
use super::supply::{NodeSupply, Supply};
use super::{Check, Finding, WHOLE};
use cluster_model::names::annotation;
use cluster_model::node_devices::address_on;
use cluster_model::{gpu_drivers, nic_drivers};
use dra_allocator::Device;
use dra_allocator::claim::{AllocationMode, ConstraintKind};
use topology_graph::PathKind;

/// The parts of a claim that can get GPUs, and those that can get NICs.
struct Parts {
    gpus: Vec<usize>,
    nics: Vec<usize>,
}

pub(super) fn check(supply: &Supply<'_>) -> Option<Finding> {
    let parts = Parts::new(supply);
    let is_open = !parts.are_bound(supply);
    if !is_open || !supply.nodes.iter().any(|node| parts.is_far_possible(supply, node)) {
        return None;
    }
    let remedy = match tie(supply, parts.gpus.iter().chain(&parts.nics).copied()) {
        Some(name) => format!("add a constraint with `matchAttribute: {name}` on both"),
        None => format!(
            "no attribute here says which are near: use the annotation {} instead of a claim",
            annotation::ALIGNED_NICS
        ),
    };
    let message = format!(
        "nothing keeps the NICs near the GPUs, so a pod can get NICs of another NUMA node; {remedy}"
    );
    Some(Check::NotNear.found(WHOLE, message))
}

impl Parts {
    fn new(supply: &Supply<'_>) -> Self {
        Self {
            gpus: parts_of(supply, |driver| gpu_drivers::by_name(driver).is_some()),
            nics: parts_of(supply, |driver| nic_drivers::by_name(driver).is_some()),
        }
    }

    /// Whether a constraint is on GPUs and NICs.
    fn are_bound(&self, supply: &Supply<'_>) -> bool {
        supply.claim.constraints.iter().any(|constraint| {
            let bound: Vec<usize> = supply.bound(constraint).collect();
            let kinds = [&self.gpus, &self.nics];
            matches!(constraint.kind, ConstraintKind::Match(_))
                && kinds.iter().all(|parts| parts.iter().any(|part| bound.contains(part)))
        })
    }

    /// Whether a pod can get GPUs and NICs of different NUMA nodes here, and could get near ones.
    fn is_far_possible(&self, supply: &Supply<'_>, node: &NodeSupply<'_>) -> bool {
        let (gpus, nics) = (devices(node, &self.gpus), devices(node, &self.nics));
        let is_choice = has_choice(supply, &self.gpus, gpus.len())
            || has_choice(supply, &self.nics, nics.len());
        if gpus.is_empty() || nics.is_empty() || !is_choice {
            return false;
        }
        let Some(graph) = supply.view.topology(node.node) else {
            // Selectors may have chosen devices that are near.
            return self.are_any(supply);
        };
        let nics = nics.iter().filter_map(|nic| address_on(supply.view, node.node, nic));
        let nics: Vec<_> = nics.collect();
        let gpus = gpus.iter().filter_map(|gpu| address_on(supply.view, node.node, gpu));
        let paths = gpus.flat_map(|gpu| nics.iter().map(move |nic| graph.path(gpu, *nic)));
        let near: Vec<bool> = paths.map(|path| path.satisfies(PathKind::Node)).collect();
        near.contains(&true) && near.contains(&false)
    }

    /// Whether no request selects certain devices of its class.
    fn are_any(&self, supply: &Supply<'_>) -> bool {
        let mut parts = self.gpus.iter().chain(&self.nics);
        parts.all(|part| supply.parts[*part].ask.selectors.iter().flatten().next().is_none())
    }
}

/// The parts of a claim that can get a device of such a driver.
fn parts_of(supply: &Supply<'_>, is_it: fn(&str) -> bool) -> Vec<usize> {
    let parts = (0..supply.parts.len()).filter(|part| {
        let mut devices = supply.nodes.iter().flat_map(|node| node.of_part(*part));
        devices.any(|device| is_it(&device.id().driver))
    });
    parts.collect()
}

/// The node's devices that these parts can get.
fn devices<'a>(node: &NodeSupply<'a>, parts: &[usize]) -> Vec<&'a Device> {
    let mut devices: Vec<&Device> = parts.iter().flat_map(|part| node.of_part(*part)).collect();
    devices.sort_unstable_by_key(|device| device.id());
    devices.dedup_by_key(|device| device.id());
    devices
}

/// Whether these parts leave some of this number of devices.
fn has_choice(supply: &Supply<'_>, parts: &[usize], devices: usize) -> bool {
    parts
        .iter()
        .map(|part| match supply.parts[*part].ask.mode {
            AllocationMode::ExactCount(count) => usize::try_from(count).unwrap_or_default(),
            AllocationMode::All | AllocationMode::Unknown(_) => devices,
        })
        .sum::<usize>()
        < devices
}
