//! Whether an RDMA device belongs to one network namespace (`rdma-system(8)`), by node.

use super::finding::Findings;
use super::scene::Scene;
use crate::text::counted;
use cluster_model::names::DRIVER;
use cluster_model::node_devices::published;
use cluster_model::view::ClusterView;
use std::collections::{BTreeMap, BTreeSet};

/// The mode in NodeTopologies in which only the device's own network namespace may use it.
const EXCLUSIVE: &str = "exclusive";

/// The nodes of each mode.
pub(super) type Modes<'v> = BTreeMap<&'v str, BTreeSet<&'v str>>;

/// The modes that the nodes' drivers publish.
pub(super) fn modes(view: &ClusterView) -> Modes<'_> {
    let mut modes = Modes::new();
    for (node, object) in view.node_topologies().filter(|(name, _)| !view.is_remembered(name)) {
        if let Some(mode) = &object.spec.rdma_namespace_mode {
            modes.entry(mode).or_default().insert(node);
        }
    }
    modes
}

pub(super) fn examine(scene: &Scene<'_>, found: &mut Findings) {
    let view = scene.view;
    let modes = modes(view);
    let Some(exclusive) = modes.get(EXCLUSIVE) else { return };
    let others = modes.iter().filter(|(mode, _)| **mode != EXCLUSIVE);
    let shared: BTreeSet<&str> = others.flat_map(|(_, nodes)| nodes).copied().collect();
    let refusing: BTreeSet<&str> = exclusive
        .iter()
        .copied()
        .filter(|node| {
            let mut devices = published(view, node).filter(|(_, it)| *it.id().driver == *DRIVER);
            devices.any(|(_, device)| device.allows_multiple_allocations())
        })
        .collect();
    found.on(
        &refusing,
        "has the RDMA subsystem in exclusive mode, but NICs that claims can share; pods with a share of \
         a NIC cannot start, because each RDMA device is in one network namespace; run `rdma system set \
         netns shared` at boot, or run node-driver with --sharing=none",
    );
    if !shared.is_empty() {
        let message = format!(
            "has the RDMA subsystem in exclusive mode, unlike {} in shared mode, so pods and monitoring \
             behave differently there; set the same mode on all nodes at boot (`rdma system set netns \
             MODE`)",
            counted(shared.len(), "other node")
        );
        found.on(exclusive, message);
    }
}
