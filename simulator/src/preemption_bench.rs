//! `tests/bench preemption`: compares who decides on preemption on a trace of jobs.

mod progress;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use simulator::args::{Output, PreemptionArgs};
use simulator::priorities::compare_priorities;
use simulator::report::priorities::table;
use simulator::trace::Trace;

use crate::progress::Progress;

fn main() -> ExitCode {
    let error = match run(&PreemptionArgs::parse()) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(error) => error,
    };
    // If the error cannot be written, nothing is left to do.
    let _ = writeln!(io::stderr(), "error: {error:#}");
    ExitCode::FAILURE
}

fn run(args: &PreemptionArgs) -> anyhow::Result<()> {
    let limit = args.scene.time_limit;
    let trace = Trace::load(&args.scene.trace)?;
    let progress = Progress::start((limit > 0).then(|| limit * 60));
    let compared = compare_priorities(args, &trace, &progress);
    progress.clear();
    let mut out = io::stdout().lock();
    for priorities in compared? {
        match args.scene.output {
            Output::Table => writeln!(out, "{}", table(&priorities))?,
            Output::Json => {
                serde_json::to_writer_pretty(&mut out, &priorities)?;
                writeln!(out)?;
            }
        }
    }
    Ok(())
}
