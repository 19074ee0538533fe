//! The crates of this workspace read from the bottom up: no files import each other.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, ensure};
use structure::{Import, circles, imports, upward, without_parents};

/// The crates that are free of circles, and must stay so.
const FREE: &[&str] =
    &["dra-allocator", "node-files", "process", "scheduler-ext", "simulator", "tests/structure"];

/// The crates in which only children use what modules above them define.
const FREE_BUT_FOR_PARENTS: &[&str] = &[
    "admission",
    "cluster-model",
    "fabric-controller",
    "host-setup",
    "kubectl-dranet",
    "migration",
    "node-driver",
    "posted",
    "preemptor",
    "publication",
    "serve",
    "tests",
    "topology-graph",
];

/// The folders of crates from the bottom: what is in a row uses only rows before it. Files outside these folders
/// are the program, which uses all.
const FOLDERS: &[(&str, &[&[&str]])] = &[(
    "node-driver",
    &[
        &["model"],
        &["kernel"],
        &["facts"],
        &["decide"],
        &["prepare", "publish"],
        &["claims"],
        &["runtime"],
        &["kubelet"],
    ],
)];

#[test]
fn imports_lead_down_the_folders() -> Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = String::new();
    for (name, order) in FOLDERS {
        let source = workspace.join(name).join("src");
        for folder in order.iter().copied().flatten() {
            ensure!(source.join(folder).is_dir(), "{name} has no folder {folder}");
        }
        for import in upward(&imports(&source)?, order) {
            writeln!(found, "{name}: {import}")?;
        }
    }
    ensure!(found.is_empty(), "imports lead upwards:\n{found}");
    Ok(())
}

#[test]
fn no_files_of_a_crate_import_each_other() -> Result<()> {
    check(FREE, |imports| imports)?;
    check(FREE_BUT_FOR_PARENTS, without_parents)
}

fn check(crates: &[&str], select: fn(Vec<Import>) -> Vec<Import>) -> Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = String::new();
    for name in crates {
        let imports = imports(&workspace.join(name).join("src"))?;
        ensure!(!imports.is_empty(), "no imports were found in {name}");
        for circle in circles(&select(imports)) {
            writeln!(found, "{name}:")?;
            for import in circle {
                writeln!(found, "  {import}")?;
            }
        }
    }
    ensure!(found.is_empty(), "files import each other:\n{found}");
    Ok(())
}
