//! What in `deploy` is made from the code is what the code makes.

use std::collections::BTreeSet;

use cluster_model::names::object;
use tests::{binaries::in_tests, generated::assert_current, manifest, rig::manifests};

#[test]
fn the_resource_definition_is_current() {
    let expected = serde_saphyr::to_string(&topology_graph::crd()).unwrap();
    assert_current("deploy/manifests/crd-nodetopologies.yaml", &expected).unwrap();
}

#[test]
fn every_manifest_is_installed() {
    let folder = in_tests("../deploy/manifests");
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeSet<_> = files.filter(|path| !path.ends_with("kustomization.yaml")).collect();
    assert_eq!(manifests().unwrap().into_iter().collect::<BTreeSet<_>>(), files);
}

/// The names in `deploy` are those that the program uses.
#[test]
fn admissions_own_objects_are_there() {
    let mut there = BTreeSet::new();
    for file in manifests().unwrap() {
        for found in manifest::read(&file).unwrap() {
            let kind = found.types.unwrap().kind;
            there.insert((kind, found.metadata.name.unwrap()));
        }
    }
    for (kind, name) in [
        ("Lease", object::LEASE),
        ("Secret", object::CERTIFICATES),
        ("ConfigMap", object::MACHINES),
        ("MutatingWebhookConfiguration", object::WEBHOOK),
        ("ValidatingWebhookConfiguration", object::LINT_WEBHOOK),
        ("Service", "admission"),
        ("Deployment", "admission"),
        ("PodDisruptionBudget", "admission"),
    ] {
        assert!(there.contains(&(kind.to_owned(), name.to_owned())), "no {kind} `{name}`");
    }
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
