//! Measurements and output that the benchmark programs share.

use std::{fs, process::ExitCode, time::Duration};

use anyhow::Context;

/// A memory size of a process in bytes (`proc_pid_status(5)`): `VmRSS`, `VmHWM`, `RssAnon`.
pub fn memory(pid: u32, field: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let size = line.with_context(|| format!("process {pid} has no `{field}`"))?;
    Ok(size.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// The CPU time of all threads of a process that live, in nanoseconds
/// (`Documentation/scheduler/sched-stats.rst`).
pub fn cpu_time(pid: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // It may end meanwhile.
        let text = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        sum += text.split(' ').next().and_then(|it| it.parse::<u64>().ok()).unwrap_or_default();
    }
    anyhow::ensure!(sum > 0, "the kernel does not count the CPU time of process {pid}");
    Ok(sum)
}

/// Converts bytes for printing; no printed digit is lost.
#[expect(clippy::cast_precision_loss, reason = "for a person")]
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// The time that this many percent of all times do not exceed; zero of none. Sorts them.
pub fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100);
    times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Prints the memory of a process.
///
/// # Errors
///
/// Fails if it ever had more than `limit` bytes.
pub fn judge_memory(what: &str, pid: u32, limit: u64) -> anyhow::Result<()> {
    let [now, peak] = [memory(pid, "VmRSS")?, memory(pid, "VmHWM")?];
    let [in_mb, peak_mb, limit_mb] = [now, peak, limit].map(megabytes);
    say(&format!("{what}: {in_mb:.1} MB resident, {peak_mb:.1} MB at most"));
    anyhow::ensure!(
        peak <= limit,
        "{what} had {peak_mb:.1} MB of memory; the limit is {limit_mb:.0} MB"
    );
    Ok(())
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
