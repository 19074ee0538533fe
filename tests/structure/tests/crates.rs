//! The crates of this workspace read from the bottom up: no files import each other.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, ensure};
use structure::{circles, imports};

/// The crates that are free of circles, and must stay so. `admission` and `topology-graph` still have
/// some.
const CRATES: &[&str] = &[
    "cluster-model",
    "dra-allocator",
    "fabric-controller",
    "kubectl-dranet",
    "migration",
    "node-driver",
    "process",
    "scheduler-ext",
    "serve",
    "simulator",
    "tests",
    "tests/structure",
];

#[test]
fn no_files_of_a_crate_import_each_other() -> Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = String::new();
    for name in CRATES {
        let imports = imports(&workspace.join(name).join("src"))?;
        ensure!(!imports.is_empty(), "no imports were found in {name}");
        for circle in circles(&imports) {
            writeln!(found, "{name}:")?;
            for import in circle {
                writeln!(found, "  {import}")?;
            }
        }
    }
    ensure!(found.is_empty(), "files import each other:\n{found}");
    Ok(())
}
