//! Checks the corpora of the fuzz targets with the targets' own checks.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use std::fs;
use std::path::Path;

#[path = "../fuzz/publication_checks.rs"]
mod publication_checks;

/// Checks all inputs of a target; returns their number.
fn held(target: &str, check: fn(&[u8])) -> usize {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let files = fs::read_dir(seeds).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| check(&fs::read(path).unwrap())).count()
}

#[test]
fn seeds_hold() {
    assert!(held("facts", publication_checks::facts) >= 3);
    assert!(held("metadata", publication_checks::metadata) >= 5);
    assert!(held("netlink", publication_checks::netlink) >= 2);
    assert!(held("rdma_netlink", publication_checks::rdma_netlink) >= 3);
}
