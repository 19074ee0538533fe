//! Random clusters, answered by Kubernetes' own allocator and by ours.
//!
//! `DRANET_ORACLE` names the program built from `tests/oracle`, `DRANET_CASES` the number of
//! cases for each seed, `DRANET_SEED` a single seed to repeat. A case that differs is printed as
//! a line of the conformance format, to be added to `tests/vectors`.
#![expect(clippy::disallowed_methods, reason = "the test is told by its environment")]
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(clippy::print_stdout, reason = "the seeds must be seen")]

#[path = "differential/generate.rs"]
mod generate;
#[path = "differential/random.rs"]
mod random;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, process};

use dra_allocator::Limits;
use dra_allocator::replay::{Answer, Case};
use serde::Deserialize;
use serde_json::Value;

use crate::generate::Channel;
use crate::random::Random;

/// More than any case that is drawn can need.
const MAX_STEPS: u64 = 50_000_000;

/// What the oracle says: an answer, and others where the order is random.
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

/// Two seeds that never change, and a new one.
fn seeds() -> Vec<u64> {
    let new = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let new = u64::try_from(new % 1_000_000_007).unwrap();
    number("DRANET_SEED").map_or_else(|| vec![1, 2, new], |seed| vec![seed])
}

fn ask(oracle: &str, cases: &[Value], channel: Channel, repeat: u32) -> Vec<Said> {
    let path: PathBuf =
        env::temp_dir().join(format!("dra-cases-{}-{channel:?}.jsonl", process::id()));
    let lines = cases.iter().fold(String::new(), |all, case| all + &case.to_string() + "\n");
    fs::write(&path, lines).unwrap();
    let output = Command::new(oracle)
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

/// The answers of both must be the same, in results and steps; in the stable variant ours must
/// be one that Kubernetes gave.
fn check(channel: Channel, repeat: u32) {
    let oracle = env::var("DRANET_ORACLE").expect("DRANET_ORACLE names the built tests/oracle");
    let count = number("DRANET_CASES").unwrap_or(1000);
    for seed in seeds() {
        println!("{channel:?}: seed {seed}, {count} cases");
        let mut random = Random::new(seed);
        let cases: Vec<_> = (0..count).map(|_| generate::case(&mut random, channel)).collect();
        let said = ask(&oracle, &cases, channel, repeat);
        assert_eq!(said.len(), cases.len());
        compare(&cases, &said, channel);
    }
}

fn compare(cases: &[Value], said: &[Said], channel: Channel) {
    let (mut allocated, mut failed, mut steps) = (0, 0, 0);
    let mut differences = Vec::new();
    for (case, said) in cases.iter().zip(said) {
        let ours = Case::from_json(&case.to_string()).unwrap().replay().unwrap();
        let ours = ours.run(Limits::steps(MAX_STEPS));
        allocated += u32::from(said.answer.results.is_some());
        failed += u32::from(!said.answer.error.is_empty());
        steps += said.answer.steps;
        let mut answers = said.others.iter().chain([&said.answer]);
        if !answers.any(|answer| ours.same_results(answer) && ours.same_steps(answer)) {
            let mut text = String::new();
            writeln!(text, "{case}\n  Kubernetes {:?}\n  we         {ours:?}", said.answer)
                .unwrap();
            differences.push(text);
        }
    }
    let count = cases.len();
    println!("{channel:?}: {count} cases, {allocated} allocated, {failed} failed, {steps} steps");
    // The cases must be neither all easy nor all impossible, or nothing is compared.
    let enough = u32::try_from(count / 10).unwrap();
    assert!(allocated >= enough && failed < 9 * enough, "the cases are too much alike");
    if let Some(first) = differences.iter().min_by_key(|text| text.len()) {
        panic!("{} of {count} cases differ, the shortest:\n{first}", differences.len());
    }
}

#[test]
fn incubating() {
    check(Channel::Incubating, 1);
}

#[test]
fn experimental() {
    check(Channel::Experimental, 1);
}

#[test]
fn stable() {
    check(Channel::Stable, 40);
}
