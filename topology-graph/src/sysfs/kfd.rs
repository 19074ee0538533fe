//! AMD's GPUs as their driver reports them: `class/kfd/kfd/topology/nodes/*/properties`
//! (`node_show` in `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`), and the XGMI links between them,
//! `io_links` and `p2p_links` in the same directory (`iolink_show` there).

use std::collections::BTreeMap;

use super::tree::Tree;
use crate::PciAddress;
use crate::snapshot::{GpuFacts, XgmiLink};

const NODES: &str = "class/kfd/kfd/topology/nodes";
const LINKS: [&str; 2] = ["io_links", "p2p_links"];
/// `CRAT_IOLINK_TYPE_XGMI` in `kfd_crat.h`.
const XGMI: u64 = 11;
/// The weight of one link (`kfd_parse_subtype_iolink` in `kfd_crat.c`).
const WEIGHT_OF_HOP: u64 = 15;

/// GPUs and links from the driver.
#[derive(Debug, Default)]
pub(super) struct Kfd {
    pub(super) gpus: Vec<GpuFacts>,
    pub(super) xgmi: Vec<XgmiLink>,
}

pub(super) fn read(sys: &mut Tree) -> Kfd {
    let mut nodes: BTreeMap<u64, GpuFacts> = BTreeMap::new();
    for name in sys.names(NODES) {
        let Ok(number) = name.parse() else { continue };
        let text = sys.text(&format!("{NODES}/{name}/properties"));
        nodes.extend(text.as_deref().and_then(gpu).map(|gpu| (number, gpu)));
    }
    let xgmi = xgmi(sys, &nodes);
    let mut gpus: Vec<GpuFacts> = nodes.into_values().collect();
    gpus.sort_by_key(|gpu| gpu.address);
    // A partitioned GPU is several nodes at one address.
    gpus.dedup_by_key(|gpu| gpu.address);
    Kfd { gpus, xgmi }
}

/// `None` for CPUs, which are nodes too, but without SIMD units.
fn gpu(properties: &str) -> Option<GpuFacts> {
    let place = u32::try_from(property(properties, "location_id")?).ok()?;
    if property(properties, "simd_count") == Some(0) {
        return None;
    }
    let [_, _, bus, device] = place.to_be_bytes();
    let domain = u32::try_from(property(properties, "domain").unwrap_or(0)).ok()?;
    let unique_id = property(properties, "unique_id").filter(|id| *id != 0);
    Some(GpuFacts {
        address: PciAddress::new(domain, bus, device >> 3, device & 0b111)?,
        uuid: unique_id.map(|id| format!("{id:#018x}")),
        model: None,
        drm_card: None,
    })
}

/// Each pair of GPUs once. If both ends report a link, the one with fewer hops counts, then the
/// narrower one.
fn xgmi(sys: &mut Tree, nodes: &BTreeMap<u64, GpuFacts>) -> Vec<XgmiLink> {
    let mut links = Vec::new();
    for number in nodes.keys() {
        for directory in LINKS.map(|links| format!("{NODES}/{number}/{links}")) {
            for name in sys.names(&directory) {
                let text = sys.text(&format!("{directory}/{name}/properties"));
                links.extend(text.as_deref().and_then(|text| link(text, nodes)));
            }
        }
    }
    links.sort_unstable_by_key(|link| {
        (link.a, link.b, unknown_last(link.hops), unknown_last(link.bandwidth))
    });
    links.dedup_by_key(|link| (link.a, link.b));
    links
}

/// A sort key.
fn unknown_last(value: Option<u32>) -> (bool, Option<u32>) {
    (value.is_none(), value)
}

fn link(properties: &str, nodes: &BTreeMap<u64, GpuFacts>) -> Option<XgmiLink> {
    let from = nodes.get(&property(properties, "node_from")?)?.address;
    let to = nodes.get(&property(properties, "node_to")?)?.address;
    let weight = property(properties, "weight");
    let weight = weight.filter(|weight| *weight > 0 && weight % WEIGHT_OF_HOP == 0);
    let hops = weight.and_then(|weight| u32::try_from(weight / WEIGHT_OF_HOP).ok());
    let bandwidth = property(properties, "max_bandwidth").filter(|megabytes| *megabytes > 0);
    let bandwidth = bandwidth.and_then(|megabytes| u32::try_from(megabytes).ok());
    let is_xgmi = property(properties, "type") == Some(XGMI) && from != to;
    is_xgmi.then_some(XgmiLink { a: from.min(to), b: from.max(to), hops, bandwidth })
}

/// The value in a line `key value`.
pub(super) fn property(properties: &str, key: &str) -> Option<u64> {
    let mut values =
        properties.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    values.next()?.trim().parse().ok()
}

/// The properties that the reader uses.
#[cfg(feature = "archive")]
pub(super) const READ: [&str; 8] = [
    "location_id",
    "domain",
    "simd_count",
    "type",
    "node_from",
    "node_to",
    "weight",
    "max_bandwidth",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bus_device_and_function() {
        let text = "cpu_cores_count 0\nsimd_count 1216\nlocation_id 16\ndomain 3\nunique_id 255\n";
        let found = gpu(text).unwrap();
        assert_eq!(found.address.to_string(), "0003:00:02.0");
        assert_eq!(found.uuid.as_deref(), Some("0x00000000000000ff"));
        for text in ["", "simd_count 0\nlocation_id 0", "location_id -1", "location_id 4294967296"]
        {
            assert_eq!(gpu(text), None, "{text:?}");
        }
    }

    #[test]
    fn xgmi_is_between_two_gpus() {
        let nodes = [(1, "location_id 256"), (2, "location_id 512")];
        let nodes = nodes.map(|(number, text)| (number, gpu(text).unwrap())).into();
        let found = |text| link(text, &nodes).map(|link| (link.hops, link.bandwidth));
        let text =
            "type 11\nnode_from 2\nnode_to 1\nweight 30\nmin_bandwidth 0\nmax_bandwidth 64000";
        assert_eq!(found(text), Some((Some(2), Some(64_000))));
        let text = "type 11\nnode_from 1\nnode_to 2\nweight 7\nmax_bandwidth 0";
        assert_eq!(found(text), Some((None, None)));
        for text in [
            "type 2\nnode_from 1\nnode_to 2\nweight 20",
            "type 11\nnode_from 1\nnode_to 0\nweight 15",
            "type 11\nnode_from 1\nnode_to 1\nweight 15",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
