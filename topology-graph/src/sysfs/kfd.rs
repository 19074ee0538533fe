//! AMD's GPUs as their driver tells them: `class/kfd/kfd/topology/nodes/*/properties`
//! (`node_show` in `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`). Of each only the
//! place and the unique id; links between GPUs are not read.

use super::tree::Tree;
use crate::PciAddress;
use crate::snapshot::GpuFacts;

const NODES: &str = "class/kfd/kfd/topology/nodes";

pub(super) fn gpus(sys: &mut Tree) -> Vec<GpuFacts> {
    let names = sys.names(NODES);
    let mut gpus: Vec<GpuFacts> = names
        .iter()
        .filter_map(|name| sys.text(&format!("{NODES}/{name}/properties")))
        .filter_map(|text| gpu(&text))
        .collect();
    gpus.sort_by_key(|gpu| gpu.address);
    // A partitioned GPU is several nodes in one place.
    gpus.dedup_by_key(|gpu| gpu.address);
    gpus
}

/// CPUs are nodes too, without SIMD units.
fn gpu(properties: &str) -> Option<GpuFacts> {
    let value = |key| property(properties, key);
    let place =
        u32::try_from(value("location_id")?).ok().filter(|_| value("simd_count") != Some(0))?;
    let [_, _, bus, device] = place.to_be_bytes();
    let domain = u32::try_from(value("domain").unwrap_or(0)).ok()?;
    let unique_id = value("unique_id").filter(|id| *id != 0);
    Some(GpuFacts {
        address: PciAddress::new(domain, bus, device >> 3, device & 0b111)?,
        uuid: unique_id.map(|id| format!("{id:#018x}")),
        model: None,
    })
}

/// `key value`, one on a line.
pub(super) fn property(properties: &str, key: &str) -> Option<u64> {
    let mut values =
        properties.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    values.next()?.trim().parse().ok()
}

/// The properties that are read, and no others.
#[cfg(feature = "archive")]
pub(super) const READ: [&str; 3] = ["location_id", "domain", "simd_count"];

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
}
