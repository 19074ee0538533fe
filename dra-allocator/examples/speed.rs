//! Measures this crate beside Kubernetes' own allocator on the same cases.
//!
//! ```text
//! cargo run --release -p dra-allocator --example speed -- --oracle PATH FILE…
//! ```
//!
//! PATH is the program built from `tests/oracle`, a FILE holds cases of the conformance format,
//! one JSON object a line. Of each case the fastest of some runs counts, on both sides with parsed
//! input and compiled expressions. The last lines are sums by the number of steps.
#![expect(clippy::print_stdout, reason = "a program for people")]
#![expect(clippy::disallowed_methods, reason = "measuring needs files and a clock")]

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use dra_allocator::Limits;
use dra_allocator::replay::Case;
use serde_json::Value;

/// Measures the allocator beside Kubernetes' own.
#[derive(Parser)]
struct Args {
    /// The program built from `tests/oracle`.
    #[arg(long)]
    oracle: PathBuf,
    /// How often each case is run.
    #[arg(long, default_value_t = 20)]
    runs: u32,
    /// Shows each case, not only the sums.
    #[arg(long)]
    each: bool,
    /// Cases, one JSON object a line.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// The times of cases with so many steps.
#[derive(Default)]
struct Stratum {
    cases: u32,
    steps: i64,
    kubernetes: Duration,
    ours: Duration,
}

impl Stratum {
    fn add(&mut self, steps: i64, kubernetes: Duration, ours: Duration) {
        self.cases += 1;
        self.steps += steps;
        self.kubernetes += kubernetes;
        self.ours += ours;
    }

    fn ratio(&self) -> f64 {
        self.kubernetes.as_secs_f64() / self.ours.as_secs_f64()
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut strata: [(&str, Stratum); 3] = [
        ("up to 100 steps", Stratum::default()),
        ("up to 1000 steps", Stratum::default()),
        ("above 1000 steps", Stratum::default()),
    ];
    for file in &args.files {
        let measured = measure(&args, file);
        let measured =
            measured.with_context(|| format!("failed to measure `{}`", file.display()))?;
        for (name, steps, kubernetes, ours) in measured {
            let index = usize::from(steps > 100) + usize::from(steps > 1000);
            strata[index].1.add(steps, kubernetes, ours);
            if args.each {
                let ratio = kubernetes.as_secs_f64() / ours.as_secs_f64();
                println!(
                    "{name}: {steps} steps, Kubernetes {kubernetes:?}, here {ours:?}, {ratio:.1}x"
                );
            }
        }
    }
    for (name, stratum) in strata.iter().filter(|(_, stratum)| stratum.cases > 0) {
        let Stratum { cases, steps, kubernetes, ours } = stratum;
        println!(
            "{name}: {cases} cases, {steps} steps, Kubernetes {:?} a case, here {:?}, {:.1}x",
            *kubernetes / *cases,
            *ours / *cases,
            stratum.ratio()
        );
    }
    Ok(())
}

type Measured = (String, i64, Duration, Duration);

fn measure(args: &Args, file: &Path) -> Result<Vec<Measured>> {
    let output = Command::new(&args.oracle)
        .arg(format!("-bench={}", args.runs))
        .stdin(File::open(file)?)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("failed to run `{}`", args.oracle.display()))?;
    ensure!(output.status.success(), "the oracle failed");
    let said = String::from_utf8(output.stdout)?;
    let cases = BufReader::new(File::open(file)?).lines();
    let mut measured = Vec::new();
    for (line, said) in cases.zip(said.lines()) {
        let case = Case::from_json(&line?)?;
        let said: Value = serde_json::from_str(said)?;
        let nanos = said["nanos"].as_u64().context("the oracle gave no time")?;
        let steps = said["numAllocateOne"].as_i64().unwrap_or_default();
        let ours = fastest(&case, args.runs)?;
        measured.push((case.label(), steps, Duration::from_nanos(nanos), ours));
    }
    Ok(measured)
}

fn fastest(case: &Case, runs: u32) -> Result<Duration> {
    let replay = case.replay()?;
    // The first run compiles.
    black_box(replay.attempt(Limits::default()));
    let runs = (0..runs).map(|_| {
        let start = Instant::now();
        black_box(replay.attempt(Limits::default()));
        start.elapsed()
    });
    runs.min().context("no runs")
}
