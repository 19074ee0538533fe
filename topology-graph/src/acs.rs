//! What the PCIe ports above a device do with requests to its peers: Access
//! Control Services (PCI Express Base Specification, chapter 6.12).

use std::fmt;
use std::str::FromStr;

use crate::snapshot::AcsControl;
use crate::text::serde_as_text;

/// The ports above a device together: the strictest of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Acs {
    /// Requests go to peers directly.
    Direct,
    /// Requests with translated addresses go to peers directly, others upstream.
    DirectTranslated,
    /// Requests to peers go upstream.
    Redirect,
}

/// A text that is no such word.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid access control `{0}`; allowed values: `direct`, `direct-translated`, `redirect`")]
pub struct ParseAcsError(String);

impl Acs {
    /// All of them, free to strict.
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
