//! A denial that the user can act on.

use std::fmt;

/// Why a pod is denied: annotation, value, reason, and allowed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    annotation: &'static str,
    value: String,
    why: String,
    allowed: Option<String>,
}

impl Denial {
    /// Denies `annotation: "value"`. `why` says what is wrong with the value, or what the
    /// cluster lacks.
    pub fn new(annotation: &'static str, value: impl Into<String>, why: impl Into<String>) -> Self {
        Self { annotation, value: value.into(), why: why.into(), allowed: None }
    }

    /// Adds the allowed values.
    #[must_use]
    pub fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    /// The annotation that is denied.
    pub fn annotation(&self) -> &'static str {
        self.annotation
    }

    /// Its value as the user wrote it.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The allowed values, if known.
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
