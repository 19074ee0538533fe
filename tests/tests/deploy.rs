//! What in `deploy` is made from the code is what the code makes.

use std::{fs, path::Path};

use tests::{binaries::in_tests, manifest};

/// Compares the objects of a file with the YAML that they are made from.
fn assert_current(path: &str, expected: &str) {
    let file = in_tests("..").join(path);
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file.file_name().unwrap());
    fs::write(&made, expected).unwrap();
    let there = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        there.ends_with(expected),
        "`{path}` is not current; it should end with `{}`",
        made.display()
    );
    manifest::read(&file).unwrap();
}

#[test]
fn the_resource_definition_is_current() {
    let expected = serde_saphyr::to_string(&topology_graph::crd()).unwrap();
    assert_current("deploy/manifests/crd-nodetopologies.yaml", &expected);
}
