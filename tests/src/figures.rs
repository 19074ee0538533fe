//! Measurements and output that the benchmark programs share.

use std::{fs, process::ExitCode};

use anyhow::Context;

/// A memory size of a process in bytes (`proc_pid_status(5)`): `VmRSS`, `VmHWM`, `RssAnon`.
pub fn memory(pid: u32, field: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let size = line.with_context(|| format!("process {pid} has no `{field}`"))?;
    Ok(size.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// Converts bytes for printing; no printed digit is lost.
#[expect(clippy::cast_precision_loss, reason = "for a person")]
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Prints a line of figures.
#[expect(clippy::print_stdout, reason = "the figures")]
pub fn say(line: &str) {
    println!("{line}");
}

/// Prints why there are no figures.
#[expect(clippy::print_stderr, reason = "why there are none")]
pub fn refuse(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
