//! A cluster in one file: gzip-compressed JSON, one object per line. The first object describes the
//! file. A reader holds one object at a time, however large the cluster is.

use super::document::Item;
use super::served::Served;
use super::text::{self, Left, OBJECT_MAX, invalid};
use super::{SnapshotError, reading};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

/// The `apiVersion` of the first object. Another version is another format.
pub const FORMAT: &str = "snapshot.dranet.io/v1";

/// What the first line of every version contains.
const MARK: &str = "snapshot.dranet.io/";

/// The first object of a snapshot, which describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// [`FORMAT`].
    pub api_version: String,
    /// `Snapshot`.
    pub kind: String,
    /// The time when the snapshot was taken, RFC 3339.
    pub taken_at: String,
    /// The version of the program that took it.
    pub client_version: String,
    /// The version of the API server, `v1.37.1`.
    pub server_version: Option<String>,
    /// The feature gates that the API server shows, by name.
    #[serde(default)]
    pub feature_gates: BTreeMap<String, bool>,
    /// The optional kinds that the API server serves.
    #[serde(flatten)]
    pub served: Served,
    /// The content of the cluster's file of drivers, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drivers: Option<String>,
    /// The namespace for objects that do not set one.
    pub namespace: Option<String>,
    /// True if names were replaced.
    pub masked: bool,
    /// Messages about objects that could not be read.
    #[serde(default)]
    pub unread: Vec<String>,
}

/// Returns true if a file is a snapshot, of any version, and also if it is compressed and its first
/// line cannot be read; an error if it cannot be opened.
pub(super) fn is_archive(path: &Path) -> Result<bool, SnapshotError> {
    let left = Left::for_objects();
    let (text, left) = text::open(path, &left).map_err(reading(path))?;
    if left.is_none() {
        return Ok(false);
    }
    let mut lines = Lines::new(text);
    Ok(lines.next().map_or(true, |line| line.is_some_and(|line| line.contains(MARK))))
}

/// The head of a snapshot. `None` for other files and folders, and for what cannot be read: reading
/// the objects says why.
pub fn head(path: &Path) -> Option<Head> {
    let left = Left::for_objects();
    let (text, left) = text::open(path, &left).ok()?;
    left?;
    serde_json::from_str(Lines::new(text).next().ok()??).ok()
}

/// Calls `take` with each object of a file, in order.
pub(super) fn each(
    path: &Path,
    left: &Left,
    take: &mut dyn FnMut(Item<'_>) -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    let mut lines = Lines::new(text::open(path, left).map_err(reading(path))?.0);
    while let Some(line) = lines.next().map_err(reading(path))? {
        left.count_object(line).map_err(reading(path))?;
        take(Item::of_text(path, line)?)?;
    }
    Ok(())
}

/// Reads a text line by line.
pub(super) struct Lines<R> {
    text: BufReader<R>,
    line: Vec<u8>,
}

impl<R: io::Read> Lines<R> {
    pub(super) fn new(text: R) -> Self {
        Self { text: BufReader::with_capacity(1 << 16, text), line: Vec::new() }
    }

    /// The next line that is not empty.
    pub(super) fn next(&mut self) -> io::Result<Option<&str>> {
        loop {
            self.line.clear();
            let read = (&mut self.text).take(OBJECT_MAX).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            if self.line.last() != Some(&b'\n') && read as u64 == OBJECT_MAX {
                return Err(invalid(format!("an object has more than {OBJECT_MAX} bytes")));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let line = str::from_utf8(self.line.trim_ascii());
        line.map(Some).map_err(|error| invalid(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Gathered, Gathering, load_keeping, objects, write};
    use super::*;
    use dra_allocator::MinorVersion;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::{Value, json};
    use std::fs::{self, File};
    use std::io::Write as _;

    fn gathered(objects: &[&Value]) -> Gathered {
        let mut gathering = Gathering::default();
        for object in objects {
            gathering.push_value((*object).clone()).unwrap();
        }
        gathering.finish().unwrap()
    }

    fn head(format: &str) -> Head {
        let mut served = Served::default();
        served.add("PodGroup");
        served.add("ComputeDomain");
        Head {
            drivers: None,
            api_version: format.to_owned(),
            kind: "Snapshot".to_owned(),
            taken_at: "2026-01-01T00:00:00Z".to_owned(),
            client_version: "0.1.0".to_owned(),
            server_version: Some("v1.35.4-gke.1".to_owned()),
            feature_gates: BTreeMap::new(),
            served,
            namespace: None,
            masked: false,
            unread: Vec::new(),
        }
    }

    #[test]
    fn snapshots_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.gz");
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" } });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } });
        write(&path, &head(FORMAT), &gathered(&[&node, &pod])).unwrap();
        for path in [path.as_path(), folder.path()] {
            let intake = load_keeping(path, &["Pod"]).unwrap();
            assert_eq!(intake.head, Some(head(FORMAT)));
            assert_eq!(intake.kept, std::slice::from_ref(&pod));
            assert_eq!(intake.found.taken, BTreeMap::from([("Node".to_owned(), 1)]));
            assert_eq!(intake.view.settings().version, MinorVersion::V1_35);
            assert!(intake.view.pod_groups().is_served());
            assert!(intake.view.compute_domains().is_served());
        }
    }

    /// As `kubectl get nodes -o yaml | gzip` writes them.
    #[test]
    fn compressed_objects_are_no_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" } });
        for text in ["apiVersion: v1\nkind: Node\nmetadata: {name: a}\n", &node.to_string()] {
            let path = folder.path().join("nodes.gz");
            let mut file = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
            file.write_all(text.as_bytes()).unwrap();
            file.finish().unwrap();
            let intake = load_keeping(&path, &["Node"]).unwrap();
            assert_eq!(intake.kept, std::slice::from_ref(&node), "{text}");
            assert_eq!(objects(&path).unwrap(), std::slice::from_ref(&node), "{text}");
        }
    }

    #[test]
    fn other_versions_and_damaged_snapshots_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.gz");
        write(&path, &head("snapshot.dranet.io/v9"), &gathered(&[])).unwrap();
        let error = load_keeping(&path, &[]).unwrap_err();
        assert!(error.to_string().contains("snapshot format `snapshot.dranet.io/v9`"), "{error}");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let error = load_keeping(&path, &[]).unwrap_err();
        assert!(error.to_string().starts_with("failed to read"), "{error}");
        fs::write(&path, [0x1f, 0x8b, 0, 0]).unwrap();
        load_keeping(&path, &[]).unwrap_err();
    }
}
