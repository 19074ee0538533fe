//! The links of grouped EFA adapters. aws-ofi-nccl drives all adapters near a GPU as one device at the place
//! of the first, and writes a link for it that is as fast as all of them, but not faster than the GPU's
//! (`write_nic` in `src/nccl_ofi_topo.cpp`).

use std::collections::{BTreeMap, BTreeSet};

use crate::vendor::is_efa;
use crate::{PathKind, PciAddress, PcieLink, PlanRequest, Topology};

/// The speeds of PCIe in mega-transfers per second and lane, by generation.
const SPEEDS: [u32; 6] = [2_500, 5_000, 8_000, 16_000, 32_000, 64_000];

/// The link to write for the first adapter of each GPU, of these devices.
pub(super) fn links(
    topology: &Topology,
    kept: &BTreeSet<PciAddress>,
) -> BTreeMap<PciAddress, PcieLink> {
    let efas = topology
        .nics()
        .iter()
        .filter(|nic| is_efa((nic.vendor, nic.device)) && kept.contains(&nic.address));
    let efas: Vec<PciAddress> = efas.map(|nic| nic.address).collect();
    let gpus = topology.gpus().iter().map(|gpu| gpu.address).filter(|gpu| kept.contains(gpu));
    let gpus: Vec<PciAddress> = gpus.collect();
    let per_gpu = efas.len().checked_div(gpus.len()).unwrap_or_default();
    let mut groups: BTreeMap<PciAddress, BTreeSet<PciAddress>> = BTreeMap::new();
    for pair in topology.plan(&PlanRequest::each(&gpus, &efas, per_gpu)) {
        if pair.path.satisfies(PathKind::Pxb) {
            groups.entry(pair.gpu).or_default().insert(pair.nic);
        }
    }
    let links = groups.into_iter().filter_map(|(gpu, group)| {
        let first = *group.first()?;
        let link = grouped(max_link(topology, first)?, group.len(), max_link(topology, gpu)?);
        Some((first, link))
    });
    links.collect()
}

fn max_link(topology: &Topology, device: PciAddress) -> Option<PcieLink> {
    topology.ends().find(|(address, _)| *address == device)?.1.max_link
}

/// A link as fast as so many of these, up to that of the GPU: first by speed, then by width.
fn grouped(one: PcieLink, adapters: usize, gpu: PcieLink) -> PcieLink {
    let (mut link, mut factor) = (one, adapters.next_power_of_two());
    let faster = SPEEDS.into_iter().filter(|speed| *speed > one.megatransfers);
    for speed in faster.filter(|speed| *speed <= gpu.megatransfers) {
        if factor == 1 {
            break;
        }
        (link.megatransfers, factor) = (speed, factor / 2);
    }
    while factor > 1 && link.width.saturating_mul(2) <= gpu.width {
        (link.width, factor) = (link.width * 2, factor / 2);
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_the_link_that_the_plugin_writes() {
        let link = |megatransfers, width| PcieLink { megatransfers, width };
        let gpu = link(32_000, 16);
        for (one, adapters, expected) in [
            (link(16_000, 8), 1, link(16_000, 8)),
            (link(16_000, 8), 2, link(32_000, 8)),
            (link(16_000, 8), 3, link(32_000, 16)),
            (link(16_000, 8), 4, link(32_000, 16)),
            (link(32_000, 8), 2, link(32_000, 16)),
            (link(32_000, 16), 2, link(32_000, 16)),
        ] {
            assert_eq!(grouped(one, adapters, gpu), expected, "{adapters} of {one}");
        }
    }
}
