//! Counts how many equal pods fit, by machine type and fabric.

use crate::answer::CapacityRoom;
use crate::nodes::{fabric, machine};
use cluster_model::late_node::{LateDemand, LateNode};
use cluster_model::node_devices::{Role, published};
use cluster_model::room::{Ask, Room};
use cluster_model::view::ClusterView;
use std::collections::{BTreeMap, BTreeSet};

/// Where such pods fit; leaves out nodes that can never serve one. Nothing fits now on nodes that are
/// closed.
pub(super) fn rooms(
    room: &Room<'_>,
    ask: &Ask,
    late: Option<LateDemand>,
    closed: &BTreeSet<&str>,
) -> Vec<CapacityRoom> {
    let view = room.view();
    let now = counts(room, ask);
    let mut rooms: BTreeMap<(String, Option<String>), CapacityRoom> = BTreeMap::new();
    for (node, most) in counts(&room.emptied(), ask) {
        let (machine, fabric) = (machine(view, node), fabric(view, node));
        let room = rooms.entry((machine.clone(), fabric.clone())).or_insert_with(|| CapacityRoom {
            machine,
            fabric,
            nodes: 0,
            fit_now: 0,
            fit_empty: 0,
            surely_near: None,
        });
        room.nodes += 1;
        let now =
            if closed.contains(node) { 0 } else { now.get(node).copied().unwrap_or_default() };
        room.fit_now += now;
        let near = late.and_then(|demand| {
            LateNode::surely_near(view, node, view.inventory().state(), (demand, now))
        });
        if let Some(near) = near {
            *room.surely_near.get_or_insert_default() += near;
        }
        room.fit_empty += most;
    }
    rooms.into_values().collect()
}

/// The number of pods that fit on each node on which any does.
fn counts<'v>(room: &Room<'v>, ask: &Ask) -> BTreeMap<&'v str, usize> {
    let places = room.places(ask, room.view().present_nodes(), usize::MAX).into_iter();
    places.map(|places| (places.node, places.count)).collect()
}

/// The most GPUs of device plugins of any node.
pub(super) fn most_plugin_gpus(view: &ClusterView, resource: &str) -> u32 {
    let units = view.present_nodes().filter_map(|node| view.plugin_units(node, resource));
    u32::try_from(units.max().unwrap_or_default()).unwrap_or(u32::MAX)
}

/// The most GPUs of DRA drivers of any node.
pub(super) fn most_gpus(view: &ClusterView) -> u32 {
    let most = view
        .present_nodes()
        .map(|node| published(view, node).filter(|(role, _)| *role == Role::Gpu).count())
        .max()
        .unwrap_or_default();
    u32::try_from(most).unwrap_or(u32::MAX)
}
