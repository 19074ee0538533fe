//! Why something that could be a NIC of pods is not published. Each reason says what to do, because
//! an operator sees only that a NIC is missing.

use crate::network::Withheld;
use serde::Serialize;
use std::fmt;

/// Something that could be a NIC of pods and is not published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WithheldNic {
    /// The name that the device would have in a slice.
    pub name: String,
    /// Its network interface, if the host has that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Why.
    #[serde(serialize_with = "text")]
    pub reason: WithheldReason,
}

/// Why a NIC is not published.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WithheldReason {
    /// The host itself uses it, or the operator keeps it for the host.
    Host(Withheld),
    /// No driver is bound to the function.
    Unbound {
        /// Whether it is a virtual function.
        is_virtual: bool,
    },
    /// A driver reserves it for a virtual machine or a program.
    Reserved {
        /// The driver.
        driver: String,
    },
    /// It is a physical function whose virtual functions are given out.
    HasVirtualFunctions {
        /// One of them, as a device in a slice.
        function: String,
    },
    /// It is a virtual function, and a pod has its physical function.
    PhysicalFunctionInPod {
        /// The physical function, as a device in a slice.
        physical: String,
    },
    /// Its port is one of a bond that is published as one NIC.
    PortOfBond {
        /// The bond's interface.
        bond: String,
        /// The function that is published, as a device in a slice.
        first: String,
    },
    /// It has neither an interface nor an RDMA device that the host could give.
    NothingToGive,
    /// Its virtual functions are being created, or it is one of them.
    NotReady,
    /// Its driver is being loaded from a vendor's container.
    VendorDriver,
    /// The filter drops it.
    Filter,
}

impl WithheldReason {
    /// The reason in metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Host(Withheld::Uplink) => "uplink",
            Self::Host(Withheld::EarlierUplink) => "earlier-uplink",
            Self::Host(Withheld::Member(_)) => "member",
            Self::Host(Withheld::Below(_)) => "below-another",
            Self::Host(Withheld::OfOthers) => "routes-pods",
            Self::Host(Withheld::Operator) => "host-nic",
            Self::Unbound { .. } => "no-driver",
            Self::Reserved { .. } => "reserved",
            Self::HasVirtualFunctions { .. } => "has-virtual-functions",
            Self::PhysicalFunctionInPod { .. } => "physical-function-in-pod",
            Self::PortOfBond { .. } => "port-of-bond",
            Self::NothingToGive => "nothing-to-give",
            Self::NotReady => "not-ready",
            Self::VendorDriver => "vendor-driver",
            Self::Filter => "filter",
        }
    }
}

impl fmt::Display for WithheldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(reason) => reason.fmt(f),
            Self::Unbound { is_virtual: false } => {
                f.write_str("no kernel driver is bound to it; bind one, or load its module")
            }
            Self::Unbound { is_virtual: true } => f.write_str(
                "no kernel driver is bound to this virtual function; set sriov_drivers_autoprobe of \
                 its physical function to 1 before it is created, or bind a driver",
            ),
            Self::Reserved { driver } => {
                write!(f, "driver `{driver}` reserves it for a virtual machine or a program")
            }
            Self::HasVirtualFunctions { function } => write!(
                f,
                "it has virtual functions, among them `{function}`, and whoever has it controls \
                 them; remove them to give it out whole"
            ),
            Self::PhysicalFunctionInPod { physical } => {
                write!(f, "a pod has its physical function `{physical}`")
            }
            Self::PortOfBond { bond, first } => write!(
                f,
                "its port is one of `{bond}`, which is one NIC with one RDMA device: `{first}`"
            ),
            Self::NothingToGive => f.write_str(
                "the host has neither a network interface nor an RDMA device of it; load the module \
                 for RDMA, or look for what has moved them",
            ),
            Self::NotReady => f.write_str("its virtual functions are being created"),
            Self::VendorDriver => f.write_str("its driver is being loaded from a container"),
            Self::Filter => f.write_str("--filter drops it"),
        }
    }
}

/// Serializes the reason as text for people.
fn text<S: serde::Serializer>(reason: &WithheldReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(reason)
}
