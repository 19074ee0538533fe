//! The files of a node, as a value and on a disk.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    Folder,
    File(Arc<[u8]>),
    Link(PathBuf),
}

/// All that is below a folder, by path.
pub(super) type Tree = BTreeMap<Arc<Path>, Entry>;

/// A folder whose content changes with the state of the world.
#[derive(Debug)]
pub(super) struct Disk {
    root: PathBuf,
    now: Tree,
    /// The inode and the length of each file when it was read. Nobody writes a file in place but this disk.
    read: BTreeMap<Arc<Path>, (u64, u64)>,
}

/// Locks, sockets and reserved room say nothing of claims.
fn is_left_out(path: &Path) -> bool {
    let name = path.file_name().unwrap().as_encoded_bytes();
    name.ends_with(b".lock") || name.ends_with(b".sock") || name == b"reserve"
}

impl Disk {
    pub(super) fn new(root: PathBuf) -> Self {
        fs::create_dir_all(&root).unwrap();
        Self { root, now: Tree::new(), read: BTreeMap::new() }
    }

    /// Makes the folder equal to a tree.
    pub(super) fn set(&mut self, tree: &Tree) {
        for (path, entry) in self.now.iter().rev().filter(|(path, it)| tree.get(*path) != Some(it))
        {
            self.read.remove(path);
            let path = self.root.join(path);
            match entry {
                // One with what is left out stays.
                Entry::Folder => drop(fs::remove_dir(path)),
                Entry::File(_) | Entry::Link(_) => fs::remove_file(path).unwrap(),
            }
        }
        for (path, entry) in tree.iter().filter(|(path, it)| self.now.get(*path) != Some(it)) {
            let path = self.root.join(path);
            match entry {
                Entry::Folder => fs::create_dir_all(path),
                Entry::File(text) => fs::write(path, text),
                Entry::Link(to) => symlink(to, path),
            }
            .unwrap();
        }
        self.now.clone_from(tree);
    }

    /// Reads the folder.
    pub(super) fn read(&mut self) -> Tree {
        let mut tree = Tree::new();
        self.add(Path::new(""), &mut tree);
        self.now.clone_from(&tree);
        tree
    }

    fn add(&mut self, folder: &Path, tree: &mut Tree) {
        for found in fs::read_dir(self.root.join(folder)).unwrap() {
            let found = found.unwrap();
            let path = folder.join(found.file_name());
            if is_left_out(&path) {
                continue;
            }
            let path =
                self.now.get_key_value(&*path).map_or_else(|| path.into(), |(it, _)| it.clone());
            let kind = found.file_type().unwrap();
            if kind.is_dir() {
                tree.insert(Arc::clone(&path), Entry::Folder);
                self.add(&path, tree);
            } else if kind.is_symlink() {
                tree.insert(path, Entry::Link(fs::read_link(found.path()).unwrap()));
            } else {
                let file = self.file(&path, &found);
                tree.insert(path, file);
            }
        }
    }

    fn file(&mut self, path: &Arc<Path>, found: &DirEntry) -> Entry {
        let metadata = found.metadata().unwrap();
        let is = (metadata.ino(), metadata.len());
        match self.now.get(path) {
            Some(known) if self.read.get(path) == Some(&is) => return known.clone(),
            _ => {}
        }
        self.read.insert(Arc::clone(path), is);
        Entry::File(fs::read(found.path()).unwrap().into())
    }
}
