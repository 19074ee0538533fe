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
//! Tenants write expressions. Compilation and evaluation charge a [`Budget`] for each step, and the
//! depth of the tree is limited, so that every walk over it fits the stack of the caller.
//!
//! The parser and the syntax tree come from the crate `cel` (0.15, without `kube-cel`). The
//! evaluator is our own, for two reasons. Exactness: the empty map for unknown domains, errors that
//! `&&`, `||` and the macros absorb, equality between types, and the error texts belong to the core
//! of an evaluator and cannot be added from outside. Speed: `device.attributes["d"].x` becomes one
//! look-up, without building maps of values first.

mod compile;
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

use std::sync::Arc;

use crate::budget::Budget;
use crate::device::{AttributeValue, Device};
use crate::settings::Settings;

pub(crate) use conjuncts::conjuncts;
pub use error::{CompileError, ErrorClass, RuntimeError};
pub(crate) use mentions::Mentions;
pub use selector::Selector;

/// Compiles an expression.
///
/// The budget is charged here and in evaluations. Once it is spent, there is no result.
pub fn compile(expression: &str, budget: &Budget<'_>) -> Result<CompiledSelector, CompileError> {
    compile::program(expression, budget).map(|root| CompiledSelector { root: Arc::new(root) })
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct CompiledSelector {
    root: Arc<node::Node>,
}

impl CompiledSelector {
    /// Returns true if a device passes, with the settings of the newest Kubernetes.
    pub fn matches(&self, device: &Device, budget: &Budget<'_>) -> Result<bool, RuntimeError> {
        if let Some(flaw) = &device.attributes.flaw {
            return Err(RuntimeError::new(ErrorClass::UnsupportedAttribute, &**flaw));
        }
        let value = eval::evaluate(&self.root, device, budget)?;
        value.as_bool().ok_or_else(|| RuntimeError::not_bool(value.type_name()))
    }

    /// Returns true if a device passes, with the given settings.
    pub fn matches_with(
        &self,
        device: &Device,
        settings: &Settings,
        budget: &Budget<'_>,
    ) -> Result<bool, RuntimeError> {
        if settings.quirks.list_value_is_cel_error && device.attributes.lists {
            let list = device.attributes().find(|(_, value)| value.is_list());
            let name = list.map(|(name, _)| name.as_str()).unwrap_or_default();
            let text = format!("attribute {name}: unsupported attribute value");
            return Err(RuntimeError::new(ErrorClass::UnsupportedAttribute, text));
        }
        self.matches(device, budget)
    }

    /// Adds the attributes that the expression can read.
    pub(crate) fn add_mentions(&self, mentions: &mut Mentions) {
        mentions.add_node(&self.root);
    }

    /// The value of a derived attribute (`valToDeviceAttribute`).
    pub(crate) fn attribute(
        &self,
        device: &Device,
        budget: &Budget<'_>,
    ) -> Result<AttributeValue, RuntimeError> {
        if let Some(flaw) = &device.attributes.flaw {
            return Err(RuntimeError::new(ErrorClass::UnsupportedAttribute, &**flaw));
        }
        eval::evaluate(&self.root, device, budget)?.into_attribute()
    }
}
