//! Strings: CEL's own functions and `ext.Strings` of cel-go. Patterns are in `search.rs`.
//!
//! Positions count characters.

use std::sync::Arc;

use crate::cel::error::{ErrorClass, RuntimeError};
use crate::cel::function::{Evaluated, Function, method, no_such_overload};
use crate::cel::value::Value;
use crate::device::Device;

pub(super) const FUNCTIONS: &[Function] = &[
    method("contains", (2, 2), |a, _| test(a, |text, part| text.contains(part))),
    method("startsWith", (2, 2), |a, _| test(a, |text, part| text.starts_with(part))),
    method("endsWith", (2, 2), |a, _| test(a, |text, part| text.ends_with(part))),
    method("lowerAscii", (1, 1), |a, _| map(a, str::to_ascii_lowercase)),
    method("upperAscii", (1, 1), |a, _| map(a, str::to_ascii_uppercase)),
    method("trim", (1, 1), |a, _| map(a, |text| text.trim().to_owned())),
    method("charAt", (2, 2), char_at),
    method("substring", (2, 3), substring),
    method("split", (2, 3), split),
    method("replace", (3, 4), replace),
    method("join", (1, 2), join),
    method("format", (2, 2), format),
];

fn test(arguments: &[Value], holds: fn(&str, &str) -> bool) -> Evaluated {
    match arguments {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(holds(text, part))),
        _ => Err(no_such_overload()),
    }
}

fn map(arguments: &[Value], map: fn(&str) -> String) -> Evaluated {
    match arguments {
        [Value::String(text)] => Ok(Value::String(map(text).into())),
        _ => Err(no_such_overload()),
    }
}

/// Converts a position; it must be in `0..=length`.
fn position(value: i64, length: usize) -> Result<usize, RuntimeError> {
    usize::try_from(value)
        .ok()
        .filter(|position| *position <= length)
        .ok_or_else(|| RuntimeError::out_of_range(format!("index out of range: {value}")))
}

fn char_at(arguments: &[Value], _: &Device) -> Evaluated {
    let [Value::String(text), Value::Int(index)] = arguments else {
        return Err(no_such_overload());
    };
    let index = position(*index, text.chars().count())?;
    let found: String = text.chars().skip(index).take(1).collect();
    Ok(Value::String(found.into()))
}

fn substring(arguments: &[Value], _: &Device) -> Evaluated {
    let (text, start, end) = match arguments {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(no_such_overload()),
    };
    let length = text.chars().count();
    let start = position(start, length)?;
    let end = end.map_or(Ok(length), |end| position(end, length))?;
    if start > end {
        let text = format!("invalid substring range. start: {start}, end: {end}");
        return Err(RuntimeError::out_of_range(text));
    }
    let part: String = text.chars().skip(start).take(end - start).collect();
    Ok(Value::String(part.into()))
}

/// Splits as `strings.SplitN`: a negative limit means no limit, an empty separator splits
/// characters.
fn split(arguments: &[Value], _: &Device) -> Evaluated {
    let (text, separator, limit) = match arguments {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => {
            (text, separator, *limit)
        }
        _ => return Err(no_such_overload()),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<Value> = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        split_characters(text, limit)
    } else {
        text.splitn(limit, &**separator).map(Value::string).collect()
    };
    Ok(Value::list(parts))
}

fn split_characters(text: &str, limit: usize) -> Vec<Value> {
    let mut starts: Vec<_> = text.char_indices().map(|(start, _)| start).take(limit).collect();
    starts.push(text.len());
    starts.windows(2).map(|ends| Value::string(&text[ends[0]..ends[1]])).collect()
}

fn replace(arguments: &[Value], _: &Device) -> Evaluated {
    let replaced = match arguments {
        [Value::String(text), Value::String(from), Value::String(to)] => text.replace(&**from, to),
        [Value::String(text), Value::String(from), Value::String(to), Value::Int(limit)] => {
            match usize::try_from(*limit) {
                Ok(limit) => text.replacen(&**from, to, limit),
                Err(_) => text.replace(&**from, to),
            }
        }
        _ => return Err(no_such_overload()),
    };
    Ok(Value::String(replaced.into()))
}

fn join(arguments: &[Value], _: &Device) -> Evaluated {
    let (parts, separator): (_, Arc<str>) = match arguments {
        [Value::List(parts)] => (parts, "".into()),
        [Value::List(parts), Value::String(separator)] => (parts, separator.clone()),
        _ => return Err(no_such_overload()),
    };
    let parts = parts.iter().map(|part| match part {
        Value::String(text) => Ok(&**text),
        _ => Err(no_such_overload()),
    });
    Ok(Value::String(parts.collect::<Result<Vec<_>, _>>()?.join(&separator).into()))
}

fn unsupported(what: &str) -> RuntimeError {
    RuntimeError::new(ErrorClass::Unsupported, format!("{what} is not supported here"))
}

/// `"…".format([…])` with `%s`, `%d`, `%x`, `%X`, `%o`, `%b` and `%%`.
fn format(arguments: &[Value], _: &Device) -> Evaluated {
    let [Value::String(text), Value::List(values)] = arguments else {
        return Err(no_such_overload());
    };
    let mut values = values.iter();
    let mut formatted = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            formatted.push(character);
            continue;
        }
        let verb = characters.next();
        if verb == Some('%') {
            formatted.push('%');
            continue;
        }
        let value = values.next();
        let value = value.ok_or_else(|| RuntimeError::out_of_range("index out of range"))?;
        formatted.push_str(&format_value(verb, value)?);
    }
    Ok(Value::String(formatted.into()))
}

fn format_value(verb: Option<char>, value: &Value) -> Result<String, RuntimeError> {
    match (verb, value) {
        (Some('s'), value) => display(value),
        (Some('d'), Value::Int(_) | Value::Uint(_)) => display(value),
        (Some('x'), Value::Int(number)) => Ok(signed(*number, |n| format!("{n:x}"))),
        (Some('X'), Value::Int(number)) => Ok(signed(*number, |n| format!("{n:X}"))),
        (Some('o'), Value::Int(number)) => Ok(signed(*number, |n| format!("{n:o}"))),
        (Some('b'), Value::Int(number)) => Ok(signed(*number, |n| format!("{n:b}"))),
        (Some(verb), _) => Err(unsupported(&format!("`%{verb}` of such a value"))),
        (None, _) => Err(RuntimeError::invalid("unexpected end of string")),
    }
}

/// Formats a negative number with a sign in every base, as Go does.
fn signed(number: i64, format: fn(u64) -> String) -> String {
    let digits = format(number.unsigned_abs());
    if number < 0 { format!("-{digits}") } else { digits }
}

fn display(value: &Value) -> Result<String, RuntimeError> {
    Ok(match value {
        Value::String(text) => text.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Null => "null".to_owned(),
        Value::Type(name) => name.to_string(),
        Value::List(values) => {
            let parts = values.iter().map(display).collect::<Result<Vec<_>, _>>()?;
            format!("[{}]", parts.join(", "))
        }
        other => return Err(unsupported(&format!("`%s` of a {}", other.type_name()))),
    })
}
