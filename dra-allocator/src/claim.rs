//! `ResourceClaims` and `DeviceClasses`.

use std::slice;
use std::sync::Arc;

use crate::cel::Selector;
use crate::device::{Device, DeviceTaint};
use crate::name::{ClaimName, QualifiedName};
use crate::quantity::Quantity;

/// A `DeviceClass`.
#[derive(Clone, Debug)]
pub struct Class {
    /// The name.
    pub name: Arc<str>,
    /// The selectors that a device must pass, in order.
    pub selectors: Vec<Selector>,
    /// Configuration for the drivers of devices of this class.
    pub config: Vec<OpaqueConfig>,
}

/// Opaque configuration for a driver.
#[derive(Clone, Debug, PartialEq)]
pub struct OpaqueConfig {
    /// The driver; `None` if the kind of configuration is unknown.
    pub driver: Option<Arc<str>>,
    /// The parameters.
    pub parameters: Arc<serde_json::Value>,
}

/// The spec of a `ResourceClaim`.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The name, for messages.
    pub name: ClaimName,
    /// The requests, in the order in which the search serves them.
    pub requests: Vec<Request>,
    /// The constraints between devices.
    pub constraints: Vec<Constraint>,
    /// Configuration for the named requests.
    pub config: Vec<ClaimConfig>,
}

/// Configuration in a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimConfig {
    /// The requests and subrequests that it applies to; empty means all.
    pub requests: Vec<Arc<str>>,
    /// The configuration.
    pub config: OpaqueConfig,
}

/// A request of a claim.
#[derive(Clone, Debug)]
pub struct Request {
    /// The name.
    pub name: Arc<str>,
    /// The requested devices.
    pub kind: RequestKind,
}

/// One alternative, or a prioritized list of alternatives.
#[derive(Clone, Debug)]
pub enum RequestKind {
    /// `exactly`.
    Exactly(Ask),
    /// `firstAvailable`: one entry per subrequest.
    FirstAvailable(Vec<Ask>),
    /// Neither field is set: an extension of a later Kubernetes version.
    Unknown,
}

impl Request {
    /// The alternatives; exactly one for `exactly`.
    pub fn asks(&self) -> &[Ask] {
        match &self.kind {
            RequestKind::Exactly(ask) => slice::from_ref(ask),
            RequestKind::FirstAvailable(asks) => asks,
            RequestKind::Unknown => &[],
        }
    }

    /// Returns true for a `firstAvailable` request.
    pub fn is_prioritized(&self) -> bool {
        matches!(self.kind, RequestKind::FirstAvailable(_))
    }
}

/// The number of devices to allocate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocationMode {
    /// This many.
    ExactCount(i64),
    /// All that match, at least one.
    All,
    /// An unknown mode.
    Unknown(Arc<str>),
}

/// The devices wanted by an `exactly` request or a subrequest.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The name of the request or subrequest.
    pub name: Arc<str>,
    /// The device class.
    pub class: Arc<str>,
    /// The number of devices.
    pub mode: AllocationMode,
    /// Whether devices are taken without being marked as in use; `None` if not set.
    pub admin_access: Option<bool>,
    /// The selectors that a device must pass, in order; `None` for an unknown kind of selector.
    pub selectors: Vec<Option<Selector>>,
    /// The tolerated taints.
    pub tolerations: Vec<Toleration>,
    /// The capacity requested from each device; `None` if the field is not set.
    pub capacity: Option<Vec<(QualifiedName, Quantity)>>,
    /// Attributes that CEL computes for constraints: names and expressions.
    pub derived_attributes: Vec<(Arc<str>, Selector)>,
}

impl Ask {
    /// Returns true if devices are taken without being marked as in use.
    pub fn is_admin(&self) -> bool {
        self.admin_access == Some(true)
    }

    /// Returns true if all matching devices are requested.
    pub fn is_all(&self) -> bool {
        self.mode == AllocationMode::All
    }

    /// The first taint of a device that keeps it from being allocated.
    pub(crate) fn untolerated<'d>(&self, device: &'d Device) -> Option<&'d DeviceTaint> {
        let mut taints = device.taints().iter().filter(|taint| taint.prevents_allocation());
        taints.find(|taint| !self.tolerations.iter().any(|known| known.tolerates(taint)))
    }
}

/// A toleration of a device taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// The key; empty matches every key.
    pub key: Arc<str>,
    /// `Exists` or `Equal`; empty means `Equal`.
    pub operator: Arc<str>,
    /// The value, for `Equal`.
    pub value: Arc<str>,
    /// The effect; empty matches every effect.
    pub effect: Arc<str>,
    /// The time for which a `NoExecute` taint is tolerated, in seconds.
    pub seconds: Option<i64>,
}

impl Toleration {
    /// Returns true if the taint is tolerated (`ToleratesTaint` in
    /// `k8s.io/dynamic-resource-allocation/resourceclaim`).
    pub fn tolerates(&self, taint: &DeviceTaint) -> bool {
        covers(&self.effect, &taint.effect)
            && covers(&self.key, &taint.key)
            && match &*self.operator {
                "Exists" => true,
                "" | "Equal" => self.value == taint.value,
                _ => false,
            }
    }
}

/// Whether a part of a toleration, empty for all, matches that of a taint.
fn covers(own: &Arc<str>, other: &Arc<str>) -> bool {
    own.is_empty() || own == other
}

/// A constraint between devices of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// The requests and subrequests that it binds; empty means all.
    pub requests: Vec<Arc<str>>,
    /// The kind of constraint.
    pub kind: ConstraintKind,
}

/// The kinds of constraints, with the fully qualified name of the attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConstraintKind {
    /// `matchAttribute`: all devices have the same value.
    Match(Arc<str>),
    /// `distinctAttribute`: all devices have different values.
    Distinct(Arc<str>),
    /// An unknown kind.
    Unknown,
}

impl ConstraintKind {
    /// The attribute that is compared.
    pub fn attribute(&self) -> Option<&str> {
        match self {
            Self::Match(name) | Self::Distinct(name) => Some(name),
            Self::Unknown => None,
        }
    }
}

impl Constraint {
    /// Returns true if the constraint binds the devices of a request or its subrequest.
    pub fn binds(&self, request: &str, subrequest: Option<&str>) -> bool {
        self.requests.is_empty()
            || self.requests.iter().any(|name| match subrequest {
                _ if **name == *request => true,
                Some(sub) => name
                    .strip_prefix(request)
                    .and_then(|rest| rest.strip_prefix('/'))
                    .is_some_and(|rest| rest == sub),
                None => false,
            })
    }
}
