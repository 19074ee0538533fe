//! Where a fact of the graph comes from.

use std::fmt;
use std::str::FromStr;

use crate::text::serde_as_text;

/// The source of one fact. A fact without a source is not in the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// The kernel tells it.
    #[default]
    Sysfs,
    /// The kernel tells nothing, and the machine has one NUMA node only.
    OnlyNode,
    /// The kernel names a node without CPUs; this one is nearest to it by the SLIT.
    Slit,
    /// The kernel names no node, and calls local the CPUs of this one only.
    LocalCpus,
    /// A description of machines of this name, carried by this crate.
    Overlay(String),
    /// An NCCL topology file given by the person or found on the node.
    NcclXml,
    /// All GPUs of this model are built so, as this crate knows by their PCI device id.
    GpuModel,
}

/// A text that names no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no evidence (`sysfs`, `only-node`, `slit`, `local-cpus`, `nccl-xml`, `gpu-model`, \
     `overlay:NAME`)"
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
