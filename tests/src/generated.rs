//! Generated files in the checkout: they must match what the code generates.

use std::{fs, path::PathBuf};

use anyhow::Context;

use crate::binaries::in_tests;

/// Fails if a file (below the checkout) does not end with `expected`. The expected text is then
/// written to the build directory, for inspection and copying. Comments before it are written by
/// hand.
pub fn assert_current(path: &str, expected: &str) -> anyhow::Result<()> {
    let file = in_tests("..").join(path);
    let there = fs::read_to_string(&file)
        .with_context(|| format!("failed to read `{}`", file.display()))?;
    if there.ends_with(expected) {
        return Ok(());
    }
    let name = file.file_name().unwrap_or_default();
    let made = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/made").join(name);
    fs::create_dir_all(made.parent().unwrap_or(&made))?;
    fs::write(&made, expected)?;
    anyhow::bail!("`{path}` is not current; it should end with `{}`", made.display())
}
