//! Optionals, quantities and semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Evaluated, Function, global, method, no_such_overload};
use crate::cel::error::RuntimeError;
use crate::cel::value::{Value, version};
use crate::device::Device;
use crate::quantity::Quantity;

pub(super) const FUNCTIONS: &[Function] = &[
    global("optional.none", (0, 0), |_, _| Ok(Value::Optional(None))),
    global("optional.of", (1, 1), |arguments, _| Ok(Value::some(arguments[0].clone()))),
    method("hasValue", (1, 1), has_value),
    method("value", (1, 1), value),
    global("quantity", (1, 1), quantity),
    global("semver", (1, 1), semver),
    method("compareTo", (2, 2), compare_to),
    method("isGreaterThan", (2, 2), is_greater_than),
    method("isLessThan", (2, 2), is_less_than),
];

fn has_value(arguments: &[Value], _: &Device) -> Evaluated {
    match &arguments[0] {
        Value::Optional(inner) => Ok(Value::Bool(inner.is_some())),
        _ => Err(no_such_overload()),
    }
}

fn value(arguments: &[Value], _: &Device) -> Evaluated {
    match &arguments[0] {
        Value::Optional(Some(inner)) => Ok(Value::clone(&Arc::clone(inner))),
        Value::Optional(None) => Err(RuntimeError::invalid("optional.none() dereference")),
        _ => Err(no_such_overload()),
    }
}

fn quantity(arguments: &[Value], _: &Device) -> Evaluated {
    match &arguments[0] {
        Value::String(text) => text
            .parse::<Quantity>()
            .map(Value::Quantity)
            .map_err(|error| RuntimeError::invalid(error.to_string())),
        _ => Err(no_such_overload()),
    }
}

fn semver(arguments: &[Value], _: &Device) -> Evaluated {
    match &arguments[0] {
        Value::String(text) => version(text),
        _ => Err(no_such_overload()),
    }
}

fn order(arguments: &[Value]) -> Result<Ordering, RuntimeError> {
    match arguments {
        [Value::Quantity(a), Value::Quantity(b)] => Ok(a.cmp(b)),
        [Value::Semver(a), Value::Semver(b)] => Ok(a.cmp_precedence(b)),
        _ => Err(no_such_overload()),
    }
}

fn compare_to(arguments: &[Value], _: &Device) -> Evaluated {
    order(arguments).map(|order| Value::Int(order as i64))
}

fn is_greater_than(arguments: &[Value], _: &Device) -> Evaluated {
    order(arguments).map(|order| Value::Bool(order == Ordering::Greater))
}

fn is_less_than(arguments: &[Value], _: &Device) -> Evaluated {
    order(arguments).map(|order| Value::Bool(order == Ordering::Less))
}
