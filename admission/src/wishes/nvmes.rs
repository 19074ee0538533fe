//! NVMe devices on the NUMA node of the GPUs and NICs, if a driver publishes them.
//!
//! dra-driver-nvme publishes a device for each controller, with the standard attributes
//! `numaNode`, `pciBusID` and `pcieRoot` (its `README.md`). Alignment uses NUMA nodes, which all
//! machines have: NVMe controllers are rarely below the PCIe switch of a GPU.

use super::Asker;
use super::numa::{self, of_block};
use crate::alignment::{CLAIM_DEVICES_MAX, device_count};
use crate::claim::{Ask, ClaimParts, exactly};
use crate::demand::Demand;
use crate::denial::Denial;
use crate::selector::Selector;
use crate::wording::count;
use cluster_model::machines::Machine;
use cluster_model::names::{annotation, attribute, nvme};
use cluster_model::view::ClusterView;
use dra_allocator::Class;

/// What texts call them.
const NOUN: &str = "NVMe devices";

/// The number of NVMe devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nvmes(u32);

impl Nvmes {
    /// Reads the number of NVMe devices. The claim also contains the GPUs and NICs.
    pub(super) fn read(asker: &Asker<'_>) -> Result<Option<Self>, Denial> {
        let Some(value) = asker.annotation(annotation::ALIGNED_NVMES) else { return Ok(None) };
        let others = asker.gpus.saturating_add(asker.nics);
        let most = CLAIM_DEVICES_MAX.saturating_sub(others);
        let allowed = format!("a whole number from 1 to {most}");
        let nvmes = device_count(annotation::ALIGNED_NVMES, value, NOUN, &allowed)?;
        if nvmes > most {
            let why = format!(
                "too many beside {others} GPUs and NICs; a claim holds at most {CLAIM_DEVICES_MAX} \
                 devices"
            );
            return Err(deny(value, why));
        }
        numa::check_required(asker, NOUN).map_err(|why| deny(value, why))?;
        if asker.shares.len() != 1 {
            let why = format!(
                "NVMe devices go to one container, and {} containers of the pod get devices",
                asker.shares.len()
            );
            return Err(deny(value, why));
        }
        Ok(Some(Self(nvmes)))
    }

    /// The class of the NVMe devices.
    pub(crate) fn class(view: &ClusterView) -> Option<&Class> {
        view.inventory().class(nvme::CLASS).map(|class| &**class)
    }

    /// Drops NICs on NUMA nodes with too few NVMe devices for a block, and machines without remaining
    /// NICs.
    pub(super) fn keep(
        self,
        demand: &Demand,
        machines: &mut Vec<Machine<'_>>,
    ) -> Result<(), Denial> {
        let Self(nvmes) = self;
        let value = nvmes.to_string();
        let Some(of_block) = of_block(nvmes, demand) else {
            let allowed =
                format!("a multiple of {}, or dranet.io/pairing: \"group\"", demand.blocks);
            return Err(deny(&value, numa::uneven(nvmes, NOUN, demand)).allowed(allowed));
        };
        let kept = numa::keep_near(machines, |machine| &machine.nvmes, of_block);
        kept.map_err(|most| {
            let why = match most {
                None => format!(
                    "no node that can serve the pod has NVMe devices of driver {} in class `{}` that \
                     publish {}; install dra-driver-nvme",
                    nvme::DRIVER,
                    nvme::CLASS,
                    attribute::NUMA_NODE
                ),
                Some(most) => numa::too_few(of_block, NOUN, most),
            };
            deny(&value, why)
        })
    }

    /// Adds the NVMe devices of each block to a claim, tied to the block's NICs.
    pub(super) fn add_to(self, demand: &Demand, parts: &mut ClaimParts) {
        numa::add(demand, parts, self.0, ["nvmes", "nvme"], |name, count| {
            let selector = Selector::driver(nvme::DRIVER);
            exactly(name, Ask { class: nvme::CLASS, count, selector, capacity: None })
        });
    }

    /// Says how many there are.
    pub(super) fn said(self) -> String {
        format!(", with {} of the same NUMA node", count(self.0 as usize, "NVMe device"))
    }
}

fn deny(value: &str, why: impl Into<String>) -> Denial {
    Denial::new(annotation::ALIGNED_NVMES, value, why)
}
