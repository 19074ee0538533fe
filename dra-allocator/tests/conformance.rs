//! The test table of Kubernetes' allocator: results, errors and steps must be the same.

#![expect(clippy::disallowed_methods, reason = "vectors are files")]
#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use dra_allocator::Limits;
use dra_allocator::replay::{Answer, Case};

/// Enough for every case of the table, so that a fault cannot run for ever.
const MAX_STEPS: u64 = 2_000_000;

fn vectors(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(file)
}

/// Cases whose file does not say what went in: an amount of 10²¹ that Kubernetes' own printing
/// turns into `1`, and an empty list, which JSON leaves out.
const UNFAITHFUL: &[(&str, &str)] = &[
    (
        "kubernetes-1.36.3-experimental",
        "list-attributes-distinct-constaint-with-empty-or-unknown-type",
    ),
    ("kubernetes-1.37.1-experimental", "consumable-capacity-requests-are-not-modified"),
    ("kubernetes-1.37.1-incubating", "consumable-capacity-requests-are-not-modified"),
];

/// Cases with several pools in the stable variant, which takes them in random order; the file has
/// another order than ours. The devices must be the same, the order and the steps need not.
const RANDOM: &[&str] =
    &["all-devices-many", "many-network-attached-devices", "prioritized-list-with-backtracking"];

/// The devices of all claims, sorted.
fn devices(answer: &Answer) -> Vec<String> {
    let results = answer.results.iter().flatten();
    let results = results.filter_map(|claim| claim["devices"]["results"].as_array());
    let mut devices: Vec<_> = results.flatten().map(ToString::to_string).collect();
    devices.sort();
    devices
}

/// Runs all cases of a file.
fn check(file: &str, cases: usize) {
    let text = fs::read_to_string(vectors(file)).unwrap();
    let mut differences = String::new();
    for line in text.lines() {
        let case = Case::from_json(line).unwrap();
        let name = case.label();
        if UNFAITHFUL.contains(&(file.trim_end_matches(".jsonl"), &name)) {
            continue;
        }
        let answer = case.replay().unwrap().run(Limits::steps(MAX_STEPS));
        let expected = case.expected();
        let same = if file.contains("stable") && RANDOM.contains(&name.as_str()) {
            devices(&answer) == devices(&expected) && answer.error == expected.error
        } else {
            answer.same_results(&expected) && answer.same_steps(&expected)
        };
        if !same {
            writeln!(differences, "{name}\n  Kubernetes {expected:?}\n  we         {answer:?}")
                .unwrap();
        }
    }
    assert!(differences.is_empty(), "{file}:\n{differences}");
    assert_eq!(text.lines().count(), cases, "the number of cases in {file}");
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
