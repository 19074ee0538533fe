//! What the cloud said during this boot, kept in a file: a metadata service that
//! is away when the driver restarts must not make templates unschedulable that
//! rely on it. A virtual machine that boots again may be elsewhere, so that
//! another boot's file counts for nothing.

use super::CloudMetadata;
use crate::host;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use topology_graph::HostRoot;

/// The form of the file that this driver writes and reads.
const VERSION: u32 = 1;

/// The file.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    path: PathBuf,
    boot: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    version: u32,
    boot_id: String,
    metadata: CloudMetadata,
}

impl Checkpoint {
    /// The file of this boot; none where the root does not tell its boot.
    pub(super) fn of(host: &HostRoot) -> Option<Self> {
        let path = host.run().join("dranet").join("cloud.json");
        Some(Self { path, boot: host::boot_id(host)? })
    }

    /// What was said during this boot, if anything was.
    pub(super) fn load(&self) -> Option<CloudMetadata> {
        let text = fs::read_to_string(&self.path).ok()?;
        let content: Content = serde_json::from_str(&text).ok()?;
        let is_current = content.version == VERSION && content.boot_id == self.boot;
        is_current.then_some(content.metadata)
    }

    /// Keeps it: written beside the file, synced, and put in its place.
    pub(super) fn store(&self, metadata: &CloudMetadata) -> io::Result<()> {
        let content =
            Content { version: VERSION, boot_id: self.boot.clone(), metadata: metadata.clone() };
        let directory = self.path.parent().unwrap_or_else(|| Path::new("/"));
        fs::create_dir_all(directory)?;
        let new = self.path.with_extension("json.new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&content)?)?;
        file.sync_all()?;
        fs::rename(new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live;

    /// A root in its n-th boot.
    fn boot(root: &Path, number: u32) -> Checkpoint {
        let file = root.join("proc/sys/kernel/random/boot_id");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("1b1c2d3e-0000-4000-8000-00000000000{number}\n")).unwrap();
        Checkpoint::of(&HostRoot::at(root)).unwrap()
    }

    #[test]
    fn holds_for_one_boot() {
        let root = tempfile::tempdir().unwrap();
        assert!(Checkpoint::of(&HostRoot::at(root.path())).is_none(), "no boot, no checkpoint");
        let first = boot(root.path(), 1);
        assert_eq!(first.load(), None);
        let said = live::cloud("aks-gb300");
        first.store(&said).unwrap();
        first.store(&said).unwrap();
        assert_eq!(boot(root.path(), 1).load(), Some(said.clone()));
        assert_eq!(boot(root.path(), 2).load(), None, "another boot may be elsewhere");
        for (what, damage) in
            [("half a file", r#"{"version":1,"bootId"#), ("another form", r#"{"version":2}"#)]
        {
            fs::write(&first.path, damage).unwrap();
            assert_eq!(first.load(), None, "{what}");
        }
        first.store(&said).unwrap();
        assert_eq!(first.load(), Some(said));
    }
}
