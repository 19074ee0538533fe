//! Lists and sets: Kubernetes' lists, `ext.Lists` and `ext.Sets` of cel-go.

use std::cmp::Ordering;

use crate::cel::error::RuntimeError;
use crate::cel::function::{Evaluated, Function, global, method, no_such_overload};
use crate::cel::order::{compare, order};
use crate::cel::value::Value;
use crate::device::Device;

pub(super) const FUNCTIONS: &[Function] = &[
    global("sets.contains", (2, 2), |a, _| {
        sets(a).and_then(|(a, b)| Ok(contains_all(a, b)?.into()))
    }),
    global("sets.equivalent", (2, 2), |a, _| {
        sets(a).and_then(|(a, b)| Ok((contains_all(a, b)? && contains_all(b, a)?).into()))
    }),
    global("sets.intersects", (2, 2), intersects),
    global("lists.range", (1, 1), range),
    method("includes", (2, 2), includes),
    method("isSorted", (1, 1), is_sorted),
    method("sum", (1, 1), sum),
    method("min", (1, 1), |a, _| extreme(a, Ordering::Less)),
    method("max", (1, 1), |a, _| extreme(a, Ordering::Greater)),
    method("indexOf", (2, 3), index_of),
    method("lastIndexOf", (2, 3), last_index_of),
    method("first", (1, 1), |a, _| Ok(optional(elements(a)?.first()))),
    method("last", (1, 1), |a, _| Ok(optional(elements(a)?.last()))),
    method("reverse", (1, 1), reverse),
    method("slice", (3, 3), slice),
    method("distinct", (1, 1), distinct),
    method("flatten", (1, 2), flatten),
    method("sort", (1, 1), sort),
];

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

fn elements(arguments: &[Value]) -> Result<&[Value], RuntimeError> {
    match arguments.first() {
        Some(Value::List(values)) => Ok(values),
        _ => Err(no_such_overload()),
    }
}

fn sets(arguments: &[Value]) -> Result<(&[Value], &[Value]), RuntimeError> {
    match arguments {
        [Value::List(a), Value::List(b)] => Ok((a, b)),
        _ => Err(no_such_overload()),
    }
}

