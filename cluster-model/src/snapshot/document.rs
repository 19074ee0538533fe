//! Splits files into Kubernetes objects. JSON is read one object at a time, so that a large list is never
//! in memory; other formats are parsed as values.

use super::text::{self, Left};
use super::{SnapshotError, parse, reading, with_type};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;
use std::io;
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

/// Calls `take` with each object of a file, in order.
pub(super) fn each(
    path: &Path,
    left: &Left,
    take: &mut dyn FnMut(Item<'_>) -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    if !is_json(path).map_err(reading(path))? {
        let text = text::read(path).map_err(reading(path))?;
        return parse(&text, path)?.into_iter().map(Item::Value).try_for_each(take);
    }
    let (text, left) = text::open(path, left).map_err(reading(path))?;
    let mut json = serde_json::Deserializer::from_reader(text);
    let mut documents = Documents { path, left, take, failed: None };
    loop {
        match documents.deserialize(&mut json) {
            Ok(()) => {}
            // All documents are complete, so the file ends here.
            Err(error) if error.is_eof() => return Ok(()),
            Err(error) if error.is_io() => return Err(reading(path)(error.into())),
            Err(source) => {
                let json = SnapshotError::Json { path: path.to_owned(), source };
                return Err(documents.failed.unwrap_or(json));
            }
        }
    }
}

/// A JSON document that is an object or a list of objects. Nothing of it is kept.
#[derive(Deserialize)]
struct Document {
    #[serde(rename = "items")]
    _items: Option<Vec<IgnoredAny>>,
}

/// Whether a file consists of such documents. YAML may begin like JSON.
fn is_json(path: &Path) -> io::Result<bool> {
    let left = Left::for_text();
    let (text, _) = text::open(path, &left)?;
    for document in serde_json::Deserializer::from_reader(text).into_iter::<Document>() {
        match document {
            Ok(_) => {}
            Err(error) if error.is_io() => return Err(error.into()),
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// Takes the objects of JSON documents while these are read.
struct Documents<'a> {
    path: &'a Path,
    /// The limit, if the file is compressed.
    left: Option<&'a Left>,
    take: &'a mut dyn FnMut(Item<'_>) -> Result<(), SnapshotError>,
    /// Why an object was not taken.
    failed: Option<SnapshotError>,
}

impl Documents<'_> {
    /// An item of a list of objects of this type.
    fn item<E: serde::de::Error>(&mut self, text: &str, list: &ListType) -> Result<(), E> {
        if let Some(left) = self.left {
            left.count_object(text).map_err(E::custom)?;
        }
        let item = Item::of_text(self.path, text).map(|item| list.of_item(item));
        let taken = item.and_then(|item| (self.take)(item));
        self.keep(taken)
    }

    fn keep<E: serde::de::Error>(&mut self, taken: Result<(), SnapshotError>) -> Result<(), E> {
        taken.map_err(|error| {
            self.failed = Some(error);
            E::custom("an object was not taken")
        })
    }
}

impl<'de> DeserializeSeed<'de> for &mut Documents<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<(), D::Error> {
        document.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Documents<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut document: A) -> Result<(), A::Error> {
        let mut fields = Map::new();
        // Items that lack what the list may say after them.
        let mut held: Option<Vec<Box<RawValue>>> = None;
        while let Some(key) = document.next_key::<String>()? {
            if key != "items" {
                fields.insert(key, document.next_value()?);
                continue;
            }
            let items = Items { documents: self, list: ListType::new(&fields) };
            match document.next_value_seed(items)? {
                Some(items) => held = Some(items),
                None => _ = fields.insert(key, Value::Null),
            }
        }
        let Some(held) = held else {
            let taken = (self.take)(Item::Value(Value::Object(fields)));
            return self.keep(taken);
        };
        let list = ListType::new(&fields);
        held.into_iter().try_for_each(|item| self.item(item.get(), &list))
    }
}

/// The field `items` of a document.
struct Items<'s, 'a> {
    documents: &'s mut Documents<'a>,
    list: ListType,
}

/// The objects of the field `items` that were not taken; `None` if it is null.
type Held = Option<Vec<Box<RawValue>>>;

impl<'de> DeserializeSeed<'de> for Items<'_, '_> {
    type Value = Held;

    fn deserialize<D: Deserializer<'de>>(self, items: D) -> Result<Held, D::Error> {
        items.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = Held;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Held, A::Error> {
        let Self { documents, list } = self;
        let mut held = Vec::new();
        while let Some(item) = items.next_element::<Box<RawValue>>()? {
            // The order of items is the order of objects.
            if held.is_empty() && (list.is_known || is_typed(item.get())) {
                documents.item(item.get(), &list)?;
            } else {
                held.push(item);
            }
        }
        Ok(Some(held))
    }

    fn visit_some<D: Deserializer<'de>>(self, items: D) -> Result<Held, D::Error> {
        items.deserialize_seq(self)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Held, E> {
        Ok(None)
    }
}

/// The type of a list, as far as it is known.
struct ListType {
    version: Option<String>,
    /// The kind of its items; `None` if these say it.
    kind: Option<String>,
    /// Whether the list has said its kind.
    is_known: bool,
}

impl ListType {
    fn new(fields: &Map<String, Value>) -> Self {
        let (kind, version) = (fields.get("kind"), fields.get("apiVersion"));
        let is_known = kind.is_some() && version.is_some();
        let kind = kind.and_then(Value::as_str).and_then(|kind| kind.strip_suffix("List"));
        Self {
            version: version.and_then(Value::as_str).map(str::to_owned),
            kind: kind.filter(|kind| !kind.is_empty()).map(str::to_owned),
            is_known,
        }
    }

    /// Adds the type to an item that has none.
    fn of_item<'t>(&self, mut item: Item<'t>) -> Item<'t> {
        let Some(kind) = &self.kind else { return item };
        match &mut item {
            Item::Text(typed, _) => {
                typed.kind.get_or_insert_with(|| kind.clone());
                typed.api_version = typed.api_version.take().or_else(|| self.version.clone());
            }
            Item::Value(value) => {
                let version = self.version.clone().map(Value::from);
                *value = with_type(value.take(), kind, version.as_ref());
            }
        }
        item
    }
}

/// Whether an object says its type, so that it does not need that of its list.
fn is_typed(text: &str) -> bool {
    serde_json::from_str::<Typed>(text)
        .is_ok_and(|typed| typed.kind.is_some() && typed.api_version.is_some())
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
            each(&path, &Left::for_objects(), &mut |item| {
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
