//! The order of values.

use std::cmp::Ordering;

use super::error::RuntimeError;
use super::value::Value;

/// The order of two values that can be compared; `None` with a NaN.
pub(super) fn compare(left: &Value, right: &Value) -> Result<Option<Ordering>, RuntimeError> {
    order(left, right).ok_or_else(RuntimeError::no_such_overload)
}

/// The order of two values: `None` if they cannot be compared, `Some(None)` with a NaN.
#[allow(clippy::option_option, reason = "no order and an unordered pair are two things")]
pub(super) fn order(left: &Value, right: &Value) -> Option<Option<Ordering>> {
    match (left, right) {
        (Value::String(a), Value::String(b)) => Some(Some(a.cmp(b))),
        (Value::Bool(a), Value::Bool(b)) => Some(Some(a.cmp(b))),
        (Value::Bytes(a), Value::Bytes(b)) => Some(Some(a.cmp(b))),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), _) => match right {
            Value::Int(_) | Value::Uint(_) | Value::Double(_) => Some(left.compare_numbers(right)),
            _ => None,
        },
        _ => None,
    }
}
