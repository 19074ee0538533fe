//! CEL selectors of devices.
//!
//! The environment is that of `k8s.io/dynamic-resource-allocation/cel/compile.go`: one variable
//! `device` with `driver`, `attributes`, `capacity` and `allowMultipleAllocations`, and the
//! libraries that Kubernetes adds to CEL. An unknown domain of attributes is an empty map. An
//! unknown attribute is a runtime error, which ends the attempt for the pod.
//!
//! The API server has already checked types and costs of expressions, so this module does not. It
//! reproduces values and runtime errors. A function that it does not implement is a compile error
//! that names the function ([`CompileError::Unsupported`]), never a wrong result.
//!
//! Tenants write expressions. Compilation and evaluation charge a [`Budget`](crate::Budget) for each
//! step, and the depth of the tree is limited, so that every walk over it fits the stack of the
//! caller.
//!
//! The parser and the syntax tree come from the crate `cel` (0.15, without `kube-cel`). The
//! evaluator is our own, for two reasons. Exactness: the empty map for unknown domains, errors that
//! `&&`, `||` and the macros absorb, equality between types, and the error texts belong to the core
//! of an evaluator and cannot be added from outside. Speed: `device.attributes["d"].x` becomes one
//! look-up, without building maps of values first.

mod compile;
mod compiled;
mod conjuncts;
mod error;
mod eval;
mod function;
mod functions;
mod loops;
mod maps;
mod mentions;
mod network;
mod node;
mod order;
mod parse;
mod re2;
mod search;
mod selector;
mod value;
mod work;

pub use compiled::{CompiledSelector, compile};
pub(crate) use conjuncts::conjuncts;
pub use error::{CompileError, ErrorClass, RuntimeError};
pub(crate) use mentions::Mentions;
pub use search::matches_pattern;
pub use selector::Selector;
