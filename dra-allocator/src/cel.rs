//! CEL selectors of devices.
//!
//! The environment of `k8s.io/dynamic-resource-allocation/cel/compile.go`: one variable
//! `device` with `driver`, `attributes`, `capacity` and `allowMultipleAllocations`, and the
//! libraries that Kubernetes adds to CEL. An unknown domain of attributes is an empty map; an
//! unknown attribute is a runtime error, and a runtime error ends the attempt for the pod.
//!
//! Expressions come from an API server that has checked their types and costs, so neither is
//! done here; what counts are values and runtime errors. A function that is not built here is
//! refused by name ([`CompileError::Unsupported`]) and never answered wrongly.
//!
//! Of the crate `cel` (0.15, alone, without `kube-cel`) the parser and the syntax tree are
//! used. The evaluator is our own, for two reasons. Exactness: the map that answers for unknown
//! domains, errors that `&&`, `||` and the macros absorb, equality between types and the texts
//! of errors are the core of an evaluator, not extensions of one. Speed: `device.attributes
//! ["d"].x` becomes one look-up, where values of maps would first have to be built.

mod compile;
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
    /// Whether a device passes, as the newest Kubernetes would say.
    pub fn matches(&self, device: &Device) -> Result<bool, RuntimeError> {
        if let Some(flaw) = &device.attributes.flaw {
            return Err(RuntimeError::new(ErrorClass::UnsupportedAttribute, &**flaw));
        }
        let value = eval::evaluate(&self.root, device)?;
        value.as_bool().ok_or_else(|| RuntimeError::not_bool(value.type_name()))
    }

    /// Whether a device passes with the settings of an older Kubernetes.
    pub fn matches_with(&self, device: &Device, settings: &Settings) -> Result<bool, RuntimeError> {
        if settings.quirks.list_value_is_cel_error && device.attributes.lists {
            let list = device.attributes().find(|(_, value)| value.is_list());
            let name = list.map(|(name, _)| name.as_str()).unwrap_or_default();
            let text = format!("attribute {name}: unsupported attribute value");
            return Err(RuntimeError::new(ErrorClass::UnsupportedAttribute, text));
        }
        self.matches(device)
    }

    /// Adds the attributes that the expression can look at.
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

/// How many expressions are remembered. A cluster has some tens.
const MAX_KNOWN: usize = 4096;

/// Compiled expressions by their text. Compiling is a pure function, and takes longer than a
/// search; claims with the same selectors come all the time.
static KNOWN: LazyLock<Mutex<HashMap<Arc<str>, Arc<Compiled>>>> = LazyLock::new(Mutex::default);

/// An expression as it stands in a class or a claim, compiled when it is first needed.
///
/// An expression that does not compile is an error only where a device meets it.
#[derive(Clone)]
pub struct Selector {
    expression: Arc<str>,
    compiled: Arc<Compiled>,
}

impl Selector {
    /// A selector of this expression. Selectors of one text are compiled once.
    pub fn new(expression: impl Into<Arc<str>>) -> Self {
        let expression = expression.into();
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        let compiled = known.entry(expression.clone()).or_default().clone();
        Self { expression, compiled }
    }

    /// The text.
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
