//! The Instance Metadata Service of Oracle Cloud, version 2.
//!
//! Follows "Getting Instance Metadata" and "RDMA Network Locality" of the Oracle
//! documentation: every request needs `Authorization: Bearer Oracle`. Locations are
//! OCIDs, which differ in their last segment. They are present only if the tenancy has
//! requested topology data.

use crate::facts::cloud::http::{MetadataError, MetadataService, header};
use cluster_model::names::attribute;
use publication::cloud::CloudMetadata;
use serde::Deserialize;

/// The part of the `host` document that locates the host.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Host {
    rack_id: Option<String>,
    rdma_topology_data: Option<RdmaTopology>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RdmaTopology {
    #[serde(rename = "customerGpuMemoryFabric")]
    gpu_memory_fabric: Option<String>,
    #[serde(rename = "customerHPCIslandId")]
    hpc_island: Option<String>,
    #[serde(rename = "customerLocalBlock")]
    local_block: Option<String>,
    #[serde(rename = "customerNetworkBlock")]
    network_block: Option<String>,
}

pub(super) async fn read(service: &MetadataService) -> Result<CloudMetadata, MetadataError> {
    let host: Host =
        service.json("/opc/v2/host/", &[header("authorization", "Bearer Oracle")]).await?;
    // Hosts without an RDMA network have a rack too, but then it says nothing about a
    // fabric.
    let Some(topology) = host.rdma_topology_data else { return Ok(CloudMetadata::default()) };
    Ok(CloudMetadata::new([
        (attribute::OKE_HPC_ISLAND, last_segment(topology.hpc_island)),
        (attribute::OKE_NETWORK_BLOCK, last_segment(topology.network_block)),
        (attribute::OKE_LOCAL_BLOCK, last_segment(topology.local_block)),
        (attribute::OKE_RACK, host.rack_id),
        (attribute::OKE_GPU_MEMORY_FABRIC, last_segment(topology.gpu_memory_fabric)),
    ]))
}

/// The last segment of an OCID, cut to its last 60 bytes: a whole OCID is longer than an
/// attribute may be.
fn last_segment(ocid: Option<String>) -> Option<String> {
    let ocid = ocid?;
    let segment = ocid.rsplit('.').next()?;
    let start = segment.ceil_char_boundary(segment.len().saturating_sub(60));
    Some(segment[start..].to_owned())
}
