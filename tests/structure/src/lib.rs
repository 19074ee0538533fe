//! Finds out which files of a crate import which others, and whether any import each other.
//!
//! A crate can be read from the bottom up if its files form no circle: each file can be understood
//! with those that it imports. A file imports another if a path in it (`use crate::…`, `super::…`,
//! or the name of a child) leads to something that the other defines. A name that a module only
//! re-exports (`pub use`) leads to the file that defines it. A parent and a child therefore form a
//! circle if each uses what the other defines; [`without_parents`] leaves these out. Unit tests are
//! ignored.

mod files;
mod paths;
mod resolve;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;

use self::files::Modules;

/// A file that imports another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// The file, below the folder that was read.
    pub from: PathBuf,
    /// The file whose content it uses.
    pub to: PathBuf,
    /// The first path that leads there.
    pub path: String,
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} imports `{}` from {}", self.from.display(), self.path, self.to.display())
    }
}

/// The imports among the files below a folder with a `lib.rs` or a `main.rs`, sorted.
///
/// # Errors
///
/// Fails if a file cannot be read or is not Rust, or if neither root file exists.
pub fn imports(source: &Path) -> Result<Vec<Import>> {
    let mut imports = Vec::new();
    let roots = ["lib.rs", "main.rs"].map(|root| source.join(root));
    let roots: Vec<_> = roots.into_iter().filter(|root| root.is_file()).collect();
    anyhow::ensure!(!roots.is_empty(), "`{}` has no lib.rs or main.rs", source.display());
    for root in roots {
        let modules = Modules::read(&root)
            .with_context(|| format!("failed to read the modules of `{}`", root.display()))?;
        for (from, to, path) in resolve::edges(&modules) {
            let below = |file: &Path| file.strip_prefix(source).unwrap_or(file).to_owned();
            imports.push(Import { from: below(from), to: below(to), path });
        }
    }
    imports.sort();
    imports.dedup_by(|a, b| (&a.from, &a.to) == (&b.from, &b.to));
    Ok(imports)
}

/// The imports without those by which a child uses what a module above it defines: a module and its
/// children are one subject in one folder. What the crate's root defines belongs to the whole crate,
/// so uses of that stay.
pub fn without_parents(mut imports: Vec<Import>) -> Vec<Import> {
    imports.retain(|import| !import.from.starts_with(import.to.with_extension("")));
    imports
}

/// The imports that do not lead down a crate's folders. `order` lists them from the bottom: what is in a row
/// uses what is in rows before it, and nothing else of its own row. A file outside these folders is above
/// all of them.
pub fn upward(imports: &[Import], order: &[&[&str]]) -> Vec<Import> {
    let place = |file: &Path| {
        let folder = file.with_extension("");
        let folder = folder.iter().next().unwrap_or_default().to_owned();
        let row = order.iter().position(|row| row.iter().any(|name| folder == *name));
        (row.unwrap_or(order.len()), folder)
    };
    let is_upward = |import: &&Import| {
        let ((from, folder), (to, other)) = (place(&import.from), place(&import.to));
        folder != other && to >= from && from < order.len()
    };
    imports.iter().filter(is_upward).cloned().collect()
}

/// The circles in these imports; for each, the imports between its files.
pub fn circles(imports: &[Import]) -> Vec<Vec<Import>> {
    let mut graph = DiGraph::<&Path, ()>::new();
    let mut numbers = BTreeMap::new();
    for import in imports {
        let mut number = |file| *numbers.entry(file).or_insert_with(|| graph.add_node(file));
        let (from, to) = (number(&*import.from), number(&*import.to));
        graph.add_edge(from, to, ());
    }
    let circles = tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1);
    let within = |files: Vec<_>| {
        let is_in = |file: &PathBuf| files.contains(&numbers[&**file]);
        let imports = imports.iter().filter(|import| is_in(&import.from) && is_in(&import.to));
        imports.cloned().collect()
    };
    circles.map(within).collect()
}
