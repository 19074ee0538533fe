//! Azure's Instance Metadata Service.
//!
//! Follows "Azure Instance Metadata Service" of Microsoft's documents: every
//! request needs `Metadata: true`; the fabric of a virtual machine is its
//! placement group and, on rack-scale sizes, its interconnect groups.

use crate::attribute::Text;
use crate::cloud::CloudMetadata;
use crate::cloud::http::{MetadataError, MetadataService};
use cluster_model::names::attribute;
use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;

/// First API version with the interconnect groups.
const COMPUTE: &str = "/metadata/instance/compute?api-version=2025-11-11&format=json";

/// `compute` of the instance's metadata, as far as it says where it is.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Compute {
    placement_group_id: Option<String>,
    vm_size: Option<String>,
    interconnect_group_id: Option<String>,
    interconnect_subgroup_id: Option<String>,
}

/// Asks the service. What it leaves empty is left out.
pub(crate) async fn read(service: &MetadataService) -> Result<CloudMetadata, MetadataError> {
    let header = (HeaderName::from_static("metadata"), HeaderValue::from_static("true"));
    let body = service.get(COMPUTE, &[header]).await?;
    let compute: Compute = serde_json::from_slice(&body)
        .map_err(|source| MetadataError::Malformed { url: service.url(COMPUTE), source })?;
    Ok(compute.into())
}

impl From<Compute> for CloudMetadata {
    fn from(compute: Compute) -> Self {
        let Compute {
            placement_group_id,
            vm_size,
            interconnect_group_id,
            interconnect_subgroup_id,
        } = compute;
        let attributes = [
            (attribute::AZURE_PLACEMENT_GROUP, placement_group_id),
            (attribute::AZURE_VM_SIZE, vm_size),
            (attribute::AZURE_INTERCONNECT_GROUP, interconnect_group_id),
            (attribute::AZURE_INTERCONNECT_SUBGROUP, interconnect_subgroup_id),
        ];
        attributes
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), Text::new(&value?)?)))
            .collect()
    }
}
