//! A file that is valid for one boot of one machine. The driver finds its content again
//! after a restart; after a reboot the content no longer counts.

use crate::boot;
use crate::durable::{self, FileError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use topology_graph::HostRoot;

/// The file; it holds a value of one type.
#[derive(Debug)]
pub struct BootFile<T> {
    path: PathBuf,
    boot: String,
    /// The version of the content's format.
    version: u32,
    content: PhantomData<fn() -> T>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content<T> {
    version: u32,
    boot_id: String,
    data: T,
}

impl<T> Clone for BootFile<T> {
    fn clone(&self) -> Self {
        let Self { path, boot, version, content } = self;
        Self { path: path.clone(), boot: boot.clone(), version: *version, content: *content }
    }
}

impl<T: Serialize + DeserializeOwned> BootFile<T> {
    /// Opens the file of this name for this boot; `None` if the root has no boot ID.
    pub fn new(host: &HostRoot, name: &str, version: u32) -> Option<Self> {
        let path = host.run().join("dranet").join(name);
        Some(Self { path, boot: boot::boot_id(host)?, version, content: PhantomData })
    }

    /// Loads what was stored during this boot, if anything.
    pub fn load(&self) -> Option<T> {
        let text = fs::read_to_string(&self.path).ok()?;
        let content: Content<T> = serde_json::from_str(&text).ok()?;
        let is_current = content.version == self.version && content.boot_id == self.boot;
        is_current.then_some(content.data)
    }

    /// Differs where the file was written in between.
    pub fn stamp(&self) -> Option<SystemTime> {
        fs::metadata(&self.path).ok()?.modified().ok()
    }

    /// Stores the data for this boot.
    pub fn store(&self, data: &T) -> Result<(), FileError> {
        let content = Content { version: self.version, boot_id: self.boot.clone(), data };
        let directory = self.path.parent().unwrap_or_else(|| Path::new("/"));
        durable::create_dir(directory)?;
        durable::write_json(&self.path, &content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root in its n-th boot.
    fn boot(root: &Path, number: u32) -> BootFile<Vec<u32>> {
        let file = root.join("proc/sys/kernel/random/boot_id");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("1b1c2d3e-0000-4000-8000-00000000000{number}\n")).unwrap();
        BootFile::new(&HostRoot::at(root), "file.json", 1).unwrap()
    }

    #[test]
    fn content_is_valid_for_one_boot() {
        let root = tempfile::tempdir().unwrap();
        let none = BootFile::<Vec<u32>>::new(&HostRoot::at(root.path()), "file.json", 1);
        assert!(none.is_none(), "no boot, no file");
        let first = boot(root.path(), 1);
        assert_eq!(first.load(), None);
        let said = vec![1, 2];
        first.store(&said).unwrap();
        first.store(&said).unwrap();
        assert_eq!(boot(root.path(), 1).load(), Some(said.clone()));
        assert_eq!(boot(root.path(), 2).load(), None, "another boot may be elsewhere");
        for (what, damage) in
            [("half a file", r#"{"version":1,"bootId"#), ("another format", r#"{"version":2}"#)]
        {
            fs::write(&first.path, damage).unwrap();
            assert_eq!(first.load(), None, "{what}");
        }
        first.store(&said).unwrap();
        assert_eq!(first.load(), Some(said));
    }
}
