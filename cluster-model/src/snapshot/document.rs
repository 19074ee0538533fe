//! Splits files into Kubernetes objects. JSON is split as text, so that a large list is never held
//! as values; other formats are parsed as values.

use super::{SnapshotError, flatten, parse, reading, text, with_type};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::path::Path;

/// An object of a file.
#[derive(Debug)]
pub(super) enum Item<'t> {
    /// JSON text; version and kind may be missing if the list has them.
    Text(Typed, &'t str),
    /// A parsed value.
    Value(Value),
}

/// The fields that identify an object: type and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Typed {
    #[serde(default)]
    pub(super) api_version: Option<String>,
    #[serde(default)]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) metadata: Metadata,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Metadata {
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) name: Option<String>,
}

/// The fields of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List<'t> {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(borrow, default)]
    items: Option<&'t RawValue>,
}

/// Calls `take` with each object of a file, in order.
pub(super) fn each(
    path: &Path,
    take: &mut dyn FnMut(Item<'_>) -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    let text = text::read(path).map_err(reading(path))?;
    let documents = serde_json::Deserializer::from_str(&text).into_iter::<&RawValue>();
    let Ok(documents) = documents.collect::<serde_json::Result<Vec<_>>>() else {
        return parse(&text, path)?.into_iter().map(Item::Value).try_for_each(take);
    };
    documents.into_iter().try_for_each(|document| of_document(path, document.get(), take))
}

fn of_document(
    path: &Path,
    text: &str,
    take: &mut dyn FnMut(Item<'_>) -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    let wrap = |source| SnapshotError::Json { path: path.to_owned(), source };
    let Ok(List { api_version, kind, items }) = serde_json::from_str(text) else {
        let document = serde_json::from_str(text).map_err(wrap)?;
        return flatten(document).into_iter().map(Item::Value).try_for_each(take);
    };
    let Some(items) = items.filter(|items| items.get().starts_with('[')) else {
        return match text {
            "null" => Ok(()),
            _ => take(Item::of_text(path, text)?),
        };
    };
    let item_kind = kind.as_deref().and_then(|kind| kind.strip_suffix("List"));
    let item_kind = item_kind.filter(|kind| !kind.is_empty());
    let items: Vec<&RawValue> = serde_json::from_str(items.get()).map_err(wrap)?;
    for item in items {
        let mut item = Item::of_text(path, item.get())?;
        match (&mut item, item_kind) {
            (_, None) => {}
            (Item::Text(typed, _), Some(kind)) => {
                typed.kind.get_or_insert_with(|| kind.to_owned());
                typed.api_version = typed.api_version.take().or_else(|| api_version.clone());
            }
            (Item::Value(value), Some(kind)) => {
                let version = api_version.clone().map(Value::from);
                *value = with_type(value.take(), kind, version.as_ref());
            }
        }
        take(item)?;
    }
    Ok(())
}

impl<'t> Item<'t> {
    /// An object from a single JSON text.
    pub(super) fn of_text(path: &Path, text: &'t str) -> Result<Self, SnapshotError> {
        match serde_json::from_str(text) {
            Ok(typed) => Ok(Self::Text(typed, text)),
            Err(_) => serde_json::from_str(text)
                .map(Self::Value)
                .map_err(|source| SnapshotError::Json { path: path.to_owned(), source }),
        }
    }
}

impl Typed {
    /// The type and name of a value.
    pub(super) fn new(value: &Value) -> Self {
        let metadata = &value["metadata"];
        let texts =
            [&value["apiVersion"], &value["kind"], &metadata["namespace"], &metadata["name"]];
        let [api_version, kind, namespace, name] =
            texts.map(|value| value.as_str().map(str::to_owned));
        Self { api_version, kind, metadata: Metadata { namespace, name } }
    }

    /// The object as a value, with version and kind.
    pub(super) fn value(&self, text: &str) -> serde_json::Result<Value> {
        let mut value: Value = serde_json::from_str(text)?;
        if let Some(object) = value.as_object_mut() {
            for (field, of_list) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
                if let Some(of_list) = of_list {
                    object.insert(field.to_owned(), of_list.as_str().into());
                }
            }
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::objects;
    use super::*;
    use std::fs;

    /// Splitting as text gives the same objects as parsing values.
    #[test]
    fn text_and_values_are_split_the_same_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.json");
        for text in [
            r#"{"kind": "NodeList", "apiVersion": "v1", "items": [{}, {"kind": "Pod"}]}"#,
            r#"{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "a"}}]}"#,
            r#"{"items": [{"kind": "Node"}, {}, null, 3, {"kind": 3}]}"#,
            r#"{"kind": 3, "items": [{"kind": "Node"}]}"#,
            r#"{"kind": "NodeList", "items": [{"metadata": {"name": 3}}, {"metadata": []}]}"#,
            r#"{"kind": "Node"} {"kind": "Pod", "items": null} {"items": {}} null [] 3"#,
            r#"{"kind": "Node", "kind": "Pod"}"#,
            "kind: NodeList\nitems: [{}]\n---\nkind: Pod",
            "",
        ] {
            fs::write(&path, text).unwrap();
            // With a `.json` name, YAML would be read as bad JSON.
            let path = if text.starts_with('{') { path.clone() } else { path.with_extension("") };
            fs::write(&path, text).unwrap();
            let mut found = Vec::new();
            each(&path, &mut |item| {
                found.push(match item {
                    Item::Text(typed, text) => typed.value(text).unwrap(),
                    Item::Value(value) => value,
                });
                Ok(())
            })
            .unwrap();
            assert_eq!(found, objects(&path).unwrap(), "{text}");
        }
    }
}
