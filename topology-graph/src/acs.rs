//! Access Control Services (ACS): how the PCIe ports above a device route its peer-to-peer requests
//! (PCI Express Base Specification, chapter 6.12).

use std::fmt;
use std::str::FromStr;

use crate::snapshot::AcsControl;
use crate::text::serde_as_text;

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

/// A text is not an ACS mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid access control `{0}`; allowed values: `direct`, `direct-translated`, `redirect`")]
pub struct ParseAcsError(String);

impl Acs {
    /// All modes, from permissive to strict.
    pub const ALL: [Self; 3] = [Self::Direct, Self::DirectTranslated, Self::Redirect];
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

impl fmt::Display for Acs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "direct",
            Self::DirectTranslated => "direct-translated",
            Self::Redirect => "redirect",
        })
    }
}

impl FromStr for Acs {
    type Err = ParseAcsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let acs = Self::ALL.into_iter().find(|acs| acs.to_string() == text);
        acs.ok_or_else(|| ParseAcsError(text.to_owned()))
    }
}

serde_as_text!(Acs);
