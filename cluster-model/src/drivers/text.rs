//! Names and identifiers in the operator's file of drivers. Each is checked when it is read, so that
//! an error has the line.

use crate::names::is_subdomain;
use serde::Deserialize;
use topology_graph::{ParsePciClassError, PciClass};

/// The longest name of a driver, and of an attribute's domain (`k8s.io/api/resource/v1`,
/// `DriverNameMaxLength`, `DeviceMaxDomainLength`).
const DOMAIN_MAX: usize = 63;
/// The longest name of an attribute in its domain (`DeviceMaxIDLength`).
const NAME_MAX: usize = 32;

/// A text in the file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// It is no name of a driver.
    #[error(
        "`{0}` is not a driver name: it is a DNS name of at most 63 characters, as in `spec.driver` of a ResourceSlice"
    )]
    Driver(String),
    /// It is no full name of an attribute.
    #[error(
        "`{0}` is not an attribute: it is `DOMAIN/NAME`; for an attribute that a driver publishes without a domain, the domain is the driver's name"
    )]
    Attribute(String),
    /// It is no PCI vendor ID.
    #[error("`{0}` is not a PCI vendor ID: it has 4 hexadecimal digits, for example 1da3")]
    Vendor(String),
    /// It is no PCI class.
    #[error(transparent)]
    Class(#[from] ParsePciClassError),
}

/// The name of a DRA driver.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct DriverName(pub(super) String);

/// The full name of an attribute, such as `gpu.nvidia.com/uuid`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Attribute(pub(super) String);

/// A PCI vendor ID.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Id(pub(super) u16);

/// A PCI class.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Class(pub(super) PciClass);

impl TryFrom<String> for DriverName {
    type Error = TextError;

    fn try_from(text: String) -> Result<Self, TextError> {
        if is_short_domain(&text) { Ok(Self(text)) } else { Err(TextError::Driver(text)) }
    }
}

impl TryFrom<String> for Attribute {
    type Error = TextError;

    fn try_from(text: String) -> Result<Self, TextError> {
        match text.split_once('/') {
            Some((domain, name)) if is_short_domain(domain) && is_identifier(name) => {
                Ok(Self(text))
            }
            _ => Err(TextError::Attribute(text)),
        }
    }
}

impl TryFrom<String> for Id {
    type Error = TextError;

    fn try_from(text: String) -> Result<Self, TextError> {
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        let is_hex = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let id = u16::from_str_radix(digits, 16).ok().filter(|_| is_hex);
        id.map(Self).ok_or(TextError::Vendor(text))
    }
}

impl TryFrom<String> for Class {
    type Error = TextError;

    fn try_from(text: String) -> Result<Self, TextError> {
        Ok(Self(text.parse()?))
    }
}

/// A DNS subdomain of the length that names of drivers may have.
fn is_short_domain(text: &str) -> bool {
    text.len() <= DOMAIN_MAX && is_subdomain(text)
}

/// A C identifier.
fn is_identifier(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME_MAX
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !text.starts_with(|first: char| first.is_ascii_digit())
}

/// Schemas of the texts.
#[cfg(feature = "crd")]
mod schema {
    use super::{Attribute, Class, DriverName, Id};
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
    use std::borrow::Cow;

    macro_rules! pattern {
        ($($text:ty, $pattern:literal);+ $(;)?) => {$(
            impl JsonSchema for $text {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($text).into()
                }

                fn inline_schema() -> bool {
                    true
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!({ "type": "string", "pattern": $pattern })
                }
            }
        )+};
    }

    pattern! {
        DriverName, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
        Attribute, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z_][A-Za-z0-9_]{0,31}$";
        Id, "^(0x)?[0-9a-fA-F]{4}$";
        Class, "^(0x)?([0-9a-fA-F]{2}){1,3}$";
    }
}
