//! The sources of facts in the graph.

use std::fmt;
use std::str::FromStr;

use crate::text::serde_as_text;

/// The source of a fact. Facts without a source are not in the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// The kernel.
    #[default]
    Sysfs,
    /// The kernel shows nothing, and the machine has only one NUMA node.
    OnlyNode,
    /// The kernel names a node without CPUs; this one is nearest to it by the SLIT.
    Slit,
    /// The kernel names no node; only this node has the CPUs that it calls local.
    LocalCpus,
    /// A description in this crate of machines with this name.
    Overlay(String),
    /// An NCCL topology file, given by the user or found on the node.
    NcclXml,
    /// The GPU model, by PCI device ID: all machines with it are built this way.
    GpuModel,
}

/// A text is not a source of facts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid evidence `{0}`: must be `sysfs`, `only-node`, `slit`, `local-cpus`, `nccl-xml`, `gpu-model`, \
     or `overlay:NAME`"
)]
pub struct ParseEvidenceError(String);

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysfs => f.write_str("sysfs"),
            Self::OnlyNode => f.write_str("only-node"),
            Self::Slit => f.write_str("slit"),
            Self::LocalCpus => f.write_str("local-cpus"),
            Self::Overlay(name) => write!(f, "overlay:{name}"),
            Self::NcclXml => f.write_str("nccl-xml"),
            Self::GpuModel => f.write_str("gpu-model"),
        }
    }
}

impl FromStr for Evidence {
    type Err = ParseEvidenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("overlay:")) {
            ("sysfs", _) => Ok(Self::Sysfs),
            ("only-node", _) => Ok(Self::OnlyNode),
            ("slit", _) => Ok(Self::Slit),
            ("local-cpus", _) => Ok(Self::LocalCpus),
            ("nccl-xml", _) => Ok(Self::NcclXml),
            ("gpu-model", _) => Ok(Self::GpuModel),
            (_, Some(name)) if !name.is_empty() => Ok(Self::Overlay(name.to_owned())),
            _ => Err(ParseEvidenceError(text.to_owned())),
        }
    }
}

serde_as_text!(Evidence);
