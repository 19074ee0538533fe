//! The test table of Kubernetes' allocator: results, errors and steps must be the same.

#![expect(clippy::disallowed_methods, reason = "vectors are files")]
#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use dra_allocator::Limits;
use dra_allocator::replay::Case;

/// Enough for every case of the table, so that a fault cannot run for ever.
const MAX_STEPS: u64 = 2_000_000;

fn vectors(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(file)
}

fn check(file: &str, cases: usize) {
    let text = fs::read_to_string(vectors(file)).unwrap();
    let mut differences = String::new();
    for line in text.lines() {
        let case = Case::from_json(line).unwrap();
        let (answer, same) = case.check(Limits::steps(MAX_STEPS)).unwrap();
        if !same && case.unfaithful().is_none() {
            let (name, expected) = (case.label(), case.expected());
            writeln!(differences, "{name}\n  Kubernetes {expected:?}\n  we         {answer:?}")
                .unwrap();
        }
    }
    assert!(differences.is_empty(), "{file}:\n{differences}");
    assert_eq!(text.lines().count(), cases, "the number of cases in {file}");
}

/// What the differential test once found, kept for good.
#[test]
fn found() {
    check("found.jsonl", 0);
}

/// Searches of up to a million steps: pairs on one node with 8 GPUs and 8 NICs.
#[test]
fn heavy_shapes() {
    check("heavy-shapes-1.37.1.jsonl", 24);
}

#[test]
fn incubating_1_37() {
    check("kubernetes-1.37.1-incubating.jsonl", 234);
}

#[test]
fn experimental_1_37() {
    check("kubernetes-1.37.1-experimental.jsonl", 279);
}

#[test]
fn stable_1_37() {
    check("kubernetes-1.37.1-stable.jsonl", 158);
}

#[test]
fn incubating_1_36() {
    check("kubernetes-1.36.3-incubating.jsonl", 204);
}

#[test]
fn experimental_1_36() {
    check("kubernetes-1.36.3-experimental.jsonl", 225);
}

#[test]
fn stable_1_36() {
    check("kubernetes-1.36.3-stable.jsonl", 143);
}
