//! Devices that are down or tainted, and whether the pod would fit if they recovered: in words,
//! since the claim's selectors say it in CEL.

use crate::device_names;
use crate::text::{listed, moment};
use cluster_model::node_devices::published;
use cluster_model::published_device::{PublishedDevice as _, Trouble};
use cluster_model::room::{Ask, Room};
use dra_allocator::{Device, DeviceId};
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
    let fits_with = |devices: &[&Device]| {
        let ids = devices.iter().map(|device| device.id());
        fits_when_recovered(room, node, ids, ask)
    };
    if all.is_empty() || !fits_with(&all) {
        return None;
    }
    let alone: Vec<&Device> = all.iter().copied().filter(|device| fits_with(&[*device])).collect();
    let name = |device: &&Device| device_names::short(view, node, device);
    let parts = troubles.iter().map(|(trouble, devices)| {
        let names: Vec<_> = devices.iter().map(name).collect();
        trouble.text(&names)
    });
    let parts: Vec<_> = parts.collect();
    let is_up = troubles.keys().all(|trouble| matches!(trouble, Reason::Down(_)));
    let recovered = if is_up { "up" } else { "usable again" };
    let when = match (all.len(), alone.as_slice()) {
        (1, _) => format!("it is {recovered}"),
        (2, [_, _]) => format!("either is {recovered}"),
        (_, []) => format!("all of them are {recovered}"),
        (_, [one]) => format!("{} is {recovered}", name(one)),
        (_, some) => {
            let names: Vec<_> = some.iter().map(name).collect();
            format!("one of {} is {recovered}", listed(&names))
        }
    };
    Some(format!("{node}: {}; the pod fits when {when}", parts.join(", ")))
}

/// Whether the pod fits on a node if these devices recover.
fn fits_when_recovered<'d>(
    room: &Room<'_>,
    node: &str,
    devices: impl Iterator<Item = &'d DeviceId>,
    ask: &Ask,
) -> bool {
    let mut supposed = room.view().clone();
    for device in devices {
        supposed.suppose_recovered(device);
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
        let since = |since: &Option<String>| {
            since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default()
        };
        match self {
            Self::Down(at) => format!("{who} {is} down{}", since(at)),
            Self::Degraded => format!("the PCIe link of {who} is slower or narrower than possible"),
            Self::Tainted(taint, at) => format!("{who} {has} the taint {taint}{}", since(at)),
        }
    }
}
