//! A refusal that a person can act on.

use std::fmt;

/// Why a pod is refused: annotation, value, and what is allowed or there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    annotation: &'static str,
    value: String,
    why: String,
}

impl Denial {
    /// A refusal of `annotation: "value"`. `why` says what is allowed or what
    /// the cluster has.
    pub fn new(annotation: &'static str, value: impl Into<String>, why: impl Into<String>) -> Self {
        Self { annotation, value: value.into(), why: why.into() }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: \"{}\": {}", self.annotation, self.value, self.why)
    }
}
