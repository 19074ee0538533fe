//! The Instance Metadata Service of AWS, version 2.
//!
//! Follows "Use the Instance Metadata Service to access instance metadata" of the AWS
//! documentation: a token by PUT, then one text per path. The service reports the
//! instance's placement group, but not which EFA devices share a rail.

use crate::facts::cloud::http::{MetadataError, MetadataService};
use cluster_model::names::attribute;
use publication::cloud::CloudMetadata;

pub(super) async fn read(service: &MetadataService) -> Result<CloudMetadata, MetadataError> {
    let token = service
        .token(
            "/latest/api/token",
            "x-aws-ec2-metadata-token-ttl-seconds",
            "x-aws-ec2-metadata-token",
        )
        .await?;
    let headers = [token];
    let instance_type = service.text("/latest/meta-data/instance-type", &headers).await?;
    let placement_group = service.text("/latest/meta-data/placement/group-name", &headers).await?;
    Ok(CloudMetadata::new([
        (attribute::AWS_INSTANCE_TYPE, instance_type),
        (attribute::AWS_PLACEMENT_GROUP, placement_group),
    ]))
}
