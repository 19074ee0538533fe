//! What the user must know of an object.

use serde_json::Value;

/// A note on a part of an object that has no counterpart, or that behaves differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// The object, such as `NicClusterPolicy nic-cluster-policy`.
    pub object: String,
    /// The difference, and what to do.
    pub text: String,
}

/// Describes an object for the user: its kind and name, with the namespace if it has one.
fn described(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default();
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().or_else(|| metadata["generateName"].as_str());
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{}", name.unwrap_or_default()),
        None => format!("{kind} {}", name.unwrap_or_default()),
    }
}

pub(crate) fn note(notes: &mut Vec<Note>, object: &Value, text: impl Into<String>) {
    notes.push(Note { object: described(object), text: text.into() });
}
