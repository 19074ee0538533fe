//! The crates of this workspace read from the bottom up: no files import each other.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, ensure};
use structure::{Import, circles, imports, without_parents};

/// The crates that are free of circles, and must stay so.
const FREE: &[&str] =
    &["dra-allocator", "process", "scheduler-ext", "simulator", "tests/structure"];

/// The crates in which only children use what modules above them define.
const FREE_BUT_FOR_PARENTS: &[&str] = &[
    "admission",
    "cluster-model",
    "fabric-controller",
    "kubectl-dranet",
    "migration",
    "node-driver",
    "posted",
    "publication",
    "serve",
    "tests",
    "topology-graph",
];

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
