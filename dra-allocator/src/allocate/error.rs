//! Errors that fail an attempt for a pod on all nodes.
//!
//! The texts are Kubernetes' own, except where they would repeat their cause.

use std::error::Error as _;
use std::fmt;
use std::iter;
use std::sync::Arc;

use super::capacity::CapacityError;
use super::limits::MAX_DEVICES;
use crate::cel::{CompileError, ErrorClass, RuntimeError};
use crate::inventory::GatherError;
use crate::name::{ClaimName, DeviceId, PoolId};

/// An error that ends the search; boxed because it is large.
pub(super) type Failure = Box<AllocateError>;

/// The object that holds a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorPlace {
    /// In a `DeviceClass`.
    Class(Arc<str>),
    /// In a claim.
    Claim(ClaimName),
}

impl fmt::Display for SelectorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(name) => write!(f, "class {name}"),
            Self::Claim(name) => write!(f, "claim {name}"),
        }
    }
}

/// An error of a CEL expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorFailure {
    /// It does not compile.
    #[error("CEL compile error")]
    Compile(#[source] CompileError),
    /// It fails at runtime on a device.
    #[error("CEL runtime error on device {device}")]
    Runtime {
        /// The device.
        device: DeviceId,
        /// The error.
        source: RuntimeError,
    },
}

/// An error that fails the attempt for the pod on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The pools of the node cannot be determined.
    #[error("gather pool information")]
    Gather(#[from] GatherError),
    /// A request uses a disabled feature.
    #[error("claim {claim}, request {request}: {asks}, but the {gate} feature is disabled")]
    Disabled {
        /// The claim.
        claim: ClaimName,
        /// The request or subrequest.
        request: Arc<str>,
        /// What the request uses.
        asks: &'static str,
        /// The feature gate.
        gate: &'static str,
    },
    /// A selector of an unknown kind.
    #[error(
        "claim {claim}, request {request}, selector #{index}: CEL expression empty (unsupported \
         selector type?)"
    )]
    UnknownSelector {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
        /// Which selector.
        index: usize,
    },
    /// A request without a class.
    #[error(
        "claim {claim}, request {request}: missing device class name (unsupported request type?)"
    )]
    NoClass {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
    },
    /// A device class that does not exist.
    #[error("claim {claim}, request {request}: could not retrieve device class {class}: not found")]
    UnknownClass {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
        /// The class.
        class: Arc<str>,
    },
    /// A request for all devices while a pool is incomplete or invalid.
    #[error(
        "claim {claim}, request {request}: asks for all devices, but resource pool {pool} is \
         currently {problem}"
    )]
    Pool {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
        /// The pool.
        pool: PoolId,
        /// The pool's problem.
        problem: &'static str,
    },
    /// An unknown allocation mode.
    #[error("claim {claim}, request {request}: unsupported count mode {mode}")]
    UnknownMode {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
        /// The mode.
        mode: Arc<str>,
    },
    /// More devices than one claim can hold.
    #[error(
        "claim {claim}, request {request}: adding {adding} devices exceeds the claim limit of \
         {max}, with {already} already accounted for",
        max = MAX_DEVICES
    )]
    TooManyDevices {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
        /// The number of devices that the request needs at least.
        adding: i64,
        /// The number of devices that earlier requests need.
        already: i64,
    },
    /// A constraint of an unknown kind.
    #[error("claim {claim}, constraint #{index}: empty constraint (unsupported constraint type?)")]
    UnknownConstraint {
        /// The claim.
        claim: ClaimName,
        /// Which constraint.
        index: usize,
    },
    /// A request for all devices while a constraint forbids one of them.
    #[error(
        "claim {claim}, request {request}: cannot add device {device} because a claim constraint \
         would not be satisfied"
    )]
    Constraint {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
        /// The device.
        device: DeviceId,
    },
    /// A selector cannot be evaluated.
    #[error("{place}: selector #{index}")]
    Selector {
        /// The object that holds it.
        place: SelectorPlace,
        /// Which selector.
        index: usize,
        /// The error.
        source: SelectorFailure,
    },
    /// A derived attribute cannot be computed.
    #[error("derived attribute {name}")]
    DerivedAttribute {
        /// The attribute.
        name: Arc<str>,
        /// The error.
        source: SelectorFailure,
    },
    /// A capacity cannot be computed.
    #[error("claim {claim}, request {request}: checking capacity for device {device}")]
    Capacity {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
        /// The device.
        device: DeviceId,
        /// The error.
        source: CapacityError,
    },
    /// A slice's node selector has several terms, which Kubernetes does not support.
    #[error("claim {claim}: unsupported ResourceSlice.NodeSelector with {terms} terms")]
    NodeSelectorTerms {
        /// The claim.
        claim: ClaimName,
        /// The number of terms.
        terms: usize,
    },
    /// The claims need a deeper search than this crate supports. Kubernetes has no such limit.
    #[error("the claims need {0} levels of search, more than the supported limit")]
    TooDeep(usize),
}

impl AllocateError {
    /// The message with those of its sources, as kube-scheduler says it in a pod's events.
    pub fn in_full(&self) -> String {
        let sources = iter::successors(self.source(), |error| (*error).source());
        sources.fold(self.to_string(), |text, source| format!("{text}: {source}"))
    }

    /// Returns true if the budget was spent. Kubernetes has no such error.
    pub(super) fn is_over_budget(&self) -> bool {
        match self {
            Self::Selector { source, .. } | Self::DerivedAttribute { source, .. } => {
                source.is_over_budget()
            }
            _ => false,
        }
    }
}

impl SelectorFailure {
    fn is_over_budget(&self) -> bool {
        match self {
            Self::Compile(error) => *error == CompileError::OutOfBudget,
            Self::Runtime { source, .. } => source.class == ErrorClass::OutOfBudget,
        }
    }
}
