//! Compares Kubernetes' own allocator with ours on random clusters.
//!
//! `DRANET_ORACLE` names the program built from `tests/oracle`, `DRANET_ORACLE_1_36` the one built
//! there with the module file of 1.36, `DRANET_CASES` the number of cases per seed (millions take
//! hours), `DRANET_SEED` a single seed to repeat. The shortest case that differs is added to
//! `tests/vectors/found.jsonl`, with Kubernetes' answer.
#![expect(clippy::disallowed_methods, reason = "the environment names the oracle")]
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(clippy::print_stdout, reason = "the seeds must be seen")]

#[path = "differential/generate.rs"]
mod generate;
#[path = "differential/random.rs"]
mod random;
#[path = "differential/replay.rs"]
mod replay;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, process};

use dra_allocator::{Limits, Outcome};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::generate::{Channel, Version};
use crate::random::Random;
use crate::replay::{Answer, Case};

/// Cases that need more steps are skipped and counted: Go takes minutes for one, and twenty times
/// that if its order is random.
const MAX_STEPS: u64 = 500_000;

/// The oracle's answer, and other answers if its order is random.
#[derive(Deserialize)]
struct Said {
    #[serde(flatten)]
    answer: Answer,
    #[serde(default)]
    others: Vec<Answer>,
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Fixed seeds, so that a run that fails can be repeated and a run that passes passes again.
fn seeds() -> Vec<u64> {
    number("DRANET_SEED").map_or_else(|| vec![1, 2, 3], |seed| vec![seed])
}

/// The path of the oracle for a version.
fn oracle(version: Version) -> String {
    match version {
        Version::V1_37 => {
            env::var("DRANET_ORACLE").expect("DRANET_ORACLE names the built tests/oracle")
        }
        Version::V1_36 => env::var("DRANET_ORACLE_1_36")
            .expect("DRANET_ORACLE_1_36 names tests/oracle built with go-1.36.mod"),
    }
}

fn ask<'c>(version: Version, cases: impl IntoIterator<Item = &'c Value>, repeat: u32) -> Vec<Said> {
    // Tests run in parallel.
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let oracle = oracle(version);
    let number = ASKED.fetch_add(1, Ordering::Relaxed);
    let name = format!("dra-cases-{}-{number}.jsonl", process::id());
    let path: PathBuf = env::temp_dir().join(name);
    let lines = cases.into_iter().fold(String::new(), |all, case| all + &case.to_string() + "\n");
    fs::write(&path, lines).unwrap();
    let output = Command::new(&oracle)
        .arg(format!("-repeat={repeat}"))
        .stdin(File::open(&path).unwrap())
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("failed to run the oracle `{oracle}`: {error}"));
    fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "the oracle failed");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Checks that both answers are the same, in results and steps. In the stable variant, ours must be
/// one of the answers that Kubernetes gave.
fn check(version: Version, channel: Channel, repeat: u32) {
    let count = number("DRANET_CASES").unwrap_or(1000).max(1);
    for seed in seeds() {
        let what = format!("{} of {}", channel.name(), version.name());
        println!("{what}: seed {seed}, {count} cases");
        let mut random = Random::new(seed);
        let mut tally = Tally::default();
        while tally.cases < count {
            let batch = BATCH.min(count - tally.cases);
            let cases = (0..batch).map(|_| generate::case(&mut random, channel, version));
            let cases: Vec<_> = cases.collect();
            tally.cases += batch;
            let cases = answered(cases, &mut tally);
            let said = ask(version, cases.iter().map(|(case, _)| case), repeat);
            assert_eq!(said.len(), cases.len());
            compare(&cases, &said, &mut tally);
        }
        tally.conclude(&what);
    }
}

/// The number of cases generated and sent at once.
const BATCH: u64 = 1000;

/// Counts of the cases so far.
#[derive(Default)]
struct Tally {
    cases: u64,
    allocated: u64,
    failed: u64,
    /// Cases that need too many steps.
    left_out: u64,
    steps: i64,
    /// The cases that differ: as a vector, and our answer.
    differences: Vec<(String, String)>,
}

