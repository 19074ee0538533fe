//! What a machine says that cannot be so, or does not say.
//!
//! An anomaly never stops a reader or a graph; it is shown to people and counted.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One oddity and what it is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Anomaly {
    /// A PCI address, a device's name, or a path below the root.
    pub subject: String,
    /// What sort of oddity.
    pub kind: AnomalyKind,
    /// What was found, for a person.
    pub detail: String,
}

/// The sorts of oddities, for metrics and filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AnomalyKind {
    /// A file or link that should be there could not be read.
    Unreadable,
    /// A file was read and holds no value of its type.
    Malformed,
    /// No source tells the NUMA node of a GPU or NIC.
    NumaUnknown,
    /// The device names a NUMA node that the machine does not have.
    NumaAbsent,
    /// The device names a NUMA node without CPUs; the nearest with CPUs is taken.
    NumaWithoutCpus,
    /// sysfs and the overlay tell different NUMA nodes.
    NumaDisagrees,
    /// sysfs shows switches, and the overlay tells other ones.
    SwitchDisagrees,
    /// Two sources tell different links between two GPUs.
    GpuLinksDisagree,
    /// The overlay names a device that the machine does not have.
    OverlayDeviceMissing,
    /// The overlay names a device and not what it is.
    RoleUnknown,
    /// A driver lists a GPU that the PCI bus does not have.
    GpuAbsent,
    /// A link runs below what the device can do.
    LinkDegraded,
    /// A sort that only a newer version of this crate knows.
    #[serde(other)]
    Other,
}

impl Anomaly {
    /// An anomaly of this kind.
    pub fn new(kind: AnomalyKind, subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, subject: subject.into(), detail: detail.into() }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.detail)
    }
}
