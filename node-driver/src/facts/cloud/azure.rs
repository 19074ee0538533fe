//! Azure's Instance Metadata Service.
//!
//! Follows "Azure Instance Metadata Service" of Microsoft's documents: every
//! request needs `Metadata: true`; the fabric of a virtual machine is its
//! placement group and, on rack-scale sizes, its interconnect groups.

use crate::facts::cloud::CloudMetadata;
use crate::facts::cloud::http::{MetadataError, MetadataService, header};
use cluster_model::names::attribute;
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
pub(super) async fn read(service: &MetadataService) -> Result<CloudMetadata, MetadataError> {
    let compute: Compute = service.json(COMPUTE, &[header("metadata", "true")]).await?;
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
        Self::of([
            (attribute::AZURE_PLACEMENT_GROUP, placement_group_id),
            (attribute::AZURE_VM_SIZE, vm_size),
            (attribute::AZURE_INTERCONNECT_GROUP, interconnect_group_id),
            (attribute::AZURE_INTERCONNECT_SUBGROUP, interconnect_subgroup_id),
        ])
    }
}
