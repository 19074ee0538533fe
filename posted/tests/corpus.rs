//! Runs the checks of the fuzz targets on their seed inputs.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(clippy::disallowed_methods, reason = "a test reads the inputs beside it")]

use std::fs;
use std::path::Path;

#[path = "../fuzz/checks.rs"]
mod checks;

/// The number of inputs of a target that passed.
fn held(target: &str, check: fn(&[u8])) -> usize {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let files = fs::read_dir(seeds).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| check(&fs::read(path).unwrap())).count()
}

#[test]
fn seeds_hold() {
    assert!(held("listing", checks::listing) >= 4);
    assert!(held("matrix", checks::matrix) >= 3);
}
