//! What can be wrong with a NIC, and how it is told. A problem is a variant and its words here, a flag in
//! [`taint`](super::taint), and what it is seen by in [`Health`](super::Health).

use std::fmt;

/// Errors of an RDMA device's ports since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortErrors {
    /// Symbols and packets that arrived broken.
    pub broken: u64,
    /// How often a port has lost its link.
    pub link_downs: u64,
}

/// What can be wrong with a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Problem {
    /// No port is up, or none has been up for long enough.
    PortDown,
    /// A port goes down repeatedly.
    PortFlapping,
    /// A port receives many broken symbols or packets, or loses its link often.
    PortErrors,
    /// The `PCIe` link is slower or narrower than the function supports.
    LinkDegraded,
    /// The `PCIe` link has many errors that the hardware corrected.
    PcieErrors,
    /// The RDMA device does not answer the kernel.
    Unresponsive,
    /// A pod has the device, but the machine no longer has it.
    Gone,
}

/// How a problem is told.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Its name in metrics and, after `dranet.io/`, in taint keys.
    pub word: &'static str,
    /// The reason of the node's condition.
    pub condition: &'static str,
    /// Reason and text of the event when it appears.
    pub came: (&'static str, &'static str),
    /// Reason and text of the event when it disappears.
    pub went: (&'static str, &'static str),
}

impl Problem {
    /// All problems.
    pub const ALL: [Self; 7] = [
        Self::PortDown,
        Self::PortFlapping,
        Self::PortErrors,
        Self::LinkDegraded,
        Self::PcieErrors,
        Self::Unresponsive,
        Self::Gone,
    ];

    /// How it is told.
    pub fn words(self) -> Words {
        match self {
            Self::PortDown => Words {
                word: "port-down",
                condition: "PortDown",
                came: (
                    "NICPortDown",
                    "no port is active; check the cable, the switch and the subnet manager",
                ),
                went: ("NICPortUp", "a port is active again"),
            },
            Self::PortFlapping => Words {
                word: "port-flapping",
                condition: "PortFlapping",
                came: (
                    "NICPortFlapping",
                    "the port goes down repeatedly; check the cable and the switch",
                ),
                went: ("NICPortSteady", "the port has been steady for two minutes"),
            },
            Self::PortErrors => Words {
                word: "port-errors",
                condition: "PortErrors",
                came: (
                    "NICPortErrors",
                    "the port has many errors or loses its link often; check the cable and the switch",
                ),
                went: ("NICPortErrorsEnded", "the port has had few errors for ten minutes"),
            },
            Self::LinkDegraded => Words {
                word: "link-degraded",
                condition: "LinkDegraded",
                came: (
                    "NICLinkDegraded",
                    "the PCIe link runs slower or narrower than the NIC supports; check slot and riser",
                ),
                went: ("NICLinkRestored", "the PCIe link runs at full speed"),
            },
            Self::PcieErrors => Words {
                word: "pcie-errors",
                condition: "PCIeErrors",
                came: (
                    "NICPCIeErrors",
                    "the PCIe link has many errors that the hardware corrects; check slot and riser",
                ),
                went: ("NICPCIeErrorsEnded", "the PCIe link has had few errors for ten minutes"),
            },
            Self::Unresponsive => Words {
                word: "unresponsive",
                condition: "Unresponsive",
                came: (
                    "NICUnresponsive",
                    "the RDMA device does not answer the kernel; check the kernel's log, reset the device",
                ),
                went: ("NICResponsive", "the RDMA device answers again"),
            },
            Self::Gone => Words {
                word: "gone",
                condition: "Gone",
                came: (
                    "NICGone",
                    "a pod has it, but it has vanished from the machine; check the kernel's log, delete the pod",
                ),
                went: ("NICGoneNoMore", "it is back, or no pod has it any more"),
            },
        }
    }

    /// Its name in metrics and, after `dranet.io/`, in taint keys.
    pub fn word(self) -> &'static str {
        self.words().word
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
