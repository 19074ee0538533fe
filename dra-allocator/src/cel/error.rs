//! Errors of expressions.

use std::fmt::Display;

/// An expression does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Kubernetes rejects it too.
    #[error("compilation failed: {0}")]
    Invalid(String),
    /// Kubernetes supports it, this crate does not.
    #[error("CEL feature `{0}` is not supported")]
    Unsupported(String),
    /// The [`Budget`](crate::Budget) was spent before the expression was compiled.
    #[error("given up: the time for expressions is spent")]
    OutOfBudget,
}

/// The kinds of runtime errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// A map lacks the key; usually a device lacks the attribute.
    NoSuchKey,
    /// A function or operator is not defined for these values.
    NoSuchOverload,
    /// The result is not a boolean.
    NotBool,
    /// An attribute of the device has a kind that CEL cannot read.
    UnsupportedAttribute,
    /// A value cannot be converted as a function requires.
    InvalidValue,
    /// An index outside a list, a number outside its range, or a division by zero.
    OutOfRange,
    /// The evaluation exceeds the work limit.
    TooExpensive,
    /// The [`Budget`](crate::Budget) was spent; Kubernetes has a result.
    OutOfBudget,
    /// The expression needs something that this crate does not support; Kubernetes may have a
    /// result.
    Unsupported,
}

/// An expression failed on a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuntimeError {
    /// The kind.
    pub class: ErrorClass,
    message: String,
}

impl RuntimeError {
    pub(super) fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    pub(super) fn no_such_key(key: impl Display) -> Self {
        Self::new(ErrorClass::NoSuchKey, format!("no such key: {key}"))
    }

    pub(super) fn no_such_overload() -> Self {
        Self::new(ErrorClass::NoSuchOverload, "no such overload")
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::InvalidValue, message)
    }

    pub(super) fn out_of_range(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::OutOfRange, message)
    }

    pub(super) fn too_expensive() -> Self {
        let text = "operation cancelled: actual cost limit exceeded";
        Self::new(ErrorClass::TooExpensive, text)
    }

    pub(super) fn out_of_budget() -> Self {
        let text = "given up: the time for expressions is spent";
        Self::new(ErrorClass::OutOfBudget, text)
    }

    pub(super) fn not_bool(type_name: &str) -> Self {
        let text = format!("CEL result of type {type_name} could not be converted to bool");
        Self::new(ErrorClass::NotBool, text)
    }

    /// The hint that Kubernetes adds to the error (`EnhanceRuntimeError` in `cel/errors.go`).
    pub fn hint(&self) -> Option<&'static str> {
        (self.class == ErrorClass::NoSuchKey).then_some(
            "consider using CEL optional chaining (.? followed by orValue()) or guarding the \
             check with has() for optional fields",
        )
    }
}
