//! A compiled expression, and what it says of a device.

use std::sync::Arc;

use super::compile::program;
use super::error::{CompileError, ErrorClass, RuntimeError};
use super::eval::evaluate;
use super::mentions::Mentions;
use super::node::Node;
use crate::budget::Budget;
use crate::device::{AttributeValue, Device};
use crate::settings::Settings;

/// Compiles an expression.
///
/// The budget is charged here and in evaluations. Once it is spent, there is no result.
pub fn compile(expression: &str, budget: &Budget<'_>) -> Result<CompiledSelector, CompileError> {
    program(expression, budget).map(|root| CompiledSelector { root: Arc::new(root) })
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct CompiledSelector {
    root: Arc<Node>,
}

impl CompiledSelector {
    /// About how many bytes of memory it takes.
    pub(super) fn bytes(&self) -> usize {
        self.root.bytes()
    }

    /// Returns true if a device passes, with the settings of the newest Kubernetes.
    pub fn matches(&self, device: &Device, budget: &Budget<'_>) -> Result<bool, RuntimeError> {
        if let Some(flaw) = &device.attributes.flaw {
            return Err(RuntimeError::new(ErrorClass::UnsupportedAttribute, &**flaw));
        }
        let value = evaluate(&self.root, device, budget)?;
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
        evaluate(&self.root, device, budget)?.into_attribute()
    }
}
