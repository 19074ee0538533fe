//! The order of values.

use std::cmp::Ordering;

use super::value::Value;

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
