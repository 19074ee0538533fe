//! Whether a NIC can read and write a GPU's memory directly (GPUDirect RDMA).
//!
//! Distance alone does not decide it. A switch whose ports redirect requests upstream (ACS) sends
//! everything through the root complex, an IOMMU may block it there, and without a peer memory
//! provider there is nothing to map. See the PCI Express Base Specification, chapters on Access
//! Control Services and Address Translation Services. Without facts the verdict is unknown, never
//! `ok`.

use crate::text::{serde_as_text, words};

/// The verdict for one GPU and one NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gdr {
    /// No known fact prevents it.
    Ok,
    /// It works, over a link that runs narrower or slower than possible.
    DegradedLink,
    /// A port on the path redirects peer requests upstream.
    AcsRedirect,
    /// Ports redirect all but translated requests, and the NIC does not translate.
    AtsMissing,
    /// The path crosses a root complex whose IOMMU translates.
    Iommu,
    /// The GPU's driver exposes no peer memory.
    NoPeerMemory,
    /// The machine does not show it.
    Unknown,
}

words! {
    Gdr, ParseGdrError("verdict on GPUDirect RDMA"):
    Ok = "ok", DegradedLink = "degraded-link", AcsRedirect = "acs-redirect",
    AtsMissing = "ats-missing", Iommu = "iommu", NoPeerMemory = "no-peer-memory",
    Unknown = "unknown"
}

serde_as_text!(Gdr);
