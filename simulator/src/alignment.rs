//! `tests/bench alignment`: compares ways to give pods GPUs and NICs on a trace of jobs.

mod progress;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use simulator::args::{AlignmentArgs, Output, SceneArgs};
use simulator::report::ways::table;
use simulator::trace::Trace;
use simulator::ways::compare_ways;

use crate::progress::Progress;

fn main() -> ExitCode {
    let error = match run(&AlignmentArgs::parse().scene) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(error) => error,
    };
    // If the error cannot be written, nothing is left to do.
    let _ = writeln!(io::stderr(), "error: {error:#}");
    ExitCode::FAILURE
}

fn run(args: &SceneArgs) -> anyhow::Result<()> {
    let [machine] = args.machine.as_slice() else {
        anyhow::bail!("give one --machine, not {}: ways are compared on one", args.machine.len());
    };
    let trace = Trace::load(&args.trace)?;
    let progress = Progress::start((args.time_limit > 0).then(|| args.time_limit * 60));
    let loads = compare_ways(args, machine, &trace, &progress);
    progress.clear();
    let mut out = io::stdout().lock();
    for ways in loads? {
        let averaged = ways.comparison.replays();
        if averaged < args.repeats {
            writeln!(
                io::stderr(),
                "time limit reached: {averaged} of {} replays of each way are averaged",
                args.repeats
            )?;
        }
        match args.output {
            Output::Table => writeln!(out, "{}", table(&ways))?,
            Output::Json => {
                serde_json::to_writer_pretty(&mut out, &ways)?;
                writeln!(out)?;
            }
        }
    }
    Ok(())
}
