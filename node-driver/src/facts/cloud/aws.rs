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
    let text = async |path| service.text(path, &headers).await;
    Ok(CloudMetadata::new([
        (attribute::AWS_INSTANCE_TYPE, text("/latest/meta-data/instance-type").await?),
        (attribute::AWS_PLACEMENT_GROUP, text("/latest/meta-data/placement/group-name").await?),
    ]))
}
