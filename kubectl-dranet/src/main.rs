//! `kubectl-dranet`: the kubectl plugin.

use clap::Parser as _;
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = kubectl_dranet::args::Args::parse();
    serve::process::run(async {
        let output = kubectl_dranet::run(args).await?;
        for note in &output.notes {
            let _ = writeln!(std::io::stderr(), "note: {note}");
        }
        // A closed pipe (`| head`) is no error of ours.
        let _ = std::io::stdout().write_all(output.text.as_bytes());
        Ok(output.exit_code())
    })
}
