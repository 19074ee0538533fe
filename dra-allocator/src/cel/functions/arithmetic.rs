//! Arithmetic and `size`.

use crate::cel::error::RuntimeError;
use crate::cel::function::{Evaluated, Function, global, method, no_such_overload};
use crate::cel::value::Value;
use crate::device::Device;

pub(super) const FUNCTIONS: &[Function] = &[
    global("_+_", (2, 2), add),
    global("_-_", (2, 2), subtract),
    global("_*_", (2, 2), multiply),
    global("_/_", (2, 2), divide),
    global("_%_", (2, 2), modulo),
    global("-_", (1, 1), negate),
    global("size", (1, 1), size),
    method("size", (1, 1), size),
];

fn overflow(kind: &str) -> RuntimeError {
    RuntimeError::out_of_range(format!("{kind} overflow"))
}

pub(super) fn add(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        [Value::Int(a), Value::Int(b)] => {
            a.checked_add(*b).map(Value::Int).ok_or_else(|| overflow("integer"))
        }
        [Value::Uint(a), Value::Uint(b)] => {
            a.checked_add(*b).map(Value::Uint).ok_or_else(|| overflow("unsigned integer"))
        }
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a + b)),
        [Value::String(a), Value::String(b)] => Ok(Value::String(format!("{a}{b}").into())),
        [Value::Bytes(a), Value::Bytes(b)] => Ok(Value::Bytes([&**a, &**b].concat().into())),
        [Value::List(a), Value::List(b)] => Ok(Value::List([&**a, &**b].concat().into())),
        _ => Err(no_such_overload()),
    }
}

fn subtract(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        [Value::Int(a), Value::Int(b)] => {
            a.checked_sub(*b).map(Value::Int).ok_or_else(|| overflow("integer"))
        }
        [Value::Uint(a), Value::Uint(b)] => {
            a.checked_sub(*b).map(Value::Uint).ok_or_else(|| overflow("unsigned integer"))
        }
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        _ => Err(no_such_overload()),
    }
}

fn multiply(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        [Value::Int(a), Value::Int(b)] => {
            a.checked_mul(*b).map(Value::Int).ok_or_else(|| overflow("integer"))
        }
        [Value::Uint(a), Value::Uint(b)] => {
            a.checked_mul(*b).map(Value::Uint).ok_or_else(|| overflow("unsigned integer"))
        }
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => Err(no_such_overload()),
    }
}

fn divide(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(RuntimeError::out_of_range("division by zero"))
        }
        [Value::Int(a), Value::Int(b)] => {
            a.checked_div(*b).map(Value::Int).ok_or_else(|| overflow("integer"))
        }
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a / b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => Err(no_such_overload()),
    }
}

fn modulo(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(RuntimeError::out_of_range("modulus by zero"))
        }
        [Value::Int(a), Value::Int(b)] => {
            a.checked_rem(*b).map(Value::Int).ok_or_else(|| overflow("integer"))
        }
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a % b)),
        _ => Err(no_such_overload()),
    }
}

fn negate(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        [Value::Int(a)] => a.checked_neg().map(Value::Int).ok_or_else(|| overflow("integer")),
        [Value::Double(a)] => Ok(Value::Double(-a)),
        _ => Err(no_such_overload()),
    }
}

fn size(arguments: &[Value], device: &Device) -> Evaluated {
    let size = match arguments[0].built(device)? {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(values) => values.len(),
        Value::Map(entries) => entries.len(),
        _ => return Err(no_such_overload()),
    };
    i64::try_from(size).map(Value::Int).map_err(|_| overflow("integer"))
}
