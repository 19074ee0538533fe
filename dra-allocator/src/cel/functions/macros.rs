//! Functions that the loops of macros call to extend a map.

use crate::cel::error::RuntimeError;
use crate::cel::function::{Evaluated, Function, global, no_such_overload};
use crate::cel::value::{Value, find};
use crate::device::Device;

/// The functions that loops call to extend a map.
pub(super) const FUNCTIONS: &[Function] =
    &[global("@put", (2, 2), put), global("@put", (3, 3), put)];

/// Returns the map with one more key and value, or with the entries of another map.
fn put(arguments: &[Value], _: &Device) -> Evaluated {
    let (map, more): (_, &[(Value, Value)]) = match arguments {
        [Value::Map(map), key, value] => (map, &[(key.clone(), value.clone())]),
        [Value::Map(map), Value::Map(more)] => (map, more),
        _ => return Err(no_such_overload()),
    };
    for (key, _) in more {
        if find(map, key)?.is_some() {
            return Err(RuntimeError::invalid("insert failed: key already exists"));
        }
    }
    Ok(Value::Map([map, more].concat().into()))
}
