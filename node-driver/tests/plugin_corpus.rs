//! Checks the corpora of preparation's fuzz targets with the targets' own checks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

#[path = "../fuzz/plugin_checks.rs"]
mod checks;

/// Checks all inputs of a target; returns their number.
fn held(target: &str, check: fn(&[u8])) -> usize {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let files = fs::read_dir(seeds).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| check(&fs::read(path).unwrap())).count()
}

#[test]
fn seeds_hold() {
    assert!(held("network_config", checks::network_config) >= 4);
    assert!(held("checkpoint", checks::checkpoint) >= 3);
    assert!(held("claim", checks::claim) >= 2);
    assert!(held("cdi", checks::cdi) >= 2);
    assert!(held("nri_frames", checks::nri_frames) >= 5);
}
