//! The metadata service of Alibaba Cloud, in its hardened mode.
//!
//! Follows "Instance metadata" of the Alibaba Cloud documentation: a token by PUT, then
//! one text per path.

use crate::facts::cloud::http::{MetadataError, MetadataService};
use cluster_model::names::attribute;
use publication::cloud::CloudMetadata;

pub(super) async fn read(service: &MetadataService) -> Result<CloudMetadata, MetadataError> {
    let token = service
        .token(
            "/latest/api/token",
            "x-aliyun-ecs-metadata-token-ttl-seconds",
            "x-aliyun-ecs-metadata-token",
        )
        .await?;
    let instance_type = service.text("/latest/meta-data/instance/instance-type", &[token]).await?;
    Ok(CloudMetadata::new([(attribute::ALIBABA_INSTANCE_TYPE, instance_type)]))
}
