//! The NVLinks of GPU models, by PCI device ID.
//!
//! The kernel does not show NVLinks. For models that exist only on boards with NVSwitches, their
//! number follows from the model and the number of GPUs. `overlays/SOURCE.md` has the source of
//! each number.

use crate::vendor::NVIDIA;

/// The connections between GPUs of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NvLinks {
    /// On a board with NVSwitches, all links of a GPU connect it to every other GPU.
    Switched {
        /// The number of NVLinks per GPU.
        links: u32,
        /// The number of GPUs on such a board. Other boards with this model have no NVSwitches.
        board: usize,
    },
    /// On a board without NVSwitches, every two GPUs are connected directly.
    Direct {
        /// The number of NVLinks between two GPUs.
        links: u32,
        /// The number of GPUs on such a board.
        board: usize,
    },
    /// The model has no NVLinks.
    Absent,
    /// The model has or may have NVLinks: between pairs, by optional bridges, or not documented.
    Unknown,
}

impl NvLinks {
    /// Looks up a model by vendor and device ID.
    pub(crate) fn new((vendor, device): (u16, u16)) -> Self {
        if vendor != NVIDIA {
            return Self::Absent;
        }
        match device {
            // A100 SXM4 with 40 GB and 80 GB.
            0x20b0 | 0x20b2 => Self::Switched { links: 12, board: 8 },
            // V100 SXM3.
            0x1db8 => Self::Switched { links: 6, board: 16 },
            // A800 SXM4 with 40 GB and 80 GB, H800 SXM5.
            0x20bd | 0x20f3 | 0x2324 => Self::Switched { links: 8, board: 8 },
            // H20 with 96 GB and 141 GB, H100 SXM5 with 80 GB, H200 SXM, B200, B300.
            0x2329 | 0x232c | 0x2330 | 0x2335 | 0x2901 | 0x3182 => {
                Self::Switched { links: 18, board: 8 }
            }
            // A100 with 64 GB, GH200: boards of four, each GPU with a third of its links to each other.
            0x20b3 => Self::Direct { links: 4, board: 4 },
            0x2342 => Self::Direct { links: 6, board: 4 },
            // GB200, GB300.
            0x2941 | 0x31c2 => Self::Switched { links: 18, board: 4 },
            // T4; A10; TU106 and TU11x; GA103, GA104, GA106, GA107 and all of AD10x; GB202,
            // GB203, GB206, GB207; GB205.
            0x1eb8
            | 0x2236
            | 0x1f00..=0x1fff
            | 0x2180..=0x21ff
            | 0x2400..=0x28ff
            | 0x2b80..=0x2dff
            | 0x2f00..=0x2fff => Self::Absent,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_known_by_their_id() {
        for (device, expected) in [
            (0x20b2, NvLinks::Switched { links: 12, board: 8 }),
            (0x2330, NvLinks::Switched { links: 18, board: 8 }),
            (0x2941, NvLinks::Switched { links: 18, board: 4 }),
            (0x2329, NvLinks::Switched { links: 18, board: 8 }),
            (0x3182, NvLinks::Switched { links: 18, board: 8 }),
            (0x2342, NvLinks::Direct { links: 6, board: 4 }),
            // A100 PCIe, H100 PCIe, V100 SXM2, H100 NVL: bridges, or a mesh of unequal links.
            (0x20b5, NvLinks::Unknown),
            (0x2331, NvLinks::Unknown),
            (0x1db1, NvLinks::Unknown),
            (0x2321, NvLinks::Unknown),
            // L40S, RTX 6000 Ada, RTX PRO 6000 Blackwell, T4.
            (0x26b9, NvLinks::Absent),
            (0x26b1, NvLinks::Absent),
            (0x2bb5, NvLinks::Absent),
            (0x1eb8, NvLinks::Absent),
        ] {
            assert_eq!(NvLinks::new((NVIDIA, device)), expected, "{device:04x}");
        }
        assert_eq!(NvLinks::new((0x1002, 0x74a1)), NvLinks::Absent);
    }
}
