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
mod nesting;
mod network;
mod node;
mod order;
mod re2;
mod value;
mod work;

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use crate::device::{AttributeValue, Device};
use crate::hash::HashMap;
use crate::settings::Settings;

pub(crate) use conjuncts::conjuncts;
pub use error::{CompileError, ErrorClass, RuntimeError};
pub(crate) use mentions::Mentions;

/// Compiles an expression.
pub fn compile(expression: &str) -> Result<CompiledSelector, CompileError> {
    compile::program(expression).map(|root| CompiledSelector { root: Arc::new(root) })
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct CompiledSelector {
    root: Arc<node::Node>,
}

impl CompiledSelector {
    /// Returns true if a device passes, with the settings of the newest Kubernetes.
    pub fn matches(&self, device: &Device) -> Result<bool, RuntimeError> {
        if let Some(flaw) = &device.attributes.flaw {
            return Err(RuntimeError::new(ErrorClass::UnsupportedAttribute, &**flaw));
        }
        let value = eval::evaluate(&self.root, device)?;
        value.as_bool().ok_or_else(|| RuntimeError::not_bool(value.type_name()))
    }

    /// Returns true if a device passes, with the given settings.
    pub fn matches_with(&self, device: &Device, settings: &Settings) -> Result<bool, RuntimeError> {
        if settings.quirks.list_value_is_cel_error && device.attributes.lists {
            let list = device.attributes().find(|(_, value)| value.is_list());
            let name = list.map(|(name, _)| name.as_str()).unwrap_or_default();
            let text = format!("attribute {name}: unsupported attribute value");
            return Err(RuntimeError::new(ErrorClass::UnsupportedAttribute, text));
        }
        self.matches(device)
    }

    /// Adds the attributes that the expression can read.
    pub(crate) fn add_mentions(&self, mentions: &mut Mentions) {
        mentions.add_node(&self.root);
    }

    /// The value of a derived attribute (`valToDeviceAttribute`).
    pub(crate) fn attribute(&self, device: &Device) -> Result<AttributeValue, RuntimeError> {
        if let Some(flaw) = &device.attributes.flaw {
            return Err(RuntimeError::new(ErrorClass::UnsupportedAttribute, &**flaw));
        }
        eval::evaluate(&self.root, device)?.into_attribute()
    }
}

type Compiled = OnceLock<Result<CompiledSelector, CompileError>>;

/// The maximum number of cached expressions. A cluster has a few dozen.
const MAX_KNOWN: usize = 4096;

/// A cache of compiled expressions by text. Compilation is a pure function and takes longer than a
/// search, and many claims have the same selectors.
static KNOWN: LazyLock<Mutex<HashMap<Arc<str>, Arc<Compiled>>>> = LazyLock::new(Mutex::default);

/// A selector expression of a class or a claim, compiled on first use.
///
/// An expression that does not compile causes an error only when it is evaluated on a device.
#[derive(Clone)]
pub struct Selector {
    expression: Arc<str>,
    compiled: Arc<Compiled>,
}

impl Selector {
    /// Creates a selector. Equal texts are compiled once.
    pub fn new(expression: impl Into<Arc<str>>) -> Self {
        let expression = expression.into();
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        let compiled = known.entry(expression.clone()).or_default().clone();
        Self { expression, compiled }
    }

    /// The text of the expression.
    pub fn expression(&self) -> &Arc<str> {
        &self.expression
    }

    /// The compiled form.
    pub fn compiled(&self) -> Result<&CompiledSelector, &CompileError> {
        self.compiled.get_or_init(|| compile(&self.expression)).as_ref()
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Selector").field(&self.expression).finish()
    }
}
