//! Outputs as they were recorded, by a hash of each case. A redesign changes none of them, except those
//! that `wanted` lists with a reason.
//!
//! A record is a file in this folder: `CASE: HASH`, and for numbered cases `FIRST: HASH HASH …`. Settings:
//!
//! - `DRANET_RECORDED=10000`: so many numbered cases, and all with a name. Without it, those that take seconds.
//! - `DRANET_RECORDED_PRINT=CASE`: only that case, whose output is printed (with `--nocapture`).
//! - `DRANET_RECORDED_KEEP=FOLDER`: the output of each case is written below that folder. `diff -r` compares
//!   those of two commits.
//! - `DRANET_RECORDED_WANTED=REASON`: what differs becomes a line of `wanted`, with this reason.
//! - `DRANET_RECORDED_WRITE=1`: the record is written anew, and its lines in `wanted` go.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

/// Numbered cases on one line.
const BLOCK: usize = 100;

/// Differences that are printed.
const SHOWN: usize = 20;

/// The hash of each case, by record and case.
type Hashes = BTreeMap<Case, String>;

/// A numbered case, or one with a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Case {
    Number(usize),
    Name(String),
}

impl Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl From<&str> for Case {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Number)
    }
}

/// The number of numbered cases that are asked for; `None` for those that take seconds.
pub(crate) fn asked() -> Option<usize> {
    let number = env::var("DRANET_RECORDED").ok();
    number.map(|number| number.parse().unwrap())
}

/// The numbered cases: `few` take seconds, and no more than `most` are recorded.
#[allow(dead_code, reason = "not every record has numbered cases")]
pub(crate) fn numbers(few: usize, most: usize) -> Vec<usize> {
    (0..asked().unwrap_or(few).min(most)).collect()
}

/// Compares the outputs of all cases with those that are recorded under this name.
pub(crate) fn compare<C: Display + Sync>(
    record: &str,
    cases: &[C],
    output: impl Fn(&C) -> String + Sync,
) {
    if let Ok(only) = env::var("DRANET_RECORDED_PRINT") {
        for case in cases.iter().filter(|case| case.to_string() == only) {
            #[allow(clippy::print_stdout, reason = "a person has asked for it")]
            {
                println!("{record} {case}\n{}", output(case));
            }
        }
        return;
    }
    let got = hashes(record, cases, output);
    let recorded = read(record);
    let wanted = wanted(record);
    let mut differing = BTreeMap::new();
    for (case, hash) in &got {
        let expected = wanted.get(case).or_else(|| recorded.get(case));
        if expected != Some(hash) {
            differing.insert(case.clone(), hash.clone());
        }
    }
    let is_all = |case: &Case| matches!(case, Case::Name(_)) && asked().is_some();
    for case in recorded.keys().filter(|case| is_all(case)) {
        if !got.contains_key(case) && wanted.get(case).is_none_or(|hash| hash != GONE) {
            differing.insert(case.clone(), GONE.to_owned());
        }
    }
    if env::var_os("DRANET_RECORDED_WRITE").is_some() {
        let mut all = recorded;
        all.retain(|case, _| !is_all(case));
        let got_cases: BTreeSet<_> = got.keys().cloned().collect();
        all.extend(got);
        fs::write(path(record), written(&all)).unwrap();
        want(record, |case| !got_cases.contains(case), "");
    } else if let Ok(reason) = env::var("DRANET_RECORDED_WANTED") {
        let lines = differing.iter().map(|(case, hash)| line(record, case, hash, &reason));
        want(record, |case| !differing.contains_key(case), &lines.collect::<String>());
    } else if !differing.is_empty() {
        let lines = differing.iter().take(SHOWN);
        let lines: String = lines.map(|(case, hash)| line(record, case, hash, "REASON")).collect();
        panic!(
            "{} of {} outputs differ from those in `tests/recorded/{record}`. \
             DRANET_RECORDED_PRINT=CASE shows one; a difference that is wanted is a line of \
             `tests/recorded/wanted`:\n{lines}",
            differing.len(),
            got.len()
        );
    }
}

/// What `wanted` has for a case that is there no more.
const GONE: &str = "gone";

/// Makes the outputs, on all processors.
fn hashes<C: Display + Sync>(
    record: &str,
    cases: &[C],
    output: impl Fn(&C) -> String + Sync,
) -> Hashes {
    let keep = env::var_os("DRANET_RECORDED_KEEP").map(|folder| Path::new(&folder).join(record));
    if let Some(folder) = &keep {
        fs::create_dir_all(folder).unwrap();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Hashes::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = case.to_string();
            let text = catch_unwind(AssertUnwindSafe(|| output(case)));
            let text = text.unwrap_or_else(|_| panic!("{record} {name} panics"));
            if let Some(folder) = &keep {
                fs::write(folder.join(name.replace('/', "_")), &text).unwrap();
            }
            let former = found.insert(Case::from(&*name), hash(&text));
            assert!(former.is_none(), "two cases have the name `{name}`");
        }
        found
    };
    let threads = thread::available_parallelism().map_or(1, Into::into);
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// FNV-1a, its two halves folded: the same in every version of Rust.
fn hash(text: &str) -> String {
    let bytes = text.bytes();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}

fn path(record: &str) -> String {
    format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/recorded/{}"), record)
}

fn read(record: &str) -> Hashes {
    let mut hashes = Hashes::new();
    for line in fs::read_to_string(path(record)).unwrap_or_default().lines() {
        let (first, all) = line.rsplit_once(": ").unwrap();
        for (index, hash) in all.split(' ').enumerate() {
            let case = match Case::from(first) {
                Case::Number(first) => Case::Number(first + index),
                name @ Case::Name(_) => name,
            };
            hashes.insert(case, hash.to_owned());
        }
    }
    hashes
}

fn written(hashes: &Hashes) -> String {
    let mut text = String::new();
    for (case, hash) in hashes {
        match case {
            Case::Number(number) if !number.is_multiple_of(BLOCK) => write!(text, " {hash}"),
            _ => write!(text, "\n{case}: {hash}"),
        }
        .unwrap();
    }
    format!("{}\n", text.trim_start())
}

/// A difference that is wanted: `HASH RECORD CASE: REASON`.
fn line(record: &str, case: &Case, hash: &str, reason: &str) -> String {
    format!("{hash} {record} {case}: {reason}\n")
}

/// The case and the hash of a line of `wanted` about this record.
fn wanted_case<'l>(record: &str, line: &'l str) -> Option<(Case, &'l str)> {
    let (hash, rest) = line.split_once(' ')?;
    let case = rest.strip_prefix(record)?.strip_prefix(' ')?.split(": ").next()?;
    Some((Case::from(case), hash))
}

fn wanted(record: &str) -> Hashes {
    let text = fs::read_to_string(path("wanted")).unwrap();
    let cases = text.lines().filter_map(|line| wanted_case(record, line));
    cases.map(|(case, hash)| (case, hash.to_owned())).collect()
}

/// Keeps some lines of this record in `wanted`, and adds others.
fn want(record: &str, keep: impl Fn(&Case) -> bool, more: &str) {
    let text = fs::read_to_string(path("wanted")).unwrap();
    let kept = text.lines().filter(|line| wanted_case(record, line).is_none_or(|it| keep(&it.0)));
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    fs::write(path("wanted"), kept + more).unwrap();
}
