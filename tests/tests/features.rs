//! The dependencies of each crate with its features, as cargo resolves them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{collections::BTreeSet, path::Path, process::Command};

/// Crates that only a program with a live cluster needs.
const CLIENTS: [&str; 5] = ["kube-client", "kube-runtime", "hyper", "rustls", "tokio"];

/// The names of the crates that are linked into `package`, or run to build it.
fn dependencies(package: &str, features: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", package, "--no-default-features"])
        .args(["--edges", "normal,build", "--prefix", "none"])
        .args(features.iter().flat_map(|feature| ["--features", feature]))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn decision_crates_link_no_client() {
    let pure: [(&str, &[&str]); 10] = [
        ("topology-graph", &["archive", "crd", "fixture"]),
        ("dra-allocator", &[]),
        ("cluster-model", &[]),
        ("admission", &[]),
        ("fabric-controller", &[]),
        ("preemptor", &[]),
        ("scheduler-ext", &[]),
        ("kubectl-dranet", &[]),
        ("publication", &[]),
        ("simulator", &[]),
    ];
    for (package, features) in pure {
        let all = dependencies(package, features);
        for client in CLIENTS {
            assert!(!all.contains(client), "{package} {features:?} links {client}");
        }
    }
}

/// The opposite, which proves that the check above can fail.
#[test]
fn client_crates_link_a_client() {
    for (package, feature) in [
        ("cluster-model", "live"),
        ("admission", "server"),
        ("fabric-controller", "server"),
        ("preemptor", "server"),
        ("scheduler-ext", "server"),
        ("kubectl-dranet", "live"),
    ] {
        let all = dependencies(package, &[feature]);
        assert!(all.contains("kube-client"), "{package} with `{feature}` links no client");
    }
}

/// The README's first command builds few crates, so it is quick.
#[test]
fn the_first_command_builds_at_most_130_crates() {
    let all = dependencies("kubectl-dranet", &[]);
    assert!(all.len() <= 130, "{} crates: {all:?}", all.len());
}
