//! What in `deploy` is made from the code is what the code makes.

use tests::{binaries::in_tests, generated::assert_current, manifest};

#[test]
fn the_resource_definition_is_current() {
    let expected = serde_saphyr::to_string(&topology_graph::crd()).unwrap();
    assert_current("deploy/manifests/crd-nodetopologies.yaml", &expected).unwrap();
}

#[test]
fn every_file_holds_objects() {
    for folder in ["../deploy/manifests", "../deploy/examples/aks-gb300"] {
        for entry in in_tests(folder).read_dir().unwrap() {
            let path = entry.unwrap().path();
            let objects = manifest::read(&path).unwrap();
            assert!(!objects.is_empty(), "`{}` is empty", path.display());
        }
    }
}
