//! A denial that the user can act on.

use std::borrow::Cow;
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

    /// Adds another sentence about the reason.
    #[must_use]
    pub(crate) fn and(mut self, also: &str) -> Self {
        self.why = format!("{}; {also}", self.why);
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
        let (value, why) = (cut(&self.value, VALUE_MAX), cut(&self.why, WHY_MAX));
        write!(f, "{}: \"{value}\": {why}", self.annotation)?;
        match &self.allowed {
            Some(allowed) => write!(f, "; allowed values: {}", cut(allowed, WHY_MAX)),
            None => Ok(()),
        }
    }
}

/// The longest value that is quoted, in characters.
const VALUE_MAX: usize = 200;

/// The longest reason, in characters. It may quote a value too.
const WHY_MAX: usize = 2_000;

/// The beginning of a text that is too long.
pub(crate) fn cut(text: &str, characters: usize) -> Cow<'_, str> {
    match text.char_indices().nth(characters) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_values_are_cut() {
        let long = "ä".repeat(1 << 20);
        let denial = Denial::new("a", long.as_str(), format!("`{long}` is unknown"));
        let text = denial.allowed(long).to_string();
        assert!(text.len() < 10_000, "{} bytes", text.len());
        assert_eq!(
            Denial::new("a", "b", "c").allowed("d").to_string(),
            "a: \"b\": c; allowed values: d"
        );
    }
}
