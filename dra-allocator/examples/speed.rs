//! Measures this crate beside Kubernetes' own allocator on the same cases.
//!
//! ```text
//! cargo run --release -p dra-allocator --example speed -- --oracle PATH
//! ```
//!
//! PATH is the program built from `tests/oracle`; `tests/bench` builds it. The cases are
//! Kubernetes' test table, heavy shapes (pairs of GPUs and NICs), and random clusters. The
//! fastest of several runs counts for each case. Both sides get parsed input and compiled
//! expressions.
#![expect(clippy::print_stdout, reason = "a program for people")]
#![expect(clippy::disallowed_methods, reason = "measuring needs files and a clock")]

#[expect(dead_code, reason = "the tests draw cases of older versions too")]
#[path = "../tests/differential/generate.rs"]
mod generate;
#[path = "../tests/differential/random.rs"]
mod random;
#[path = "../tests/differential/replay.rs"]
mod replay;

use std::fs::{self, File};
use std::hint::black_box;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, process};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use dra_allocator::Limits;
use generate::Channel;
use random::Random;
use replay::Case;
use serde_json::Value;

/// Compares this crate's speed with Kubernetes' own allocator.
#[derive(Parser)]
struct Args {
    /// The program built from `tests/oracle`.
    #[arg(long)]
    oracle: PathBuf,
    /// The number of runs per case.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// The number of random clusters per variant.
    #[arg(long, default_value_t = 1000)]
    random: usize,
    /// Shows each case instead of only the sums.
    #[arg(long)]
    each: bool,
    /// Files with other cases, one JSON object per line.
    files: Vec<PathBuf>,
}

/// The times of cases in a range of steps.
#[derive(Default)]
struct Stratum {
    cases: u32,
    steps: i64,
    kubernetes: Duration,
    ours: Duration,
}

/// The ranges of steps.
const STRATA: [(&str, RangeInclusive<i64>); 3] = [
    ("up to 100 steps", -1..=100),
    ("101 to 1000 steps", 101..=1000),
    ("above 1000 steps", 1001..=i64::MAX),
];

fn main() -> Result<()> {
    let args = Args::parse();
    for (name, lines) in groups(&args)? {
        let measured = measure(&args, &lines).with_context(|| format!("failed on {name}"))?;
        println!("{name}");
        for (stratum, steps) in STRATA {
            let mut sum = Stratum::default();
            let cases = measured.iter().filter(|case| steps.contains(&case.steps));
            cases.for_each(|case| sum.add(case));
            if sum.cases > 0 {
                println!("  {stratum}: {}", sum.text());
            }
        }
        if args.each {
            for case in &measured {
                println!("    {}", case.text());
            }
        }
    }
    Ok(())
}

/// The named lists of cases.
fn groups(args: &Args) -> Result<Vec<(String, Vec<String>)>> {
    let read = |path: &Path| -> Result<Vec<String>> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("failed to read `{}`", path.display()))?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    if !args.files.is_empty() {
        let named = |path: &PathBuf| Ok((path.display().to_string(), read(path)?));
        return args.files.iter().map(named).collect();
    }
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut table = read(&vectors.join("kubernetes-1.37.1-incubating.jsonl"))?;
    table.extend(read(&vectors.join("kubernetes-1.37.1-experimental.jsonl"))?);
    let heavy = read(&vectors.join("heavy-shapes-1.37.1.jsonl"))?;
    let mut random = Random::new(1);
    let channels = [Channel::Incubating, Channel::Experimental];
    let drawn = channels.into_iter().flat_map(|channel| vec![channel; args.random]);
    let drawn = drawn
        .map(|channel| generate::case(&mut random, channel, generate::Version::V1_37).to_string());
    Ok(vec![
        ("Kubernetes' test table".to_owned(), table),
        ("random clusters".to_owned(), drawn.collect()),
        ("heavy shapes".to_owned(), heavy),
    ])
}

struct Measured {
    label: String,
    steps: i64,
    kubernetes: Duration,
    ours: Duration,
}

impl Measured {
    fn text(&self) -> String {
        let Self { label, steps, kubernetes, ours } = self;
        let ratio = kubernetes.as_secs_f64() / ours.as_secs_f64();
        format!("{label}: {steps} steps, Kubernetes {kubernetes:?}, here {ours:?}, {ratio:.1}x")
    }
}

impl Stratum {
    fn add(&mut self, case: &Measured) {
        self.cases += 1;
        self.steps += case.steps;
        self.kubernetes += case.kubernetes;
        self.ours += case.ours;
    }

    fn text(&self) -> String {
        let Self { cases, steps, kubernetes, ours } = self;
        let ratio = kubernetes.as_secs_f64() / ours.as_secs_f64();
        let (kubernetes, ours) = (*kubernetes / *cases, *ours / *cases);
        format!(
            "{cases} cases, {steps} steps, Kubernetes {kubernetes:?} a case, here {ours:?}, {ratio:.1}x"
        )
    }
}

fn measure(args: &Args, lines: &[String]) -> Result<Vec<Measured>> {
    let said = ask(args, lines)?;
    ensure!(said.len() == lines.len(), "the oracle answered {} cases", said.len());
    let cases = lines.iter().zip(said);
    let measured = cases.map(|(line, said)| {
        let case = Case::from_json(line)?;
        let nanos = said["nanos"].as_u64().context("the oracle gave no time")?;
        Ok(Measured {
            label: case.label(),
            steps: said["numAllocateOne"].as_i64().unwrap_or_default(),
            kubernetes: Duration::from_nanos(nanos),
            ours: fastest(&case, args.runs)?,
        })
    });
    measured.collect()
}

/// The oracle's answers, one per case.
fn ask(args: &Args, lines: &[String]) -> Result<Vec<Value>> {
    let path = env::temp_dir().join(format!("dra-speed-{}.jsonl", process::id()));
    fs::write(&path, lines.join("\n"))?;
    let output = Command::new(&args.oracle)
        .arg(format!("-bench={}", args.runs))
        .stdin(File::open(&path)?)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("failed to run `{}`", args.oracle.display()));
    fs::remove_file(&path)?;
    let output = output?;
    ensure!(output.status.success(), "the oracle failed");
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn fastest(case: &Case, runs: u32) -> Result<Duration> {
    let replay = case.replay()?;
    // The first run compiles the expressions.
    black_box(replay.attempt(Limits::default()));
    let runs = (0..runs).map(|_| {
        let start = Instant::now();
        black_box(replay.attempt(Limits::default()));
        start.elapsed()
    });
    runs.min().context("no runs")
}