impl Tally {
    fn conclude(self, what: &str) {
        let Self { cases, allocated, failed, left_out, steps, differences } = self;
        println!(
            "{what}: {cases} cases, {allocated} allocated, {failed} failed, {steps} steps, \
             {left_out} left out that need more than {MAX_STEPS} steps"
        );
        // The cases must be neither all easy nor all impossible; otherwise the comparison is
        // worthless.
        let enough = cases / 10;
        assert!(left_out <= cases / 1000, "too many cases are left out");
        assert!(allocated >= enough && failed <= 9 * enough, "the cases are too much alike");
        let Some((vector, ours)) = differences.iter().min_by_key(|(vector, _)| vector.len()) else {
            return;
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/found.jsonl");
        let mut found = OpenOptions::new().append(true).open(path).unwrap();
        writeln!(found, "{vector}").unwrap();
        panic!(
            "{} of {cases} cases differ, the shortest:\n{vector}\nwe  {ours}",
            differences.len()
        );
    }
}

/// The cases with our answers, without those that need too many steps.
fn answered(cases: Vec<Value>, tally: &mut Tally) -> Vec<(Value, Answer)> {
    let mut answered = Vec::new();
    for case in cases {
        let replay = Case::from_json(&case.to_string()).unwrap().replay().unwrap();
        let attempt = replay.attempt(Limits::steps(MAX_STEPS));
        if matches!(attempt.outcome, Outcome::OverBudget) {
            tally.left_out += 1;
        } else {
            let ours = replay.run(Limits::steps(MAX_STEPS));
            answered.push((case, ours));
        }
    }
    answered
}

fn compare(cases: &[(Value, Answer)], said: &[Said], tally: &mut Tally) {
    for ((case, ours), said) in cases.iter().zip(said) {
        tally.allocated += u64::from(said.answer.results.is_some());
        tally.failed += u64::from(!said.answer.error.is_empty());
        tally.steps += said.answer.steps;
        let mut answers = said.others.iter().chain([&said.answer]);
        if !answers.any(|answer| ours.same_results(answer) && ours.same_steps(answer)) {
            tally.differences.push((vector(case, &said.answer), format!("{ours:?}")));
        }
    }
}

/// The case with Kubernetes' answer, as a line of the conformance format.
fn vector(case: &Value, answer: &Answer) -> String {
    let mut vector = case.clone();
    vector["name"] = json!("found by the differential test");
    vector["results"] = json!(answer.results);
    vector["error"] = json!(answer.error);
    vector["numAllocateOne"] = json!(answer.steps);
    vector.to_string()
}

#[test]
fn incubating() {
    check(Version::V1_37, Channel::Incubating, 1);
}

#[test]
fn experimental() {
    check(Version::V1_37, Channel::Experimental, 1);
}

#[test]
fn stable() {
    check(Version::V1_37, Channel::Stable, ORDERS);
}

#[test]
fn incubating_1_36() {
    check(Version::V1_36, Channel::Incubating, 1);
}

#[test]
fn experimental_1_36() {
    check(Version::V1_36, Channel::Experimental, 1);
}

#[test]
fn stable_1_36() {
    check(Version::V1_36, Channel::Stable, ORDERS);
}

/// The number of times that the stable variant is run. Go iterates over a map of up to eight pools
/// from a random position, so three pools come in the order of the case six times out of eight.
const ORDERS: u32 = 20;

/// The cases of a file of vectors that the oracle of this version can run.
fn vectors(file: &str, version: Version, channel: Channel) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(file);
    let text = fs::read_to_string(path).unwrap();
    let cases = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_asked =
        |case: &Value| case["kubernetes"] == version.name() && case["channel"] == channel.name();
    cases.filter(is_asked).collect()
}

/// For cases of Kubernetes' table whose file does not represent the input, Kubernetes gives our
/// answer when it gets the input in the file.
#[test]
fn unfaithful_files() {
    for channel in [Channel::Incubating, Channel::Experimental] {
        let file = format!("kubernetes-1.37.1-{}.jsonl", channel.name());
        let mut cases = vectors(&file, Version::V1_37, channel);
        cases.retain(|case| Case::from_json(&case.to_string()).unwrap().unfaithful().is_some());
        assert!(!cases.is_empty());
        let (said, mut tally) = (ask(Version::V1_37, &cases, 1), Tally::default());
        let count = cases.len();
        let cases = answered(cases, &mut tally);
        assert_eq!(cases.len(), count, "a vector needs too many steps");
        compare(&cases, &said, &mut tally);
        assert_eq!(tally.differences, []);
    }
}

/// Kubernetes gives the recorded answers to the differences found in the past.
#[test]
fn kubernetes_confirms_the_recorded_answers() {
    let mut asked = 0;
    for version in [Version::V1_36, Version::V1_37] {
        for channel in [Channel::Incubating, Channel::Experimental] {
            let cases = vectors("found.jsonl", version, channel);
            let said = ask(version, &cases, 1);
            assert_eq!(said.len(), cases.len());
            for (case, said) in cases.iter().zip(&said) {
                let case = Case::from_json(&case.to_string()).unwrap();
                let expected = case.expected();
                let same = said.answer.same_results(&expected) && said.answer.same_steps(&expected);
                assert!(same, "{}", case.label());
                asked += 1;
            }
        }
    }
    assert!(asked > 0, "found.jsonl holds no case");
}
