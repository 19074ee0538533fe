//! `tests/bench worth`: compares scheduling policies on a trace of jobs.

mod progress;

use std::fs;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser as _;
use simulator::args::{Args, Output};
use simulator::compare::{Scene, claims, compare, machines};
use simulator::measures::Comparison;
use simulator::plot;
use simulator::report::{losses, table};
use simulator::trace::Trace;

use crate::progress::Progress;

fn main() -> ExitCode {
    let error = match run(&Args::parse()) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(error) => error,
    };
    // If the error cannot be written, nothing is left to do.
    let _ = writeln!(io::stderr(), "error: {error:#}");
    ExitCode::FAILURE
}

fn run(args: &Args) -> anyhow::Result<()> {
    let Args { scene: args, alignment, plot } = args;
    let trace = Trace::load(&args.trace)?;
    let claims = Arc::new(claims(machines(&args.machine)?, &trace, *alignment)?);
    let loads = args.loads();
    if args.output == Output::Json && loads.len() > 1 {
        anyhow::bail!("`-o json` prints one comparison; give one --load, not {}", loads.len());
    }
    let scenes = loads.iter().map(|load| Scene::new(args, &trace, &claims, *load));
    let scenes: Vec<Scene> = scenes.collect::<Result<_, _>>()?;
    let progress = Progress::start((args.time_limit > 0).then(|| args.time_limit * 60));
    let comparisons = compare(&scenes, args.seed, &progress);
    progress.clear();
    let comparisons = comparisons?;
    let averaged = comparisons.first().map_or(0, Comparison::replays);
    if averaged < args.repeats {
        writeln!(
            io::stderr(),
            "time limit reached: {averaged} of {} replays of each policy are averaged",
            args.repeats
        )?;
    }
    let mut out = io::stdout().lock();
    if args.output == Output::Json {
        for (scene, comparison) in scenes.iter().zip(&comparisons) {
            serde_json::to_writer_pretty(&mut out, comparison)?;
            writeln!(out)?;
            let left_out = scene.too_large();
            if left_out > 0 {
                writeln!(io::stderr(), "{left_out} jobs left out that no fabric can hold")?;
            }
        }
    } else {
        for (scene, comparison) in scenes.iter().zip(&comparisons) {
            writeln!(out, "{}", table(scene, comparison))?;
            for sentence in losses(comparison).sentences() {
                writeln!(out, "{sentence}\n")?;
            }
        }
    }
    if let Some(path) = plot {
        let name = args.trace.file_name().unwrap_or_default().to_string_lossy();
        let chart =
            plot::svg(&format!("{name} on {}", args.machine.join(", ")), &scenes, &comparisons)?;
        fs::write(path, chart).with_context(|| format!("failed to write `{}`", path.display()))?;
    }
    Ok(())
}
