//! The modules of a crate, and the files that they are in.

use std::collections::BTreeMap;
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::paths::{Content, Used};

/// The path of a module from the root of its crate; empty for the root.
pub(crate) type ModulePath = Vec<String>;

/// A module.
#[derive(Debug)]
pub(crate) struct Module {
    /// The file with its content.
    pub(crate) file: PathBuf,
    /// The paths in it, except those in its child modules.
    pub(crate) used: Vec<Used>,
}

/// The modules of a crate.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    pub(crate) all: BTreeMap<ModulePath, Module>,
}

impl Modules {
    /// Reads a crate, starting at its root file.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut modules = Self::default();
        modules.add(&[], root, folder_of(root))?;
        Ok(modules)
    }

    /// Adds a file and the modules that it declares. Files of child modules are below `folder`.
    fn add(&mut self, path: &[String], file: &Path, folder: &Path) -> Result<()> {
        let text = fs::read_to_string(file)
            .with_context(|| format!("failed to read `{}`", file.display()))?;
        let content =
            Content::read(&text).with_context(|| format!("failed to read `{}`", file.display()))?;
        let (mut own, mut of_inline): (Vec<_>, BTreeMap<ModulePath, Vec<Used>>) =
            Default::default();
        for mut used in content.used {
            let scope = mem::take(&mut used.scope);
            if scope.is_empty() {
                own.push(used);
            } else {
                of_inline.entry(scope).or_default().push(used);
            }
        }
        self.all.insert(path.to_vec(), Module { file: file.to_owned(), used: own });
        for declared in content.declared {
            let module: ModulePath = path.iter().chain(&declared.path).cloned().collect();
            if declared.is_inline {
                let used = of_inline.remove(&declared.path).unwrap_or_default();
                self.all.insert(module, Module { file: file.to_owned(), used });
                continue;
            }
            let below = declared.path.iter().fold(folder.to_owned(), |path, name| path.join(name));
            if let Some(named) = &declared.file {
                let named = folder_of(file).join(named);
                self.add(&module, &named, folder_of(&named))?;
                continue;
            }
            let flat = below.with_extension("rs");
            let child = if flat.is_file() { flat } else { below.join("mod.rs") };
            self.add(&module, &child, &below)?;
        }
        Ok(())
    }

    /// Returns true if a module with this path exists.
    pub(crate) fn has(&self, path: &[String]) -> bool {
        self.all.contains_key(path)
    }
}

/// The folder that a file is in.
fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or_else(|| Path::new(""))
}
