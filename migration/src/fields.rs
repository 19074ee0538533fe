//! Changes of fields of objects.

use serde_json::{Map, Value};

/// Removes keys from a map, and the map if it becomes empty. Returns true if it had any of them.
pub(crate) fn take(object: &mut Map<String, Value>, field: &str, keys: &[&str]) -> bool {
    let Some(map) = object.get_mut(field).and_then(Value::as_object_mut) else { return false };
    let before = map.len();
    map.retain(|key, _| !keys.contains(&key.as_str()));
    let (is_empty, is_changed) = (map.is_empty(), map.len() < before);
    if is_empty {
        object.remove(field);
    }
    is_changed
}

/// Returns the object in a field; creates an empty one if there is none.
pub(crate) fn entry<'v>(value: &'v mut Value, name: &str) -> &'v mut Value {
    if !value[name].is_object() {
        value[name] = Value::Object(Map::new());
    }
    &mut value[name]
}

/// Adds an item to the list in a field.
pub(crate) fn push(value: &mut Value, name: &str, item: Value) {
    match value[name].as_array_mut() {
        Some(list) => list.push(item),
        None => value[name] = Value::Array(vec![item]),
    }
}
