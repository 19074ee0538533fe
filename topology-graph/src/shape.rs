//! The name of a machine's shape: its graph without what differs between equal
//! machines. No node, GUID, UUID or kernel's device name is in it, so equal hardware
//! gives equal shapes.

use std::fmt;
use std::str::FromStr;

use crate::text::serde_as_text;

/// Hash of a machine's shape, 16 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeHash(pub(crate) u64);

/// A text that is no hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid shape hash `{0}`: expected 16 lower-case hexadecimal digits")]
pub struct ParseShapeHashError(String);

impl fmt::Display for ShapeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ShapeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ShapeHash {
    type Err = ParseShapeHashError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16)
            .map(Self)
            .ok()
            .filter(|hash| hash.to_string() == text)
            .ok_or_else(|| ParseShapeHashError(text.to_owned()))
    }
}

serde_as_text!(ShapeHash);
