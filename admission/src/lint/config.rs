//! Checks configuration for this driver, parsed as the driver parses it.

use super::{Check, Finding};
use cluster_model::names;
use cluster_model::network_config::NetworkConfig;
use dra_allocator::Claim;
use std::error::Error as _;

pub(super) fn check(claim: &Claim) -> Vec<Finding> {
    let ours = claim.config.iter().enumerate();
    let ours = ours.filter(|(_, it)| it.config.driver.as_deref() == Some(names::DRIVER));
    ours.filter_map(|(index, it)| {
        let json = it.config.parameters.to_string();
        let error = NetworkConfig::from_json(json.as_bytes()).err()?;
        let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        let message = format!(
            "the driver {} will refuse it, so that no container starts: {error}{source}",
            names::DRIVER
        );
        Some(Check::RefusedConfig.found(format!("config #{index}"), message))
    })
    .collect()
}
