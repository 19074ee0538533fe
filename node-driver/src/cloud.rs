//! What the cloud says of the virtual machine: its size and the fabric it is
//! on. Facts only; which NIC carries which attribute is decided elsewhere.
//!
//! A metadata service that is away never stops the driver: its attributes are
//! then absent, never empty.

mod azure;
pub mod http;

use crate::attribute::Text;
use cluster_model::names::attribute;
use http::{MetadataError, MetadataService, Patience};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which cloud to ask.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloudProvider {
    /// Azure's Instance Metadata Service.
    Azure,
    /// None: bare metal, or a cloud that says nothing of its fabric.
    None,
}

/// The most attributes that any cloud gives a machine; the tables of a NIC's
/// attributes leave room for as many.
pub const MAX_ATTRIBUTES: usize = 8;

/// Attributes of the whole machine by fully qualified name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CloudMetadata(BTreeMap<String, Text>);

impl CloudMetadata {
    /// One attribute's value.
    pub fn get(&self, name: &str) -> Option<&Text> {
        self.0.get(name)
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Text)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The machine type, which says what a hypervisor hides of the topology.
    pub fn machine_type(&self) -> Option<&str> {
        self.get(attribute::AZURE_VM_SIZE).map(Text::as_str)
    }
}

impl FromIterator<(String, Text)> for CloudMetadata {
    fn from_iter<I: IntoIterator<Item = (String, Text)>>(attributes: I) -> Self {
        Self(attributes.into_iter().collect())
    }
}

/// Asks the metadata service of a cloud.
pub async fn read(
    provider: CloudProvider,
    base: &str,
    patience: Patience,
) -> Result<CloudMetadata, MetadataError> {
    let service = MetadataService::at(base, patience);
    match provider {
        CloudProvider::Azure => azure::read(&service).await,
        CloudProvider::None => Ok(CloudMetadata::default()),
    }
}

#[cfg(test)]
mod tests;
