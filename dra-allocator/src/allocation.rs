//! What claims get.

use std::sync::Arc;

use crate::claim::{OpaqueConfig, Toleration};
use crate::name::{DeviceId, QualifiedName};
use crate::node::NodeSelector;
use crate::quantity::Quantity;

/// What a claim gets.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimAllocation {
    /// The devices, in the order of their requests.
    pub results: Vec<DeviceResult>,
    /// Configuration for drivers: that of classes first.
    pub config: Vec<ConfigResult>,
    /// The nodes that the claim can be used on; none: all.
    pub node_selector: Option<NodeSelector>,
}

/// A device that a claim gets.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceResult {
    /// `request`, or `request/subrequest`.
    pub request: Arc<str>,
    /// The device.
    pub device: DeviceId,
    /// Whether the device stays free for others.
    pub admin_access: bool,
    /// The tolerations of the request.
    pub tolerations: Vec<Toleration>,
    /// Whether this is a share of the device, which Kubernetes gives a random id.
    pub is_share: bool,
    /// What the share takes.
    pub consumed_capacity: Vec<(QualifiedName, Quantity)>,
    /// Conditions before the pod is bound.
    pub binding_conditions: Vec<Arc<str>>,
    /// Conditions that end the wait for them.
    pub binding_failure_conditions: Vec<Arc<str>>,
    /// What kubelet leaves out for the device.
    pub skip_node_operations: Vec<Arc<str>>,
}

/// Where configuration comes from.
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
    /// Where it comes from.
    pub source: ConfigSource,
    /// The requests that it is for; empty: all.
    pub requests: Vec<Arc<str>>,
    /// The configuration.
    pub config: OpaqueConfig,
}
