//! Reads a cluster from files: Kubernetes objects as `kubectl get -o yaml` writes them, in lists,
//! in several documents per file, or as JSON, compressed by gzip or not; or a file of
//! `kubectl dranet snapshot`.

mod archive;
mod document;
mod gather;
mod intake;
mod served;
mod text;
mod trim;
mod write;

pub use archive::{FORMAT, Head, head};
pub use gather::{Gathered, Gathering, Text, gather};
pub use intake::{Found, Intake};
pub use served::Served;
pub use text::{UNPACKED_MIB, unpack_at_most};
pub use write::{private, write};

use crate::view::{ClusterView, ViewError};
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A snapshot could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A file or folder could not be read.
    #[error("failed to read `{}`", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file is not JSON.
    #[error("`{}` is not valid JSON", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The error with its position.
        source: serde_json::Error,
    },
    /// A file is not YAML.
    #[error("`{}` is not valid YAML", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// The error with its position.
        source: Box<serde_saphyr::Error>,
    },
    /// An object does not have the form of its kind.
    #[error("{kind} `{name}` in `{}` is malformed", path.display())]
    Object {
        /// The file.
        path: PathBuf,
        /// The kind of the object.
        kind: String,
        /// The name of the object; may be empty.
        name: String,
        /// The error.
        source: serde_json::Error,
    },
    /// An object was read and could not be understood.
    #[error("failed to load `{}`", path.display())]
    View {
        /// The file.
        path: PathBuf,
        /// The error.
        source: Box<ViewError>,
    },
    /// The snapshot has another format version.
    #[error(
        "`{}` has the snapshot format `{found}`; this version of the program reads `{FORMAT}`",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
    },
    /// A snapshot could not be written.
    #[error("failed to write `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The files contain no objects of a cluster.
    #[error(
        "found no Node, ResourceSlice, DeviceClass, ResourceClaim or NodeTopology in `{}`",
        path.display()
    )]
    Empty {
        /// The path that was read.
        path: PathBuf,
    },
}

/// Reads a file, or every `.yaml`, `.yml`, `.json` and `.gz` file of a folder. The view keeps every
/// `NodeTopology`.
pub fn load(path: &Path) -> Result<(ClusterView, Found), SnapshotError> {
    let intake = load_keeping(path, &[])?;
    Ok((intake.view, intake.found))
}

/// As [`load`], but also keeps the original objects of these kinds.
pub fn load_keeping(path: &Path, kinds: &'static [&'static str]) -> Result<Intake, SnapshotError> {
    let mut intake = Intake::keeping(kinds);
    let left = text::Left::for_objects();
    for file in files(path)? {
        if archive::is_archive(&file)? {
            archive::each(&file, &left, &mut |item| intake.take_archived(&file, item))?;
        } else {
            document::each(&file, &left, &mut |item| intake.take(&file, item))?;
        }
    }
    if intake.found.taken.is_empty() && intake.head.is_none() {
        return Err(SnapshotError::Empty { path: path.to_owned() });
    }
    Ok(intake)
}

/// The objects of a file in order, with lists flattened.
pub fn objects(path: &Path) -> Result<Vec<Value>, SnapshotError> {
    let text = text::read(path).map_err(reading(path))?;
    parse(&text, path)
}

/// The objects of a text from `path` in order, with lists flattened.
pub fn parse(text: &str, path: &Path) -> Result<Vec<Value>, SnapshotError> {
    let documents = match json(text) {
        Ok(documents) => documents,
        Err(source) if path.extension().is_some_and(|extension| extension == "json") => {
            return Err(SnapshotError::Json { path: path.to_owned(), source });
        }
        // YAML may begin like JSON.
        Err(_) => yaml(text).map_err(|source| SnapshotError::Yaml {
            path: path.to_owned(),
            source: Box::new(source),
        })?,
    };
    Ok(documents.into_iter().flat_map(flatten).collect())
}

/// Parses consecutive JSON documents.
fn json(text: &str) -> serde_json::Result<Vec<Value>> {
    serde_json::Deserializer::from_str(text).into_iter().collect()
}

/// Parses the documents of a YAML file of any size. Aliases are limited, since with them a short
/// text can expand without bound.
fn yaml(text: &str) -> Result<Vec<Value>, serde_saphyr::Error> {
    // Every node and event takes at least one character, except the ends of collections and
    // documents.
    let most = text.len().saturating_mul(4).saturating_add(1024);
    // An error with a part of the text repeats its message.
    let options = serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: most,
            max_nodes: most,
            max_documents: most,
            max_total_scalar_bytes: most,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options)
}

