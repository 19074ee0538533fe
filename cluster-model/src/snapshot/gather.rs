//! Gathers objects for a snapshot or a comparison. They stay text: as values they would take about
//! ten times the memory, and most are never inspected.

use super::archive::{self, Head, Lines};
use super::document::{self, Item, Typed};
use super::intake::read_head;
use super::text::Left;
use super::trim::trim;
use super::{SnapshotError, files};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;

/// An object without the fields that no command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'t> {
    /// The kind.
    pub kind: &'t str,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: &'t str,
    /// The name.
    pub name: &'t str,
    /// The object as JSON on one line, with sorted fields.
    pub json: &'t str,
}

/// Calls `take` with each object of a file or folder, in order. Returns the head if it is a
/// snapshot.
pub fn gather(path: &Path, take: &mut dyn FnMut(Text<'_>)) -> Result<Option<Head>, SnapshotError> {
    let mut head: Option<Head> = None;
    let mut is_empty = true;
    let left = Left::for_objects();
    for file in files(path)? {
        // A snapshot is trimmed already.
        let mut is_trimmed = false;
        let mut each = |item: Item<'_>| -> Result<(), SnapshotError> {
            let (typed, json) = match item {
                Item::Text(typed, json) if typed.kind.as_deref() == Some("Snapshot") => {
                    let mut json = serde_json::Deserializer::from_str(json);
                    head = Some(read_head(&file, &typed, &mut json)?);
                    is_trimmed = true;
                    return Ok(());
                }
                Item::Text(typed, json) if is_trimmed => {
                    take(text(&typed, json));
                    return Ok(());
                }
                Item::Text(typed, json) => {
                    let value = typed
                        .value(json)
                        .map_err(|source| SnapshotError::Json { path: file.clone(), source })?;
                    (typed, value)
                }
                Item::Value(value) => (Typed::new(&value), value),
            };
            is_empty &= typed.kind.is_none();
            take(text(&typed, &trimmed(json)));
            Ok(())
        };
        if archive::is_archive(&file)? {
            archive::each(&file, &left, &mut each)?;
        } else {
            document::each(&file, &left, &mut each)?;
        }
    }
    if is_empty && head.is_none() {
        return Err(SnapshotError::Empty { path: path.to_owned() });
    }
    Ok(head)
}

fn text<'t>(typed: &'t Typed, json: &'t str) -> Text<'t> {
    Text {
        kind: typed.kind.as_deref().unwrap_or_default(),
        namespace: typed.metadata.namespace.as_deref().unwrap_or_default(),
        name: typed.metadata.name.as_deref().unwrap_or_default(),
        json,
    }
}

fn trimmed(mut object: Value) -> String {
    trim(&mut object);
    object.to_string()
}

/// Objects while they are gathered and compressed.
#[derive(Debug)]
pub struct Gathering {
    out: GzEncoder<Vec<u8>>,
    kinds: BTreeMap<String, usize>,
}

/// Gathered objects in order, compressed.
#[derive(Debug)]
pub struct Gathered {
    compressed: Vec<u8>,
    kinds: BTreeMap<String, usize>,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { out: GzEncoder::new(Vec::new(), Compression::fast()), kinds: BTreeMap::new() }
    }
}

impl Gathering {
    /// Adds an object unchanged.
    pub fn push(&mut self, object: Text<'_>) -> io::Result<()> {
        match self.kinds.get_mut(object.kind) {
            Some(count) => *count += 1,
            None => _ = self.kinds.insert(object.kind.to_owned(), 1),
        }
        self.out.write_all(object.json.as_bytes())?;
        self.out.write_all(b"\n")
    }

    /// Adds an object without the fields that no command reads.
    pub fn push_value(&mut self, object: Value) -> io::Result<()> {
        let typed = Typed::new(&object);
        self.push(text(&typed, &trimmed(object)))
    }

    /// Finishes compression and returns all added objects.
    pub fn finish(self) -> io::Result<Gathered> {
        Ok(Gathered { compressed: self.out.finish()?, kinds: self.kinds })
    }
}

impl Gathered {
    /// The number of objects by kind.
    pub fn kinds(&self) -> &BTreeMap<String, usize> {
        &self.kinds
    }

    /// Calls `take` with each object, in order.
    pub fn each(&self, mut take: impl FnMut(Value) -> io::Result<()>) -> io::Result<()> {
        let mut lines = Lines::new(GzDecoder::new(self.compressed.as_slice()));
        while let Some(line) = lines.next()? {
            take(serde_json::from_str(line)?)?;
        }
        Ok(())
    }

    /// The objects as one gzip member.
    pub(super) fn compressed(&self) -> &[u8] {
        &self.compressed
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FORMAT, write};
    use super::*;
    use serde_json::json;
    use std::fs;

    fn all(path: &Path) -> (Vec<String>, Option<Head>) {
        let mut found = Vec::new();
        let head = gather(path, &mut |text| found.push(text.json.to_owned())).unwrap();
        (found, head)
    }

    #[test]
    fn gathered_objects_are_trimmed() {
        let folder = tempfile::tempdir().unwrap();
        let (list, archive) = (folder.path().join("c.json"), folder.path().join("c.gz"));
        let pod = json!({
            "metadata": { "name": "p", "namespace": "n", "managedFields": [{}] },
            "spec": { "volumes": [{}], "nodeName": "a" },
        });
        let of_list = json!({ "apiVersion": "v1", "kind": "PodList", "items": [pod, pod] });
        fs::write(&list, of_list.to_string()).unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "namespace": "n" }, "spec": { "nodeName": "a" },
        })
        .to_string();
        assert_eq!(all(&list), (vec![expected.clone(), expected.clone()], None));

        let mut gathering = Gathering::default();
        gather(&list, &mut |text| {
            assert_eq!((text.kind, text.namespace, text.name), ("Pod", "n", "p"));
            gathering.push(text).unwrap();
        })
        .unwrap();
        let gathered = gathering.finish().unwrap();
        assert_eq!(gathered.kinds(), &BTreeMap::from([("Pod".to_owned(), 2)]));
        let head: Head = serde_json::from_value(json!({
            "apiVersion": FORMAT, "kind": "Snapshot", "takenAt": "", "clientVersion": "",
            "masked": false,
        }))
        .unwrap();
        write(&archive, &head, &gathered).unwrap();
        assert_eq!(all(&archive), (vec![expected.clone(), expected], Some(head)));
    }

    #[test]
    fn a_file_without_objects_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        for text in ["", "null", "{}", "3"] {
            fs::write(&path, text).unwrap();
            assert!(matches!(gather(&path, &mut |_| {}), Err(SnapshotError::Empty { .. })));
        }
    }
}
