//! Whether a NIC can read and write a GPU's memory directly (GPUDirect RDMA).
//!
//! Distance does not say it: a switch whose ports redirect requests upstream (ACS)
//! sends everything through the root complex, an IOMMU may stop it there, and
//! without a peer memory provider there is nothing to map. PCI Express Base
//! Specification, chapters on Access Control Services and Address Translation
//! Services. What nobody tells is unknown, never "ok".

use std::fmt;
use std::str::FromStr;

use crate::text::serde_as_text;

/// The verdict for one GPU and one NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gdr {
    /// Nothing that is known stands against it.
    Ok,
    /// It works, over a link that is narrower or slower than it could be.
    DegradedLink,
    /// A port on the way redirects peer requests upstream.
    AcsRedirect,
    /// Ports redirect all but translated requests, and the NIC does not translate.
    AtsMissing,
    /// The path leads through a root complex whose IOMMU translates.
    Iommu,
    /// The GPU's driver gives its memory to no NIC.
    NoPeerMemory,
    /// The machine does not say.
    Unknown,
}

/// Not a verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid verdict on GPUDirect RDMA `{0}` (`ok`, `acs-redirect`, …)")]
pub struct ParseGdrError(String);

impl Gdr {
    /// All verdicts.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::DegradedLink,
        Self::AcsRedirect,
        Self::AtsMissing,
        Self::Iommu,
        Self::NoPeerMemory,
        Self::Unknown,
    ];
}

impl fmt::Display for Gdr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::DegradedLink => "degraded-link",
            Self::AcsRedirect => "acs-redirect",
            Self::AtsMissing => "ats-missing",
            Self::Iommu => "iommu",
            Self::NoPeerMemory => "no-peer-memory",
            Self::Unknown => "unknown",
        })
    }
}

impl FromStr for Gdr {
    type Err = ParseGdrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let verdict = Self::ALL.into_iter().find(|verdict| verdict.to_string() == text);
        verdict.ok_or_else(|| ParseGdrError(text.to_owned()))
    }
}

serde_as_text!(Gdr);
