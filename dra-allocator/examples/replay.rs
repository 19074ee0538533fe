//! Replays cases of the conformance format and compares with what Kubernetes answered.
//!
//! ```text
//! cargo run --release -p dra-allocator --example replay -- FILE…
//! ```
//!
//! A file is a JSON object, JSON lines, or either of them gzipped. The version's quirks come from
//! the field `kubernetes`, the gates from `features`. The last line is `cases N, results differ N,
//! steps differ N`; the exit code is 1 when any differs, and the first ten are shown.
//!
//! Where Kubernetes takes pools in random order, the answer for one of the orders must be equal.
//! A case of Kubernetes' table whose JSON is known not to say what went in is named with what is
//! missing, and does not count as differing.
#![expect(clippy::disallowed_methods, reason = "cases are files")]
#![expect(clippy::print_stdout, reason = "a program for people")]

#[path = "../tests/differential/replay.rs"]
mod replay;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use dra_allocator::Limits;
use flate2::bufread::MultiGzDecoder;
use replay::{Answer, Case};

/// The maximum number of differences shown.
const SHOWN: usize = 10;

/// Replays cases of Kubernetes' device allocator.
#[derive(Parser)]
struct Args {
    /// JSON or JSON lines, gzipped or not.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The maximum number of steps per case.
    #[arg(long, default_value_t = 100_000_000)]
    max_steps: u64,
}

#[derive(Default)]
struct Tally {
    cases: usize,
    results: usize,
    steps: usize,
    shown: usize,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut tally = Tally::default();
    for file in &args.files {
        replay(file, Limits::steps(args.max_steps), &mut tally)
            .with_context(|| format!("failed to replay `{}`", file.display()))?;
    }
    let Tally { cases, results, steps, .. } = tally;
    println!("cases {cases}, results differ {results}, steps differ {steps}");
    Ok(if results + steps == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Opens the file, decompressing gzip.
fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let mut reader = BufReader::new(File::open(path)?);
    let gzipped = reader.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(if gzipped {
        Box::new(BufReader::new(MultiGzDecoder::new(reader)))
    } else {
        Box::new(reader)
    })
}

fn replay(path: &Path, limits: Limits<'_>, tally: &mut Tally) -> Result<()> {
    let mut reader = open(path)?;
    let mut first = String::new();
    reader.read_line(&mut first)?;
    if let Ok(case) = Case::from_json(&first) {
        compare(&case, limits, tally)?;
        for (number, line) in reader.lines().enumerate() {
            let case = Case::from_json(&line?);
            compare(&case.with_context(|| format!("line {}", number + 2))?, limits, tally)?;
        }
        return Ok(());
    }
    // A single object that spans several lines.
    reader.read_to_string(&mut first)?;
    compare(&Case::from_json(&first)?, limits, tally)
}

fn compare(case: &Case, limits: Limits<'_>, tally: &mut Tally) -> Result<()> {
    let (ours, same) = case.check(limits).with_context(|| case.label())?;
    tally.cases += 1;
    if same {
        return Ok(());
    }
    if let Some(what) = case.unfaithful() {
        println!("{}: not compared, the file does not hold {what}", case.label());
        return Ok(());
    }
    let expected = case.expected();
    let (results, steps) = (!ours.same_results(&expected), !ours.same_steps(&expected));
    tally.results += usize::from(results);
    tally.steps += usize::from(steps);
    if tally.shown < SHOWN {
        tally.shown += 1;
        println!(
            "{}\n  Kubernetes  {}\n  this crate  {}",
            case.label(),
            text(&expected),
            text(&ours)
        );
    }
    Ok(())
}

fn text(answer: &Answer) -> String {
    let results = answer.results.as_ref().map(|results| serde_json::json!(results).to_string());
    let results = results.unwrap_or_else(|| "no allocation".to_owned());
    let error = if answer.error.is_empty() { "no error" } else { &answer.error };
    format!("{} steps, {error}, {results}", answer.steps)
}
