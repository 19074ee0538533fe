//! What differs between two versions of an object.

use crate::answer::FieldChange;
use serde_json::Value;
use std::collections::BTreeSet;

/// Fields that change without a meaningful difference.
const NOISE: [&str; 8] = [
    "resourceVersion",
    "generation",
    "observedGeneration",
    "managedFields",
    "lastHeartbeatTime",
    "lastTransitionTime",
    "lastProbeTime",
    "renewTime",
];

/// All fields that differ, sorted by path, such as `spec.devices[gpu-0].attributes.uuid`. List items with a name are compared by name.
pub(super) fn changes(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut found = Vec::new();
    walk("", before, after, &mut found);
    found
}

fn walk(path: &str, before: &Value, after: &Value, found: &mut Vec<FieldChange>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<_> = one.keys().chain(other.keys()).collect();
            for key in keys.into_iter().filter(|key| !NOISE.contains(&key.as_str())) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let [one, other] =
                    [one, other].map(|fields| fields.get(key).unwrap_or(&Value::Null));
                walk(&path, one, other, found);
            }
        }
        (Value::Array(one), Value::Array(other)) if is_named(one) && is_named(other) => {
            let names: BTreeSet<_> = one.iter().chain(other).filter_map(name).collect();
            for of in names {
                walk(&format!("{path}[{of}]"), named(one, of), named(other, of), found);
            }
        }
        _ => found.push(FieldChange {
            path: path.to_owned(),
            before: before.clone(),
            after: after.clone(),
        }),
    }
}

/// The name that identifies a list item.
fn name(item: &Value) -> Option<&str> {
    ["name", "type", "device"].iter().find_map(|key| item[key].as_str())
}

/// The item with this name; null if there is none.
fn named<'i>(items: &'i [Value], of: &str) -> &'i Value {
    items.iter().find(|item| name(item) == Some(of)).unwrap_or(&Value::Null)
}

fn is_named(items: &[Value]) -> bool {
    let names: BTreeSet<_> = items.iter().filter_map(name).collect();
    names.len() == items.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_compared_and_items_by_name() {
        let before = json!({
            "metadata": { "resourceVersion": "1", "labels": { "a": "b" } },
            "devices": [{ "name": "x", "n": 1 }, { "name": "y" }],
            "list": [1, 2],
        });
        let after = json!({
            "metadata": { "resourceVersion": "2" },
            "devices": [{ "name": "y" }, { "name": "x", "n": 2 }, { "name": "z" }],
            "list": [1],
        });
        let paths: Vec<_> = changes(&before, &after).into_iter().map(|it| it.path).collect();
        assert_eq!(paths, ["devices[x].n", "devices[z]", "list", "metadata.labels"]);
        assert_eq!(changes(&before, &before), []);
    }
}
