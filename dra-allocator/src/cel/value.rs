//! The values of expressions.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use super::error::{ErrorClass, RuntimeError};
use super::network::{Cidr, Url};
use crate::device::{AttributeValue, DeviceCapacity};
use crate::quantity::Quantity;

/// A value. Maps of the device are not built; they are looked up in the device.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<[Self]>),
    /// Entries in order of creation; keys are unique.
    Map(Arc<[(Self, Self)]>),
    Optional(Option<Arc<Self>>),
    Type(Arc<str>),
    Quantity(Quantity),
    Semver(Arc<semver::Version>),
    Ip(IpAddr),
    Cidr(Arc<Cidr>),
    Url(Arc<Url>),
    /// `device`.
    Device,
    /// `device.attributes`.
    AttributeDomains,
    /// `device.attributes["domain"]`.
    AttributesOf(Arc<str>),
    /// `device.capacity`.
    CapacityDomains,
    /// `device.capacity["domain"]`.
    CapacityOf(Arc<str>),
}

impl Value {
    pub(crate) fn string(text: &str) -> Self {
        Self::String(text.into())
    }

    pub(crate) fn list(values: Vec<Self>) -> Self {
        Self::List(values.into())
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The name of the type, as CEL's `type` and its errors print it.
    pub(crate) fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Device => "kubernetes.DRADevice",
            Self::Map(_)
            | Self::AttributeDomains
            | Self::AttributesOf(_)
            | Self::CapacityDomains
            | Self::CapacityOf(_) => "map",
        }
    }

    /// Converts an attribute value. Unknown kinds have been rejected before.
    pub(crate) fn of_attribute(value: &AttributeValue) -> Result<Self, RuntimeError> {
        Ok(match value {
            AttributeValue::Bool(value) => Self::Bool(*value),
            AttributeValue::Int(value) => Self::Int(*value),
            AttributeValue::String(value) => Self::String(value.clone()),
            AttributeValue::Version(value) => version(value)?,
            AttributeValue::Bools(values) => {
                Self::List(values.iter().copied().map(Self::Bool).collect())
            }
            AttributeValue::Ints(values) => {
                Self::List(values.iter().copied().map(Self::Int).collect())
            }
            AttributeValue::Strings(values) => {
                Self::List(values.iter().cloned().map(Self::String).collect())
            }
            AttributeValue::Versions(values) => {
                Self::List(values.iter().map(|text| version(text)).collect::<Result<_, _>>()?)
            }
            AttributeValue::Unknown => {
                let text = "unsupported attribute value";
                return Err(RuntimeError::new(ErrorClass::UnsupportedAttribute, text));
            }
        })
    }

    pub(crate) fn of_capacity(capacity: &DeviceCapacity) -> Self {
        Self::Quantity(capacity.value)
    }

    /// Equality as CEL defines it: numbers of different types can be equal; other values of
    /// different types are not equal. Kubernetes' own types support equality only with their own
    /// type.
    pub(crate) fn equals(&self, other: &Self) -> Result<bool, RuntimeError> {
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Null, _) | (_, Self::Null) => false,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) | (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::List(a), Self::List(b)) => a.len() == b.len() && all_equal(a, b)?,
            (Self::Map(a), Self::Map(b)) => a.len() == b.len() && entries_equal(a, b)?,
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b)?,
                (a, b) => a.is_none() && b.is_none(),
            },
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            // Build metadata does not count (`Version.Compare` of blang/semver).
            (Self::Semver(a), Self::Semver(b)) => a.cmp_precedence(b) == Ordering::Equal,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a), Self::Cidr(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (
                Self::Quantity(_) | Self::Semver(_) | Self::Ip(_) | Self::Cidr(_) | Self::Url(_),
                _,
            ) => {
                return Err(RuntimeError::no_such_overload());
            }
            _ => self.compare_numbers(other) == Some(Ordering::Equal),
        })
    }

    /// The order of two numbers of any type; `None` with a NaN, or if one is not a number.
    pub(crate) fn compare_numbers(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Double(a), b) => b.compare_with_double(*a).map(Ordering::reverse),
            (a, Self::Double(b)) => a.compare_with_double(*b),
            (a, b) => Some(a.as_i128()?.cmp(&b.as_i128()?)),
        }
    }

    fn as_i128(&self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(i128::from(*value)),
            Self::Uint(value) => Some(i128::from(*value)),
            _ => None,
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "the bounds are checked before")]
    fn compare_with_double(&self, double: f64) -> Option<Ordering> {
        let whole = self.as_i128()?;
        if double.is_nan() {
            return None;
        }
        if double.abs() >= 1e30 {
            return Some(if double > 0.0 { Ordering::Less } else { Ordering::Greater });
        }
        let truncated = double.trunc() as i128;
        let fraction = double - double.trunc();
        Some(whole.cmp(&truncated).then(0.0_f64.partial_cmp(&fraction)?))
    }

    /// Converts a value into a derived attribute (`valToDeviceAttribute`).
    pub(crate) fn into_attribute(self) -> Result<AttributeValue, RuntimeError> {
        Ok(match self {
            Self::Bool(value) => AttributeValue::Bool(value),
            Self::Int(value) => AttributeValue::Int(value),
            Self::String(value) => AttributeValue::String(value),
            Self::Semver(value) => AttributeValue::Version(value.to_string().into()),
            Self::List(values) => match values.first() {
                None => AttributeValue::Strings(Arc::default()),
                Some(Self::Bool(_)) => {
                    let values = values.iter().map(|value| value.as_bool().ok_or_else(mixed_list));
                    AttributeValue::Bools(values.collect::<Result<_, _>>()?)
                }
                Some(Self::Int(_)) => {
                    let values = values.iter().map(|value| match value {
                        Self::Int(value) => Ok(*value),
                        _ => Err(mixed_list()),
                    });
                    AttributeValue::Ints(values.collect::<Result<_, _>>()?)
                }
                Some(Self::String(_)) => {
                    let values = values.iter().map(|value| match value {
                        Self::String(value) => Ok(value.clone()),
                        _ => Err(mixed_list()),
                    });
                    AttributeValue::Strings(values.collect::<Result<_, _>>()?)
                }
                Some(Self::Semver(_)) => {
                    let values = values.iter().map(|value| match value {
                        Self::Semver(value) => Ok(value.to_string().into()),
                        _ => Err(mixed_list()),
                    });
                    AttributeValue::Versions(values.collect::<Result<_, _>>()?)
                }
                Some(other) => {
                    let text = format!("unsupported list element type: {}", other.type_name());
                    return Err(RuntimeError::invalid(text));
                }
            },
            other => {
                let text = format!("unsupported CEL return type: {}", other.type_name());
                return Err(RuntimeError::invalid(text));
            }
        })
    }
}

fn mixed_list() -> RuntimeError {
    RuntimeError::invalid("the elements of the list differ in type")
}

pub(crate) fn version(text: &str) -> Result<Value, RuntimeError> {
    semver::Version::parse(text)
        .map(|version| Value::Semver(Arc::new(version)))
        .map_err(|error| RuntimeError::invalid(error.to_string()))
}

fn all_equal(a: &[Value], b: &[Value]) -> Result<bool, RuntimeError> {
    for (a, b) in a.iter().zip(b) {
        if !a.equals(b)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn entries_equal(a: &[(Value, Value)], b: &[(Value, Value)]) -> Result<bool, RuntimeError> {
    for (key, value) in a {
        let Some(other) = find(b, key)? else { return Ok(false) };
        if !value.equals(other)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The value of a key.
pub(crate) fn find<'a>(
    entries: &'a [(Value, Value)],
    key: &Value,
) -> Result<Option<&'a Value>, RuntimeError> {
    for (known, value) in entries {
        if known.equals(key)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}