/// An error of reading a file.
fn reading(path: &Path) -> impl Fn(io::Error) -> SnapshotError {
    move |source| SnapshotError::Read { path: path.to_owned(), source }
}

fn files(path: &Path) -> Result<Vec<PathBuf>, SnapshotError> {
    if !fs::metadata(path).map_err(reading(path))?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(reading(path))? {
        let file = entry.map_err(reading(path))?.path();
        let extension = file.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json" | "gz")) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Flattens a `List` (or `NodeList`, …) and drops empty documents.
fn flatten(document: Value) -> Vec<Value> {
    match document {
        Value::Null => Vec::new(),
        Value::Object(mut object) if object.get("items").is_some_and(Value::is_array) => {
            let kind = object.get("kind").and_then(Value::as_str);
            let item_kind = kind.and_then(|kind| kind.strip_suffix("List"));
            let item_kind = item_kind.unwrap_or_default().to_owned();
            let version = object.get("apiVersion").cloned();
            let Some(Value::Array(items)) = object.remove("items") else { return Vec::new() };
            items.into_iter().map(|item| with_type(item, &item_kind, version.as_ref())).collect()
        }
        other => vec![other],
    }
}

/// Items of a typed list (`NodeList`) have no kind of their own.
fn with_type(mut item: Value, kind: &str, version: Option<&Value>) -> Value {
    if let (Some(object), false) = (item.as_object_mut(), kind.is_empty()) {
        object.entry("kind").or_insert_with(|| kind.into());
        if let Some(version) = version {
            object.entry("apiVersion").or_insert_with(|| version.clone());
        }
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::iter;

    fn kinds(text: &str) -> Vec<String> {
        let objects = parse(text, Path::new("cluster.yaml")).unwrap();
        let kind = |object: &Value| object["kind"].as_str().unwrap_or("none").to_owned();
        objects.iter().map(kind).collect()
    }

    #[test]
    fn lists_are_flattened() {
        for (text, expected) in [
            ("kind: NodeList\nitems: [{}, {kind: Pod}]", &["Node", "Pod"][..]),
            ("kind: List\nitems: [{kind: Node}]", &["Node"]),
            ("items: [{kind: Node}, {}]", &["Node", "none"]),
            ("kind: 3\nitems: [{kind: Node}]", &["Node"]),
            ("kind: Node\n---\n---\nkind: Pod", &["Node", "Pod"]),
            ("{\"kind\": \"Node\"} {\"kind\": \"Pod\"}", &["Node", "Pod"]),
            ("{kind: Node}", &["Node"]),
            ("", &[]),
        ] {
            assert_eq!(kinds(text), expected, "{text}");
        }
    }

    /// As `kubectl get nodes -o yaml` writes 2,000 nodes of a large cloud.
    #[test]
    fn a_file_may_be_large() {
        let labels: Vec<String> =
            (0..200).map(|label| format!("      label-{label}: \"1\"\n")).collect();
        let node = format!("- kind: Node\n  metadata:\n    labels:\n{}", labels.concat());
        let text = format!("kind: List\nitems:\n{}", node.repeat(2000));
        assert_eq!(kinds(&text).len(), 2000);
    }

    #[test]
    fn aliases_stay_limited() {
        let first = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        let level = |level: u32| {
            let before = format!("*a{}, ", level - 1).repeat(10);
            format!("a{level}: &a{level} [{}]\n", before.trim_end_matches(", "))
        };
        let text: Vec<String> = iter::once(first).chain((1..10).map(level)).collect();
        let text = text.concat();
        assert!(matches!(parse(&text, Path::new("bomb.yaml")), Err(SnapshotError::Yaml { .. })));
    }

    #[test]
    fn bad_json_is_named() {
        let error = parse("{\"kind\": ", Path::new("pod.json")).unwrap_err();
        assert_eq!(error.to_string(), "`pod.json` is not valid JSON");
    }

    #[test]
    fn templates_are_part_of_the_view() {
        let folder = tempfile::tempdir().unwrap();
        let template = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": { "name": "gpu", "namespace": "default" },
            "spec": { "spec": { "devices": { "requests": [] } } },
        });
        let path = folder.path().join("templates.json");
        fs::write(&path, template.to_string()).unwrap();
        let (_, found) = load(&path).unwrap();
        assert_eq!(found.taken, BTreeMap::from([("ResourceClaimTemplate".to_owned(), 1)]));
    }
}
