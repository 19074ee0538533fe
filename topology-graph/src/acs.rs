//! Access Control Services (ACS): how the PCIe ports above a device route its peer-to-peer requests
//! (PCI Express Base Specification, chapter 6.12).

use crate::snapshot::AcsControl;
use crate::text::{serde_as_text, words};

/// The ACS mode of the ports above a device; the strictest port decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Acs {
    /// Ports route peer requests directly.
    Direct,
    /// Ports route requests with translated addresses directly to the peer, others upstream.
    DirectTranslated,
    /// Ports redirect peer requests upstream.
    Redirect,
}

impl From<AcsControl> for Acs {
    fn from(control: AcsControl) -> Self {
        match (control.redirects(), control.direct_translated()) {
            (false, _) => Self::Direct,
            (true, true) => Self::DirectTranslated,
            (true, false) => Self::Redirect,
        }
    }
}

words! {
    Acs, ParseAcsError("access control"):
    Direct = "direct", DirectTranslated = "direct-translated", Redirect = "redirect"
}

serde_as_text!(Acs);
