//! Derived attributes, each computed once.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::super::error::{AllocateError, Failure, SelectorFailure};
use super::super::problem::Problem;
use crate::cel::Selector;
use crate::device::AttributeValue;
use crate::hash::HashMap;

/// Derived attributes by candidate and expression.
#[derive(Debug, Default)]
pub(super) struct Derived {
    known: HashMap<(usize, Arc<str>), AttributeValue>,
}

impl Derived {
    /// The value of a derived attribute. An error fails the attempt.
    pub(super) fn value(
        &mut self,
        problem: &Problem<'_>,
        candidate: usize,
        name: &Arc<str>,
        selector: &Selector,
    ) -> Result<&AttributeValue, Failure> {
        let key = (candidate, selector.expression().clone());
        match self.known.entry(key) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let device = problem.candidates[candidate].device;
                let failure =
                    |source| AllocateError::DerivedAttribute { name: name.clone(), source };
                let compiled = selector.compiled(problem.budget);
                let compiled = compiled.map_err(|e| failure(SelectorFailure::Compile(e)))?;
                let value = compiled.attribute(device, problem.budget).map_err(|source| {
                    failure(SelectorFailure::Runtime { device: device.id.clone(), source })
                })?;
                Ok(entry.insert(value))
            }
        }
    }
}
