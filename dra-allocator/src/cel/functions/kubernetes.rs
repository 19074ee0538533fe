//! Optionals, quantities and semantic versions.
//!
//! Follows `quantity.go` and `semverlib.go` in `k8s.io/apiserver/pkg/cel/library`.

use std::cmp::Ordering;

use crate::cel::error::RuntimeError;
use crate::cel::function::{Evaluated, Function, global, method, no_such_overload};
use crate::cel::value::{Value, version};
use crate::device::Device;
use crate::quantity::{Format, Quantity, QuantityError};

pub(super) const FUNCTIONS: &[Function] = &[
    global("optional.none", (0, 0), |_, _| Ok(Value::Optional(None))),
    global("optional.of", (1, 1), |arguments, _| Ok(Value::some(arguments[0].clone()))),
    global("optional.ofNonZeroValue", (1, 1), of_non_zero),
    method("hasValue", (1, 1), has_value),
    method("value", (1, 1), value),
    global("quantity", (1, 1), quantity),
    global("isQuantity", (1, 1), |a, _| is_text(a, |text| text.parse::<Quantity>().is_ok())),
    method("sign", (1, 1), |a, _| of_quantity(a, |q| Ok(Value::Int(sign(q))))),
    method("isInteger", (1, 1), |a, _| of_quantity(a, |q| Ok(q.as_i64().is_some().into()))),
    method("asInteger", (1, 1), |a, _| of_quantity(a, as_integer)),
    method("asApproximateFloat", (1, 1), |a, _| of_quantity(a, |q| Ok(Value::Double(q.as_f64())))),
    method("add", (2, 2), |a, _| combine(a, i128::checked_add)),
    method("sub", (2, 2), |a, _| combine(a, i128::checked_sub)),
    global("semver", (1, 2), semver),
    global("isSemver", (1, 2), is_semver),
    method("major", (1, 1), |a, _| number(a, |version| version.major)),
    method("minor", (1, 1), |a, _| number(a, |version| version.minor)),
    method("patch", (1, 1), |a, _| number(a, |version| version.patch)),
    method("compareTo", (2, 2), compare_to),
    method("isGreaterThan", (2, 2), |a, _| Ok((order(a)? == Ordering::Greater).into())),
    method("isLessThan", (2, 2), |a, _| Ok((order(a)? == Ordering::Less).into())),
];

fn of_non_zero(arguments: &[Value], device: &Device) -> Evaluated {
    let value = &arguments[0];
    let zero = match value.built(device)? {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(value) => value == 0,
        Value::Uint(value) => value == 0,
        Value::Double(value) => value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(values) => values.is_empty(),
        Value::Map(entries) => entries.is_empty(),
        Value::Optional(inner) => inner.is_none(),
        _ => false,
    };
    Ok(if zero { Value::Optional(None) } else { Value::some(value.clone()) })
}

fn has_value(arguments: &[Value], _: &Device) -> Evaluated {
    match &arguments[0] {
        Value::Optional(inner) => Ok(inner.is_some().into()),
        _ => Err(no_such_overload()),
    }
}

fn value(arguments: &[Value], _: &Device) -> Evaluated {
    match &arguments[0] {
        Value::Optional(Some(inner)) => Ok((**inner).clone()),
        Value::Optional(None) => Err(RuntimeError::invalid("optional.none() dereference")),
        _ => Err(no_such_overload()),
    }
}

fn is_text(arguments: &[Value], accepts: fn(&str) -> bool) -> Evaluated {
    match &arguments[0] {
        Value::String(text) => Ok(accepts(text).into()),
        _ => Err(no_such_overload()),
    }
}

fn quantity(arguments: &[Value], _: &Device) -> Evaluated {
    match &arguments[0] {
        Value::String(text) => text
            .parse()
            .map(Value::Quantity)
            .map_err(|error: QuantityError| RuntimeError::invalid(error.to_string())),
        _ => Err(no_such_overload()),
    }
}

fn of_quantity(arguments: &[Value], map: fn(&Quantity) -> Evaluated) -> Evaluated {
    match &arguments[0] {
        Value::Quantity(quantity) => map(quantity),
        _ => Err(no_such_overload()),
    }
}

fn sign(quantity: &Quantity) -> i64 {
    quantity.cmp(&Quantity::new(0, Format::DecimalSi)) as i64
}

fn as_integer(quantity: &Quantity) -> Evaluated {
    quantity
        .as_i64()
        .map(Value::Int)
        .ok_or_else(|| RuntimeError::invalid("cannot convert value to integer"))
}

/// The sum or difference of a quantity and either a quantity or an integer.
fn combine(arguments: &[Value], combine: fn(i128, i128) -> Option<i128>) -> Evaluated {
    let (a, b) = match arguments {
        [Value::Quantity(a), Value::Quantity(b)] => (a, *b),
        [Value::Quantity(a), Value::Int(b)] => (a, Quantity::new(*b, a.format())),
        _ => return Err(no_such_overload()),
    };
    let nanos = combine(a.nanos(), b.nanos())
        .ok_or_else(|| RuntimeError::out_of_range("quantity overflow"))?;
    Ok(Value::Quantity(a.with_nanos(nanos)))
}

fn semver(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => version(text),
        [Value::String(text), Value::Bool(true)] => version(&normalized(text)?),
        _ => Err(no_such_overload()),
    }
}

fn is_semver(arguments: &[Value], device: &Device) -> Evaluated {
    match arguments {
        [Value::String(_)] | [Value::String(_), Value::Bool(_)] => {
            Ok(semver(arguments, device).is_ok().into())
        }
        _ => Err(no_such_overload()),
    }
}

/// Normalizes a version: no `v`, no leading zeros, all three numbers (`normalizeAndParse`).
fn normalized(text: &str) -> Result<String, RuntimeError> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    let short = parts.len() < 3;
    if short && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        let text = "short version cannot contain PreRelease/Build meta data";
        return Err(RuntimeError::invalid(text));
    }
    parts.resize(3, "0".to_owned());
    Ok(parts.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    if trimmed.starts_with(|first: char| first.is_ascii_digit()) {
        trimmed.to_owned()
    } else {
        format!("0{trimmed}")
    }
}

fn number(arguments: &[Value], part: fn(&semver::Version) -> u64) -> Evaluated {
    match &arguments[0] {
        Value::Semver(version) => {
            i64::try_from(part(version)).map(Value::Int).map_err(|_| no_such_overload())
        }
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
