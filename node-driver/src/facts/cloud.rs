//! What the cloud's metadata service says about the virtual machine: its size and its
//! fabric. Facts only; which NIC has which attribute is decided elsewhere.
//!
//! An unreachable metadata service never stops the driver: its attributes are then
//! absent, never empty. The driver waits for it only if it has not answered during this
//! boot, so that the first slices already name the machine's fabric.

mod alibaba;
mod aws;
mod azure;
mod dmi;
mod gce;
pub mod http;
mod oci;
pub mod source;

use http::{MetadataError, MetadataService, Patience};
use publication::cloud::CloudMetadata;

/// The cloud whose metadata service is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudProvider {
    /// Alibaba Cloud.
    Alibaba,
    /// Amazon Web Services.
    Aws,
    /// Azure.
    Azure,
    /// Google Compute Engine.
    Gce,
    /// Oracle Cloud.
    Oci,
    /// No cloud: bare metal, or a cloud without fabric metadata.
    None,
}

impl CloudProvider {
    /// Base address of the metadata service.
    fn metadata_url(self) -> &'static str {
        match self {
            Self::Alibaba => "http://100.100.100.200",
            _ => "http://169.254.169.254",
        }
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
        CloudProvider::Alibaba => alibaba::read(&service).await,
        CloudProvider::Aws => aws::read(&service).await,
        CloudProvider::Azure => azure::read(&service).await,
        CloudProvider::Gce => gce::read(&service).await,
        CloudProvider::Oci => oci::read(&service).await,
        CloudProvider::None => Ok(CloudMetadata::default()),
    }
}

#[cfg(test)]
mod tests;
