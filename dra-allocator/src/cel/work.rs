//! Limits the work of an evaluation.
//!
//! The API server estimates the cost of an expression and rejects more than a million units; the
//! scheduler counts again and stops there (`CostLimit` in `cel/compile.go`). This crate counts in
//! coarser units, with a limit above every expression that Kubernetes accepts.

use super::error::RuntimeError;
use super::value::Value;
use crate::budget::{Budget, Spent};

/// The maximum units per evaluation: nodes visited, and elements of arguments and results.
const MAX_WORK: u64 = 4_000_000;

/// The work so far of one evaluation.
#[derive(Debug)]
pub(super) struct Work<'b> {
    done: u64,
    /// What this and other evaluations may cost together.
    budget: &'b Budget<'b>,
}

impl<'b> Work<'b> {
    pub(super) fn new(budget: &'b Budget<'b>) -> Self {
        Self { done: 0, budget }
    }

    pub(super) fn budget(&self) -> &'b Budget<'b> {
        self.budget
    }

    /// Charges work before it is done. Once this fails, it always fails, so no error of it is
    /// absorbed: a result is not evaluated without a charge.
    pub(super) fn charge(&mut self, work: u64) -> Result<(), RuntimeError> {
        self.done = self.done.saturating_add(work);
        if self.done > MAX_WORK {
            return Err(RuntimeError::too_expensive());
        }
        self.budget.charge(work).map_err(|Spent| RuntimeError::out_of_budget())
    }

    /// Charges the size of a value.
    pub(super) fn charge_value(&mut self, value: &Value) -> Result<(), RuntimeError> {
        match value {
            Value::List(_) | Value::Map(_) | Value::Optional(_) | Value::String(_) => {
                let left = MAX_WORK.saturating_sub(self.done);
                self.charge(weight(value, left))
            }
            _ => Ok(()),
        }
    }

    /// Charges a call before it runs: many functions compare each pair of elements.
    pub(super) fn charge_call(
        &mut self,
        name: &str,
        arguments: &[Value],
    ) -> Result<(), RuntimeError> {
        let left = MAX_WORK.saturating_sub(self.done);
        let weights = arguments.iter().map(|argument| weight(argument, left));
        let work = match name {
            "_+_" => weights.fold(0, u64::saturating_add),
            "distinct" => {
                weights.fold(1_u64, |product, w| product.saturating_mul(w).saturating_mul(w))
            }
            _ => weights.fold(1, u64::saturating_mul),
        };
        self.charge(work)
    }
}

/// The number of elements of a value, nested ones included, plus one unit per sixteen bytes of
/// text. Counting stops above the limit.
fn weight(value: &Value, limit: u64) -> u64 {
    match value {
        Value::String(text) => 1 + text.len() as u64 / 16,
        Value::Bytes(octets) => 1 + octets.len() as u64 / 16,
        Value::List(values) => sum(values.iter(), limit),
        Value::Map(entries) => sum(entries.iter().flat_map(|(key, value)| [key, value]), limit),
        Value::Optional(Some(inner)) => weight(inner, limit).saturating_add(1),
        // The maps of a device, which has at most 32 attributes.
        Value::Device
        | Value::AttributeDomains
        | Value::CapacityDomains
        | Value::AttributesOf(_)
        | Value::CapacityOf(_) => 64,
        _ => 1,
    }
}

fn sum<'v>(values: impl Iterator<Item = &'v Value>, limit: u64) -> u64 {
    let mut sum: u64 = 1;
    for value in values {
        if sum > limit {
            break;
        }
        sum = sum.saturating_add(weight(value, limit - sum));
    }
    sum
}
