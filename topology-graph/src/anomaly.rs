//! Anomalies: facts about a machine that are missing, invalid or contradictory.
//!
//! An anomaly never stops the reader or the graph. It is reported to people and counted.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An anomaly and its subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Anomaly {
    /// A PCI address, a device's name, or a path below the root.
    pub subject: String,
    /// The kind of anomaly.
    pub kind: AnomalyKind,
    /// The finding, as text for people.
    pub detail: String,
}

/// The kinds of anomalies, for metrics and filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AnomalyKind {
    /// An expected file or link could not be read.
    Unreadable,
    /// A file does not hold a value of its type.
    Malformed,
    /// No source gives the NUMA node of a GPU or NIC.
    NumaUnknown,
    /// The device names a NUMA node that does not exist.
    NumaAbsent,
    /// The device names a NUMA node without CPUs; the nearest node with CPUs is used.
    NumaWithoutCpus,
    /// sysfs and the overlay give different NUMA nodes.
    NumaDisagrees,
    /// sysfs and the overlay show different switches.
    SwitchDisagrees,
    /// Two sources give different links between two GPUs.
    GpuLinksDisagree,
    /// The overlay names a device that does not exist.
    OverlayDeviceMissing,
    /// The overlay names a device without its role.
    RoleUnknown,
    /// A driver lists a GPU that is not on the PCI bus.
    GpuAbsent,
    /// A link runs below the capability of the device.
    LinkDegraded,
    /// A kind that only a newer version of this crate knows.
    #[serde(other)]
    Other,
}

impl Anomaly {
    /// Creates an anomaly.
    pub fn new(kind: AnomalyKind, subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, subject: subject.into(), detail: detail.into() }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.detail)
    }
}
