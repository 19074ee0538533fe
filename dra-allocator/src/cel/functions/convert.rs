//! Conversions between types.

use crate::cel::error::{ErrorClass, RuntimeError};
use crate::cel::function::{Evaluated, Function, global, no_such_overload};
use crate::cel::value::Value;
use crate::device::Device;

pub(super) const FUNCTIONS: &[Function] = &[
    global("int", (1, 1), int),
    global("uint", (1, 1), uint),
    global("double", (1, 1), double),
    global("string", (1, 1), string),
    global("bool", (1, 1), bool),
    global("bytes", (1, 1), bytes),
    global("dyn", (1, 1), |arguments, _| Ok(arguments[0].clone())),
    global("type", (1, 1), |arguments, _| Ok(Value::Type(arguments[0].type_name().into()))),
];

fn range_error(to: &str) -> RuntimeError {
    RuntimeError::out_of_range(format!("{to} overflow"))
}

fn parse_error(from: &str, to: &str) -> RuntimeError {
    RuntimeError::invalid(format!("type conversion error from '{from}' to '{to}'"))
}

#[allow(clippy::cast_possible_truncation, reason = "the bounds are checked before")]
fn int(arguments: &[Value], _: &Device) -> Evaluated {
    Ok(Value::Int(match &arguments[0] {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| range_error("integer"))?,
        Value::Double(value) if value.abs() < 9.2e18 => *value as i64,
        Value::Double(_) => return Err(range_error("integer")),
        Value::String(text) => text.parse().map_err(|_| parse_error("string", "int"))?,
        _ => return Err(no_such_overload()),
    }))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the bounds are checked before"
)]
fn uint(arguments: &[Value], _: &Device) -> Evaluated {
    Ok(Value::Uint(match &arguments[0] {
        Value::Uint(value) => *value,
        Value::Int(value) => u64::try_from(*value).map_err(|_| range_error("unsigned integer"))?,
        Value::Double(value) if (0.0..1.8e19).contains(value) => *value as u64,
        Value::Double(_) => return Err(range_error("unsigned integer")),
        Value::String(text) => text.parse().map_err(|_| parse_error("string", "uint"))?,
        _ => return Err(no_such_overload()),
    }))
}

#[allow(clippy::cast_precision_loss, reason = "CEL converts so")]
fn double(arguments: &[Value], _: &Device) -> Evaluated {
    Ok(Value::Double(match &arguments[0] {
        Value::Double(value) => *value,
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::String(text) => text.parse().map_err(|_| parse_error("string", "double"))?,
        _ => return Err(no_such_overload()),
    }))
}

fn string(arguments: &[Value], _: &Device) -> Evaluated {
    Ok(Value::String(match &arguments[0] {
        Value::String(text) => text.clone(),
        Value::Int(value) => value.to_string().into(),
        Value::Uint(value) => value.to_string().into(),
        Value::Bool(value) => value.to_string().into(),
        Value::Ip(address) => address.to_string().into(),
        Value::Cidr(network) => network.to_string().into(),
        // Go uses exponents from 10⁶ on, and below 10⁻⁴.
        Value::Double(value) if *value == 0.0 || (1e-4..1e6).contains(&value.abs()) => {
            value.to_string().into()
        }
        Value::Double(_) => {
            let text = "the text of such a double is not supported here";
            return Err(RuntimeError::new(ErrorClass::Unsupported, text));
        }
        Value::Bytes(bytes) => match str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => return Err(RuntimeError::invalid("invalid UTF-8 in bytes")),
        },
        _ => return Err(no_such_overload()),
    }))
}

fn bool(arguments: &[Value], _: &Device) -> Evaluated {
    match &arguments[0] {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(parse_error("string", "bool")),
        },
        _ => Err(no_such_overload()),
    }
}

fn bytes(arguments: &[Value], _: &Device) -> Evaluated {
    match &arguments[0] {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        _ => Err(no_such_overload()),
    }
}
