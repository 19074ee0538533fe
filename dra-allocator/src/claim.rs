//! `ResourceClaims` and `DeviceClasses`: what is asked for.

use std::slice;
use std::sync::Arc;

use crate::cel::Selector;
use crate::device::DeviceTaint;
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

/// Configuration for a driver, passed on as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct OpaqueConfig {
    /// The driver that it is for; none where the kind of configuration is not known.
    pub driver: Option<Arc<str>>,
    /// The parameters.
    pub parameters: Arc<serde_json::Value>,
}

/// The spec of a `ResourceClaim`.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The name, for messages.
    pub name: ClaimName,
    /// The requests, in the order in which they are served.
    pub requests: Vec<Request>,
    /// What must hold between the devices.
    pub constraints: Vec<Constraint>,
    /// Configuration, each for the requests named (empty: for all).
    pub config: Vec<ClaimConfig>,
}

/// Configuration in a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimConfig {
    /// The requests and subrequests that it is for; empty: all.
    pub requests: Vec<Arc<str>>,
    /// The configuration.
    pub config: OpaqueConfig,
}

/// A request of a claim.
#[derive(Clone, Debug)]
pub struct Request {
    /// The name.
    pub name: Arc<str>,
    /// What is asked for.
    pub kind: RequestKind,
}

/// One thing, or the first that can be had of several.
#[derive(Clone, Debug)]
pub enum RequestKind {
    /// `exactly`.
    Exactly(Ask),
    /// `firstAvailable`: each with the name of its subrequest.
    FirstAvailable(Vec<Ask>),
    /// Neither: some extension of a later Kubernetes.
    Unknown,
}

impl Request {
    /// The alternatives; one for `exactly`.
    pub fn asks(&self) -> &[Ask] {
        match &self.kind {
            RequestKind::Exactly(ask) => slice::from_ref(ask),
            RequestKind::FirstAvailable(asks) => asks,
            RequestKind::Unknown => &[],
        }
    }

    /// Whether this is a `firstAvailable` request.
    pub fn is_prioritized(&self) -> bool {
        matches!(self.kind, RequestKind::FirstAvailable(_))
    }
}

/// How many devices are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocationMode {
    /// This many.
    ExactCount(i64),
    /// All that match, at least one.
    All,
    /// A mode that is not known here.
    Unknown(Arc<str>),
}

/// What devices are asked for, by an `exactly` request or a subrequest.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The name of the request or subrequest.
    pub name: Arc<str>,
    /// The class that the devices must be of.
    pub class: Arc<str>,
    /// How many.
    pub mode: AllocationMode,
    /// Whether devices are taken without being marked as in use; none where not set.
    pub admin_access: Option<bool>,
    /// The selectors that a device must pass, in order; none for an unknown kind of selector.
    pub selectors: Vec<Option<Selector>>,
    /// The taints that are tolerated.
    pub tolerations: Vec<Toleration>,
    /// The amounts asked of each device; none where the field is not set.
    pub capacity: Option<Vec<(QualifiedName, Quantity)>>,
    /// Attributes computed by CEL for constraints: names and expressions.
    pub derived_attributes: Vec<(Arc<str>, Selector)>,
}

impl Ask {
    /// Whether devices are taken without being marked as in use.
    pub fn is_admin(&self) -> bool {
        self.admin_access == Some(true)
    }

    /// Whether all devices are asked for.
    pub fn is_all(&self) -> bool {
        self.mode == AllocationMode::All
    }
}

/// A taint that is tolerated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// The key; empty: every key.
    pub key: Arc<str>,
    /// `Exists`, or `Equal` where it is empty.
    pub operator: Arc<str>,
    /// The value, for `Equal`.
    pub value: Arc<str>,
    /// The effect; empty: every effect.
    pub effect: Arc<str>,
    /// How long a `NoExecute` taint is tolerated.
    pub seconds: Option<i64>,
}

impl Toleration {
    /// `ToleratesTaint` in `k8s.io/dynamic-resource-allocation/resourceclaim`.
    pub fn tolerates(&self, taint: &DeviceTaint) -> bool {
        let wildcard = |own: &Arc<str>, other: &Arc<str>| own.is_empty() || own == other;
        wildcard(&self.effect, &taint.effect)
            && wildcard(&self.key, &taint.key)
            && match &*self.operator {
                "Exists" => true,
                "" | "Equal" => self.value == taint.value,
                _ => false,
            }
    }
}

/// What must hold between devices of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// The requests and subrequests that it binds; empty: all of the claim.
    pub requests: Vec<Arc<str>>,
    /// What must hold.
    pub kind: ConstraintKind,
}

/// The kinds of constraints, with the fully qualified name of the attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConstraintKind {
    /// The attribute has the same value on all devices.
    Match(Arc<str>),
    /// The attribute has a different value on each device.
    Distinct(Arc<str>),
    /// A kind that is not known here.
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
    /// Whether the constraint binds the devices of a request, or of its subrequest.
    pub fn binds(&self, request: &str, subrequest: Option<&str>) -> bool {
        let names = |name: &Arc<str>| match subrequest {
            _ if **name == *request => true,
            Some(sub) => name
                .strip_prefix(request)
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|rest| rest == sub),
            None => false,
        };
        self.requests.is_empty() || self.requests.iter().any(names)
    }
}