fn contains(values: &[Value], item: &Value) -> Result<bool, RuntimeError> {
    for value in values {
        if value.equals(item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn contains_all(values: &[Value], items: &[Value]) -> Result<bool, RuntimeError> {
    for item in items {
        if !contains(values, item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects(arguments: &[Value], _: &Device) -> Evaluated {
    let (a, b) = sets(arguments)?;
    for item in b {
        if contains(a, item)? {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

fn range(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        // Rejects a list longer than any that the cost limit allows.
        [Value::Int(count)] if *count <= 1_000_000 => {
            Ok(Value::list((0..*count).map(Value::Int).collect()))
        }
        [Value::Int(_)] => Err(RuntimeError::too_expensive()),
        _ => Err(no_such_overload()),
    }
}

/// Returns true if the list includes the value. A scalar includes itself; values without equality
/// are never included.
fn includes(arguments: &[Value], _: &Device) -> Evaluated {
    let [target, item] = arguments else { return Err(no_such_overload()) };
    Ok(match target {
        Value::List(values) => values.iter().any(|value| is_equal(value, item)),
        value => is_equal(value, item),
    }
    .into())
}

fn is_equal(value: &Value, item: &Value) -> bool {
    value.equals(item).unwrap_or(false)
}

fn is_sorted(arguments: &[Value], _: &Device) -> Evaluated {
    for pair in elements(arguments)?.windows(2) {
        if compare(&pair[0], &pair[1])? == Some(Ordering::Greater) {
            return Ok(false.into());
        }
    }
    Ok(true.into())
}

fn sum(arguments: &[Value], device: &Device) -> Evaluated {
    let mut values = elements(arguments)?.iter();
    // The type of the sum of an empty list is unknown here.
    let first = values.next().cloned().ok_or_else(no_such_overload)?;
    values.try_fold(first, |sum, value| super::arithmetic::add(&[sum, value.clone()], device))
}

fn extreme(arguments: &[Value], wanted: Ordering) -> Evaluated {
    let mut values = elements(arguments)?.iter();
    let name = if wanted == Ordering::Less { "min" } else { "max" };
    let mut best = values
        .next()
        .ok_or_else(|| RuntimeError::invalid(format!("{name} called on empty list")))?;
    for value in values {
        if compare(value, best)? == Some(wanted) {
            best = value;
        }
    }
    Ok(best.clone())
}

fn index(position: Option<usize>) -> Value {
    Value::Int(position.and_then(|position| i64::try_from(position).ok()).unwrap_or(-1))
}

fn index_of(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        [Value::List(values), item] => {
            Ok(index(values.iter().position(|value| is_equal(value, item))))
        }
        [Value::String(text), Value::String(part)] => Ok(index(first_at(text, part, 0))),
        [Value::String(text), Value::String(part), Value::Int(start)] => {
            let start = usize::try_from(*start).ok().filter(|s| *s <= text.chars().count());
            let start = start.ok_or_else(|| RuntimeError::out_of_range("index out of range"))?;
            Ok(index(first_at(text, part, start)))
        }
        _ => Err(no_such_overload()),
    }
}

/// The position in characters of the first match at or after `start`.
fn first_at(text: &str, part: &str, start: usize) -> Option<usize> {
    let offset = text.char_indices().nth(start).map_or(text.len(), |(offset, _)| offset);
    let found = text[offset..].find(part)?;
    Some(start + text[offset..offset + found].chars().count())
}

fn last_index_of(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        [Value::List(values), item] => {
            Ok(index(values.iter().rposition(|value| is_equal(value, item))))
        }
        [Value::String(text), Value::String(part)] => {
            Ok(index(text.rfind(&**part).map(|offset| text[..offset].chars().count())))
        }
        _ => Err(no_such_overload()),
    }
}

fn optional(value: Option<&Value>) -> Value {
    value.map_or(Value::Optional(None), |value| Value::some(value.clone()))
}

fn reverse(arguments: &[Value], _: &Device) -> Evaluated {
    match arguments {
        [Value::List(values)] => Ok(Value::list(values.iter().rev().cloned().collect())),
        [Value::String(text)] => Ok(Value::String(text.chars().rev().collect::<String>().into())),
        _ => Err(no_such_overload()),
    }
}

fn slice(arguments: &[Value], _: &Device) -> Evaluated {
    let [Value::List(values), Value::Int(start), Value::Int(end)] = arguments else {
        return Err(no_such_overload());
    };
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        let text = format!("cannot slice({start}, {end}), negative indexes not supported");
        return Err(RuntimeError::out_of_range(text));
    };
    let part = values.get(from..to).ok_or_else(|| {
        RuntimeError::out_of_range(format!("cannot slice({start}, {end}), list is too short"))
    })?;
    Ok(Value::List(part.into()))
}

fn distinct(arguments: &[Value], _: &Device) -> Evaluated {
    let mut kept: Vec<Value> = Vec::new();
    for value in elements(arguments)? {
        if !contains(&kept, value)? {
            kept.push(value.clone());
        }
    }
    Ok(Value::list(kept))
}

fn flatten(arguments: &[Value], _: &Device) -> Evaluated {
    let depth = match arguments.get(1) {
        None => 1,
        Some(Value::Int(depth)) if *depth >= 0 => *depth,
        Some(Value::Int(_)) => return Err(RuntimeError::invalid("level must be non-negative")),
        Some(_) => return Err(no_such_overload()),
    };
    let mut flat = Vec::new();
    flatten_into(elements(arguments)?, depth, &mut flat);
    Ok(Value::list(flat))
}

fn flatten_into(values: &[Value], depth: i64, flat: &mut Vec<Value>) {
    for value in values {
        match value {
            Value::List(inner) if depth > 0 => flatten_into(inner, depth - 1, flat),
            value => flat.push(value.clone()),
        }
    }
}

fn sort(arguments: &[Value], _: &Device) -> Evaluated {
    let mut values = elements(arguments)?.to_vec();
    // All elements must have the same ordered type.
    if let Some(first) = values.first() {
        for value in &values {
            if value.type_name() != first.type_name() || compare(first, value)?.is_none() {
                return Err(RuntimeError::invalid("list elements must have the same type"));
            }
        }
    }
    values.sort_by(|a, b| order(a, b).flatten().unwrap_or(Ordering::Equal));
    Ok(Value::list(values))
}
