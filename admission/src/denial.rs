//! A refusal that a person can act on.

use std::fmt;

/// Why a pod is refused: annotation, value, what is allowed, and what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    annotation: &'static str,
    value: String,
    why: String,
    allowed: Option<String>,
}

impl Denial {
    /// A refusal of `annotation: "value"`. `why` says what is wrong with it or
    /// what the cluster has.
    pub fn new(annotation: &'static str, value: impl Into<String>, why: impl Into<String>) -> Self {
        Self { annotation, value: value.into(), why: why.into(), allowed: None }
    }

    /// Adds what would be allowed.
    #[must_use]
    pub fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    /// The annotation that is refused.
    pub fn annotation(&self) -> &'static str {
        self.annotation
    }

    /// Its value as the user wrote it.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What would be allowed, where that can be said.
    pub fn what_is_allowed(&self) -> Option<&str> {
        self.allowed.as_deref()
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: \"{}\": {}", self.annotation, self.value, self.why)?;
        match &self.allowed {
            Some(allowed) => write!(f, "; allowed values: {allowed}"),
            None => Ok(()),
        }
    }
}
