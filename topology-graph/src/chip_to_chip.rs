//! Links between a CPU and a GPU in one package: NVIDIA's NVLink-C2C. The kernel does not show them;
//! they follow from the GPU model.

use crate::vendor::NVIDIA;

const GB10: u16 = 0x2e12;

/// The link of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChipToChip {
    /// In one direction, in MB/s, if a source gives it per GPU.
    pub(crate) bandwidth: Option<u32>,
    /// True if the GPU has memory of its own, which NICs then reach through the link. GB10 has not, and
    /// NVIDIA supports no GPUDirect RDMA on it.
    pub(crate) has_memory: bool,
}

impl ChipToChip {
    /// Looks up a model by vendor and device ID. `overlays/SOURCE.md` has the sources.
    pub(crate) fn new((vendor, device): (u16, u16)) -> Option<Self> {
        let bandwidth = match (vendor, device) {
            // GH200 with 96 GB, 120 GB, 480 GB and 144 GB.
            (NVIDIA, 0x2342 | 0x2343 | 0x2345 | 0x2348) => Some(450_000),
            // GB10.
            (NVIDIA, GB10) => Some(345_000),
            // GB200, GB300: two GPUs share a CPU.
            (NVIDIA, 0x2941 | 0x31c2 | 0x31c3) => None,
            _ => return None,
        };
        Some(Self { bandwidth, has_memory: device != GB10 })
    }
}
