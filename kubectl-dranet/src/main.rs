//! `kubectl-dranet`: the kubectl plugin.

use clap::Parser as _;
use kubectl_dranet::colour;
use process::printable::printable;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    process::exit::end(print(&kubectl_dranet::args::Args::parse()))
}

fn print(args: &kubectl_dranet::args::Args) -> anyhow::Result<ExitCode> {
    let output = kubectl_dranet::run(args)?;
    let is_read = std::io::stderr().is_terminal();
    for note in &output.notes {
        let note = format!("note: {}", printable(note));
        let note = if is_read { kubectl_dranet::fitted(&note) } else { note };
        let _ = writeln!(std::io::stderr(), "{note}");
    }
    let is_painted = args.command.is_for_people() && colour::is_wanted();
    let text = printable(&output.text);
    let text = if is_painted { colour::paint(&text) } else { text.into_owned() };
    // A closed pipe (`| head`) is not an error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(output.exit_code())
}
