//! Device attribute values that the API server accepts.
//!
//! The types enforce the limits of `resource.k8s.io/v1`: a text has 1 to 64 bytes, a
//! number is never negative. One odd value can therefore never make the server reject a
//! whole slice. This module does not decide which device has which attribute.

use k8s_openapi::api::resource::v1::DeviceAttribute;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// `DeviceAttributeMaxValueLength` of `resource.k8s.io/v1`.
pub const MAX_TEXT_BYTES: usize = 64;

/// `ResourceSliceMaxAttributesAndCapacitiesPerDevice` of `resource.k8s.io/v1`.
pub const MAX_ENTRIES: usize = 32;

/// A text of 1 to 64 bytes without white space around it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Text(String);

/// A text is empty or white space.
#[derive(Debug, thiserror::Error)]
#[error("an attribute's text is empty")]
pub struct EmptyTextError;

impl Text {
    /// Trims the text and cuts it to 64 bytes at a character boundary; `None` if nothing
    /// is left.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let cut = text[..text.floor_char_boundary(MAX_TEXT_BYTES)].trim_end();
        (!cut.is_empty()).then(|| Self(cut.to_owned()))
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Text {
    type Error = EmptyTextError;

    fn try_from(text: String) -> Result<Self, EmptyTextError> {
        Self::new(&text).ok_or(EmptyTextError)
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

/// One attribute's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Yes or no.
    Bool(bool),
    /// A number. The kernel's −1 means "no value" and is never published.
    Int(u32),
    /// A text.
    Text(Text),
}

impl Value {
    /// Returns the text as a value; `None` if it is empty after trimming.
    pub fn text(text: &str) -> Option<Self> {
        Text::new(text).map(Self::Text)
    }
}

impl From<Value> for DeviceAttribute {
    fn from(value: Value) -> Self {
        match value {
            Value::Bool(bool) => Self { bool: Some(bool), ..Self::default() },
            Value::Int(int) => Self { int: Some(int.into()), ..Self::default() },
            Value::Text(text) => Self { string: Some(text.into()), ..Self::default() },
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(bool) => write!(f, "{bool}"),
            Self::Int(int) => write!(f, "{int}"),
            Self::Text(text) => write!(f, "{text:?}", text = text.as_str()),
        }
    }
}

/// Attributes of one device by fully qualified name.
pub type Attributes = BTreeMap<String, Value>;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let long = "é".repeat(40);
        for (given, expected) in [
            ("mlx5_0", Some("mlx5_0")),
            (" mlx5_0\n", Some("mlx5_0")),
            ("", None),
            (" \n", None),
            (long.as_str(), Some(&long[..64])),
            (&format!("a{long}"), Some(&format!("a{}", "é".repeat(31)))),
            (&format!("{} b", "a".repeat(63)), Some(&"a".repeat(63))),
        ] {
            assert_eq!(Text::new(given).as_ref().map(Text::as_str), expected, "{given:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_fits(given in any::<String>()) {
            if let Some(text) = Text::new(&given) {
                prop_assert!((1..=MAX_TEXT_BYTES).contains(&text.as_str().len()));
                prop_assert_eq!(Text::new(text.as_str()), Some(text));
            } else {
                prop_assert!(given.trim().is_empty());
            }
        }
    }
}
