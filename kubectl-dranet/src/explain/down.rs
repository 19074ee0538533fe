//! Devices that are down or tainted, and whether the pod would fit if they recovered: in words,
//! since the claim's selectors say it in CEL.

use crate::device_names;
use crate::text::{listed, moment};
use cluster_model::node_devices::published;
use cluster_model::published_device::{PublishedDevice as _, Trouble};
use cluster_model::room::{Ask, Room};
use cluster_model::view::ClusterView;
use dra_allocator::Device;
use std::collections::BTreeMap;

/// The most nodes for which it is tried.
const NODES_MAX: usize = 16;

/// Sentences about nodes where the claims would fit if devices recovered.
pub(super) fn sentences(room: &Room<'_>, nodes: &[&str], ask: &Ask) -> Vec<String> {
    nodes.iter().filter_map(|node| sentence(room, node, ask)).take(NODES_MAX).collect()
}

/// `gb300-0: mlx5_1 and mlx5_2 are down since 02:14; the pod fits when either is up`.
fn sentence(room: &Room<'_>, node: &str, ask: &Ask) -> Option<String> {
    let view = room.view();
    let mut troubles: BTreeMap<Reason, Vec<&Device>> = BTreeMap::new();
    for (_, device) in published(view, node) {
        if let Some(trouble) = device.trouble() {
            troubles.entry(Reason::new(&trouble)).or_default().push(device);
        }
    }
    let all: Vec<&Device> = troubles.values().flatten().copied().collect();
    if all.is_empty() || !fits_when_recovered(room, node, &all, ask) {
        return None;
    }
    let alone = all.iter().copied();
    let alone: Vec<&Device> =
        alone.filter(|device| fits_when_recovered(room, node, &[*device], ask)).collect();
    let parts = troubles.iter().map(|(trouble, devices)| trouble.text(&names(view, node, devices)));
    let parts: Vec<_> = parts.collect();
    let is_up = troubles.keys().all(|trouble| matches!(trouble, Reason::Down(_)));
    let recovered = if is_up { "up" } else { "usable again" };
    let when = match (all.len(), alone.as_slice()) {
        (1, _) => format!("it is {recovered}"),
        (2, [_, _]) => format!("either is {recovered}"),
        (_, []) => format!("all of them are {recovered}"),
        (_, [one]) => format!("{} is {recovered}", device_names::short(view, node, one)),
        (_, some) => format!("one of {} is {recovered}", listed(&names(view, node, some))),
    };
    Some(format!("{node}: {}; the pod fits when {when}", parts.join(", ")))
}

fn names(view: &ClusterView, node: &str, devices: &[&Device]) -> Vec<String> {
    devices.iter().map(|device| device_names::short(view, node, device)).collect()
}

/// Whether the pod fits on a node if these devices recover.
fn fits_when_recovered(room: &Room<'_>, node: &str, devices: &[&Device], ask: &Ask) -> bool {
    let mut supposed = room.view().clone();
    for device in devices {
        supposed.suppose_recovered(device.id());
    }
    room.supposing(&supposed).why_not(node, ask).is_ok_and(|why| why.is_none())
}

/// Why a device is not allocated, and since when.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Down(Option<String>),
    /// The PCIe link of a NIC is degraded, which excludes it from claims.
    Degraded,
    Tainted(String, Option<String>),
}

impl Reason {
    fn new(trouble: &Trouble<'_>) -> Self {
        match trouble {
            Trouble::PortDown { taint, .. } => {
                Self::Down(taint.as_ref().and_then(|(_, since)| since.map(moment)))
            }
            Trouble::Degraded => Self::Degraded,
            Trouble::Tainted((taint, since)) => Self::Tainted(taint.to_string(), since.map(moment)),
        }
    }

    fn text(&self, names: &[String]) -> String {
        let who = listed(names);
        let (is, has) = if names.len() == 1 { ("is", "has") } else { ("are", "have") };
        match self {
            Self::Down(at) => format!("{who} {is} down{}", since(at.as_deref())),
            Self::Degraded => format!("the PCIe link of {who} is slower or narrower than possible"),
            Self::Tainted(taint, at) => {
                format!("{who} {has} the taint {taint}{}", since(at.as_deref()))
            }
        }
    }
}

fn since(time: Option<&str>) -> String {
    time.map(|time| format!(" since {time}")).unwrap_or_default()
}
