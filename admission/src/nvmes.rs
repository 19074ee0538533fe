//! NVMe devices on the NUMA node of the GPUs and NICs, if a driver publishes them.
//!
//! dra-driver-nvme publishes a device for each controller, with the standard attributes
//! `numaNode`, `pciBusID` and `pcieRoot` (its `README.md`). Alignment uses NUMA nodes, which all
//! machines have: NVMe controllers are rarely below the PCIe switch of a GPU.

use crate::claim::{Ask, exactly};
use crate::demand::Demand;
use crate::denial::Denial;
use crate::intent::Intent;
use crate::join::form::ClaimParts;
use crate::numa_beside::{self, of_block};
use crate::selector::Selector;
use cluster_model::machines::Machine;
use cluster_model::names::{annotation, attribute, nvme};

/// Drops NICs on NUMA nodes with too few NVMe devices for a block, and machines without remaining
/// NICs.
pub(crate) fn keep_near_nvmes(
    intent: &Intent,
    demand: &Demand,
    machines: &mut Vec<Machine<'_>>,
) -> Result<(), Denial> {
    let Some(nvmes) = intent.nvmes else { return Ok(()) };
    let deny = |why: String| Denial::new(annotation::ALIGNED_NVMES, nvmes.to_string(), why);
    let Some(of_block) = of_block(nvmes, demand) else {
        return Err(deny(format!(
            "{nvmes} NVMe devices cannot be divided evenly among {} GPUs, each with NICs of its \
             own",
            demand.blocks
        ))
        .allowed(format!("a multiple of {}, or dranet.io/pairing: \"group\"", demand.blocks)));
    };
    let kept = numa_beside::keep_near(machines, |machine| &machine.nvmes, of_block);
    kept.map_err(|most| {
        deny(match most {
            None => format!(
                "no node that can serve the pod has NVMe devices of driver {} in class `{}` that \
                 publish {}; install dra-driver-nvme",
                nvme::DRIVER,
                nvme::CLASS,
                attribute::NUMA_NODE
            ),
            Some(most) => format!(
                "asks for {of_block} NVMe devices on the NUMA node of its NICs; no NUMA node in \
                 this cluster has more than {most}, or NICs do not publish {}",
                attribute::NUMA_NODE
            ),
        })
    })
}

/// Adds the NVMe devices of each block to a claim, tied to the block's NICs.
pub(crate) fn add(intent: &Intent, demand: &Demand, parts: &mut ClaimParts) {
    numa_beside::add(demand, parts, intent.nvmes, ["nvmes", "nvme"], |name, count| {
        let selector = Selector::driver(nvme::DRIVER);
        exactly(name, Ask { class: nvme::CLASS, count, selector, capacity: None })
    });
}
