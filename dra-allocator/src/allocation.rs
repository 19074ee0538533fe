//! Allocations of claims.

use std::sync::Arc;

use crate::claim::{OpaqueConfig, Toleration};
use crate::name::{DeviceId, QualifiedName};
use crate::node::NodeSelector;
use crate::quantity::Quantity;

/// The allocation of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimAllocation {
    /// The devices, in the order of their requests.
    pub results: Vec<DeviceResult>,
    /// Configuration for drivers; the configuration of classes comes first.
    pub config: Vec<ConfigResult>,
    /// The nodes on which the claim can be used; `None` means all nodes.
    pub node_selector: Option<NodeSelector>,
}

/// An allocated device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceResult {
    /// `request`, or `request/subrequest`.
    pub request: Arc<str>,
    /// The device.
    pub device: DeviceId,
    /// True if the device stays free for other claims.
    pub admin_access: bool,
    /// The tolerations of the request.
    pub tolerations: Vec<Toleration>,
    /// True if this is a share of the device, to which Kubernetes gives a random ID.
    pub is_share: bool,
    /// The capacity that the share takes.
    pub consumed_capacity: Vec<(QualifiedName, Quantity)>,
    /// Conditions that must hold before the pod is bound.
    pub binding_conditions: Vec<Arc<str>>,
    /// Conditions that end the wait for `binding_conditions`.
    pub binding_failure_conditions: Vec<Arc<str>>,
    /// The node operations that the kubelet skips for the device.
    pub skip_node_operations: Vec<Arc<str>>,
}

/// The object that a configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The class.
    Class,
    /// The claim.
    Claim,
}

/// Configuration for a driver.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigResult {
    /// The object that it comes from.
    pub source: ConfigSource,
    /// The requests that it applies to; empty means all.
    pub requests: Vec<Arc<str>>,
    /// The configuration.
    pub config: OpaqueConfig,
}
