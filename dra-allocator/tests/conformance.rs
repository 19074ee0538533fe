//! Runs the test table of Kubernetes' allocator: results, errors and steps must be the same.

#![expect(clippy::disallowed_methods, reason = "vectors are files")]

#[path = "differential/replay.rs"]
mod replay;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use dra_allocator::Limits;

use crate::replay::Case;

/// More than any case of the table needs; stops an endless search.
const MAX_STEPS: u64 = 2_000_000;

/// The files checked here, each by a separate test.
const FILES: &[&str] = &[
    "found.jsonl",
    "heavy-shapes-1.37.1.jsonl",
    "kubernetes-1.36.3-stable.jsonl",
    "kubernetes-1.36.3-incubating.jsonl",
    "kubernetes-1.36.3-experimental.jsonl",
    "kubernetes-1.37.1-stable.jsonl",
    "kubernetes-1.37.1-incubating.jsonl",
    "kubernetes-1.37.1-experimental.jsonl",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// The cases of a file; an error if there are none.
fn cases(path: &Path) -> Result<Vec<Case>> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("failed to read the vectors `{}`", path.display()))?;
    let lines = text.lines().enumerate();
    let cases = lines.map(|(number, line)| {
        Case::from_json(line)
            .with_context(|| format!("line {} of `{}`", number + 1, path.display()))
    });
    let cases: Vec<_> = cases.collect::<Result<_>>()?;
    ensure!(!cases.is_empty(), "the vectors `{}` hold no case", path.display());
    Ok(cases)
}

fn check(file: &str) -> Result<()> {
    let mut differences = String::new();
    for case in cases(&folder().join(file))? {
        let (answer, same) = case.check(Limits::steps(MAX_STEPS))?;
        if !same && case.unfaithful().is_none() {
            let (name, expected) = (case.label(), case.expected());
            writeln!(differences, "{name}\n  Kubernetes {expected:?}\n  we         {answer:?}")?;
        }
    }
    ensure!(differences.is_empty(), "{file}:\n{differences}");
    Ok(())
}

/// Differences that random comparisons found in the past.
#[test]
fn found() -> Result<()> {
    check("found.jsonl")
}

/// Searches of up to a million steps: pairs on one node with 8 GPUs and 8 NICs.
#[test]
fn heavy_shapes() -> Result<()> {
    check("heavy-shapes-1.37.1.jsonl")
}

#[test]
fn incubating_1_37() -> Result<()> {
    check("kubernetes-1.37.1-incubating.jsonl")
}

#[test]
fn experimental_1_37() -> Result<()> {
    check("kubernetes-1.37.1-experimental.jsonl")
}

#[test]
fn stable_1_37() -> Result<()> {
    check("kubernetes-1.37.1-stable.jsonl")
}

#[test]
fn incubating_1_36() -> Result<()> {
    check("kubernetes-1.36.3-incubating.jsonl")
}

#[test]
fn experimental_1_36() -> Result<()> {
    check("kubernetes-1.36.3-experimental.jsonl")
}

#[test]
fn stable_1_36() -> Result<()> {
    check("kubernetes-1.36.3-stable.jsonl")
}

#[test]
fn every_file_of_vectors_is_checked() -> Result<()> {
    let mut there = BTreeSet::new();
    for entry in fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            there.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    assert_eq!(there, FILES.iter().map(|file| (*file).to_owned()).collect());
    Ok(())
}

/// Kubernetes runs each case of its table with all variants that support the needed features, so a
/// variant that lacks a case of a lesser one has lost it.
#[test]
fn no_variant_has_lost_cases() -> Result<()> {
    for version in ["1.36.3", "1.37.1"] {
        let names = |variant: &str| -> Result<BTreeSet<String>> {
            let file = format!("kubernetes-{version}-{variant}.jsonl");
            Ok(cases(&folder().join(file))?.iter().map(Case::label).collect())
        };
        let (stable, incubating) = (names("stable")?, names("incubating")?);
        let experimental = names("experimental")?;
        assert!(stable.is_subset(&incubating), "{:?}", stable.difference(&incubating));
        assert!(incubating.is_subset(&experimental), "{:?}", incubating.difference(&experimental));
    }
    Ok(())
}

#[test]
fn a_missing_or_empty_file_is_an_error() -> Result<()> {
    let missing = cases(&folder().join("none.jsonl")).map(|_| ());
    assert!(missing.is_err_and(|error| error.to_string().contains("failed to read the vectors")));
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty.jsonl");
    fs::write(&empty, "")?;
    let empty = cases(&empty).map(|_| ());
    assert!(empty.is_err_and(|error| error.to_string().contains("hold no case")));
    Ok(())
}
