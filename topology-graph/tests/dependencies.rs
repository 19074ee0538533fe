//! Checks that the crate has no Kubernetes client and no network code, not even indirectly.

#![expect(clippy::disallowed_methods, reason = "a test reads the lock file")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Packages that would allow communication.
const FORBIDDEN: [&str; 6] =
    ["hyper", "kube-client", "netlink-sys", "rtnetlink", "rustls", "tokio"];

/// All packages that the crate is built with, from the lock file.
fn needed(lock: &str, package: &str) -> BTreeSet<String> {
    let mut needed = BTreeSet::new();
    let mut open = vec![package.to_owned()];
    while let Some(name) = open.pop() {
        if needed.insert(name.clone()) {
            open.extend(dependencies(lock, &name));
        }
    }
    needed
}

fn dependencies(lock: &str, package: &str) -> Vec<String> {
    let named = format!("name = \"{package}\"\n");
    let entries = lock.split("[[package]]").filter(|entry| entry.contains(&named));
    let lines = entries.flat_map(str::lines).filter_map(|line| line.trim().strip_prefix('"'));
    let packages = lines.filter_map(|line| line.split(['"', ' ']).next());
    packages.map(str::to_owned).collect()
}

#[test]
fn no_client_and_no_network() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    let needed = needed(&fs::read_to_string(lock).unwrap(), "topology-graph");
    assert!(needed.contains("petgraph") && needed.contains("kube-core"));
    let found: Vec<_> = FORBIDDEN.iter().filter(|name| needed.contains(**name)).collect();
    assert!(found.is_empty(), "{found:?}");
}
