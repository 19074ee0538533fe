//! The metadata server of Google Compute Engine.
//!
//! Follows "About VM metadata" and "View the physical location of a VM" of the Google
//! documentation: every request needs `Metadata-Flavor: Google`. The machine type is the
//! last segment of a resource name. The physical host is `/block/subblock/host`, present
//! only with compact placement.

use crate::facts::cloud::http::{MetadataError, MetadataService, header};
use cluster_model::names::attribute;
use publication::cloud::CloudMetadata;

pub(super) async fn read(service: &MetadataService) -> Result<CloudMetadata, MetadataError> {
    let headers = [header("metadata-flavor", "Google")];
    let machine_type = service.text("/computeMetadata/v1/instance/machine-type", &headers).await?;
    let machine_type = machine_type.and_then(|name| Some(name.rsplit('/').next()?.to_owned()));
    let physical_host = service
        .text("/computeMetadata/v1/instance/attributes/physical_host", &headers)
        .await?
        .unwrap_or_default();
    let mut place = physical_host.trim_matches('/').split('/').map(str::to_owned);
    Ok(CloudMetadata::new([
        (attribute::GCE_MACHINE_TYPE, machine_type),
        (attribute::GCE_BLOCK, place.next()),
        (attribute::GCE_SUB_BLOCK, place.next()),
        (attribute::GCE_HOST, place.next()),
    ]))
}
