//! Derived attributes, each computed once.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::super::error::{AllocateError, Failure, SelectorFailure};
use super::super::problem::Problem;
use crate::budget::Budget;
use crate::cel::Selector;
use crate::device::{AttributeValue, Device};
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
                let value = compute(selector, device, problem.budget);
                let value = value.map_err(|source| AllocateError::DerivedAttribute {
                    name: name.clone(),
                    source,
                })?;
                Ok(entry.insert(value))
            }
        }
    }
}

fn compute(
    selector: &Selector,
    device: &Device,
    budget: &Budget<'_>,
) -> Result<AttributeValue, SelectorFailure> {
    let compiled = selector.compiled(budget).map_err(SelectorFailure::Compile)?;
    compiled
        .attribute(device, budget)
        .map_err(|source| SelectorFailure::Runtime { device: device.id.clone(), source })
}
