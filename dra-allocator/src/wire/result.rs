//! Converts results into what Kubernetes writes into a claim's status.

use std::collections::BTreeMap;
use std::fmt::Display;

use k8s_openapi::api::resource::v1;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;

use crate::allocation::{ClaimAllocation, ConfigResult, ConfigSource, DeviceResult};
use crate::claim::Toleration;

/// A list; `None` if it is empty.
pub(super) fn list<T: Display>(own: &[T]) -> Option<Vec<String>> {
    (!own.is_empty()).then(|| own.iter().map(ToString::to_string).collect())
}

fn text(own: &str) -> Option<String> {
    (!own.is_empty()).then(|| own.to_owned())
}

/// The allocation without a time and, for shares, without the random share ID.
impl From<&ClaimAllocation> for v1::AllocationResult {
    fn from(own: &ClaimAllocation) -> Self {
        let results: Vec<_> = own.results.iter().map(Into::into).collect();
        let config: Vec<_> = own.config.iter().map(Into::into).collect();
        Self {
            allocation_timestamp: None,
            devices: Some(v1::DeviceAllocationResult {
                results: (!results.is_empty()).then_some(results),
                config: (!config.is_empty()).then_some(config),
            }),
            node_selector: own.node_selector.as_ref().map(Into::into),
        }
    }
}

impl From<&DeviceResult> for v1::DeviceRequestAllocationResult {
    fn from(own: &DeviceResult) -> Self {
        let consumed: BTreeMap<_, _> = own
            .consumed_capacity
            .iter()
            .map(|(name, quantity)| (name.to_string(), WireQuantity(quantity.to_string())))
            .collect();
        let tolerations: Vec<_> = own.tolerations.iter().map(Into::into).collect();
        Self {
            admin_access: own.admin_access.then_some(true),
            binding_conditions: list(&own.binding_conditions),
            binding_failure_conditions: list(&own.binding_failure_conditions),
            consumed_capacity: (!consumed.is_empty()).then_some(consumed),
            device: own.device.device.to_string(),
            driver: own.device.driver.to_string(),
            pool: own.device.pool.to_string(),
            request: own.request.to_string(),
            share_id: None,
            skip_node_operations: list(&own.skip_node_operations),
            tolerations: (!tolerations.is_empty()).then_some(tolerations),
        }
    }
}

impl From<&Toleration> for v1::DeviceToleration {
    fn from(own: &Toleration) -> Self {
        Self {
            effect: text(&own.effect),
            key: text(&own.key),
            operator: text(&own.operator),
            toleration_seconds: own.seconds,
            value: text(&own.value),
        }
    }
}

impl From<&ConfigResult> for v1::DeviceAllocationConfiguration {
    fn from(own: &ConfigResult) -> Self {
        let opaque = own.config.driver.as_ref().map(|driver| v1::OpaqueDeviceConfiguration {
            driver: driver.to_string(),
            parameters: RawExtension((*own.config.parameters).clone()),
        });
        let source = match own.source {
            ConfigSource::Class => "FromClass",
            ConfigSource::Claim => "FromClaim",
        };
        Self { opaque, requests: list(&own.requests), source: source.to_owned() }
    }
}
