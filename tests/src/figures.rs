//! What the benchmark programs measure alike, and how they say it.

use std::{fs, process::ExitCode};

use anyhow::Context;

/// A size of a process in bytes (`proc_pid_status(5)`): `VmRSS`, `VmHWM`, `RssAnon`.
pub fn memory(pid: u32, field: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let size = line.with_context(|| format!("process {pid} has no `{field}`"))?;
    Ok(size.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// For a person: of what is printed, no digit is lost.
#[expect(clippy::cast_precision_loss, reason = "for a person")]
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// A line of figures.
#[expect(clippy::print_stdout, reason = "the figures")]
pub fn say(line: &str) {
    println!("{line}");
}

/// Why there are none.
#[expect(clippy::print_stderr, reason = "why there are none")]
pub fn refuse(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
