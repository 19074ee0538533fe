//! Builds the maps of a device as values: `device.attributes`, `device.capacity` and their entries.
//!
//! Most selectors read one entry, so maps are built only if an expression needs all of a map.

use super::error::RuntimeError;
use super::value::Value;
use crate::device::Device;

impl Value {
    /// Returns the value; if it represents a map of the device, builds the map.
    pub(super) fn built(&self, device: &Device) -> Result<Self, RuntimeError> {
        let driver = &device.id.driver;
        let mut entries = Vec::new();
        match self {
            Self::AttributeDomains | Self::CapacityDomains => {
                let attributes = matches!(self, Self::AttributeDomains);
                let names: Vec<_> = if attributes {
                    device.attributes().map(|(name, _)| name).collect()
                } else {
                    device.capacity.iter().map(|(name, _)| name).collect()
                };
                let mut domains: Vec<_> =
                    names.iter().map(|name| name.domain().unwrap_or(driver)).collect();
                domains.sort_unstable();
                domains.dedup();
                for domain in domains {
                    let inner = if attributes { Value::AttributesOf } else { Value::CapacityOf };
                    entries.push((Self::string(domain), inner(domain.into()).built(device)?));
                }
            }
            Self::AttributesOf(domain) => {
                for (name, value) in device.attributes() {
                    if name.domain().unwrap_or(driver) == &**domain {
                        entries.push((Self::string(name.id()), Self::of_attribute(value)?));
                    }
                }
            }
            Self::CapacityOf(domain) => {
                for (name, capacity) in device.capacity.iter() {
                    if name.domain().unwrap_or(driver) == &**domain {
                        entries.push((Self::string(name.id()), Self::of_capacity(capacity)));
                    }
                }
            }
            other => return Ok(other.clone()),
        }
        Ok(Self::Map(entries.into()))
    }
}
