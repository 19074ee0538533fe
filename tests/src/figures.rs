//! Measurements and output that the benchmark programs share.

use std::{collections::BTreeMap, fs, process::ExitCode, time::Duration};

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

/// A program that this process has started.
#[derive(Clone, Debug)]
pub struct Child {
    /// The process.
    pub pid: u32,
    /// The name of the program.
    pub name: String,
    /// The CPU time of all of its threads, ended ones too, in steps of 10 ms.
    pub cpu: Duration,
}

/// The programs that this process has started and that run.
pub fn children() -> Vec<Child> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(Child::read).collect()
}

impl Child {
    /// `None` if the process is not a child of this one, or has ended.
    fn read(pid: u32) -> Option<Self> {
        /// `USER_HZ`, the unit of times in `/proc`.
        const TICKS_A_SECOND: u64 = 100;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name in parentheses: the state, the parent and so on (`proc_pid_stat(5)`).
        let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
        if fields.get(1)?.parse() != Ok(std::process::id()) {
            return None;
        }
        let [user, system] = [11, 12].map(|index| fields.get(index)?.parse::<u64>().ok());
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = program.file_name()?.to_str()?.to_owned();
        let cpu = Duration::from_millis((user? + system?) * 1_000 / TICKS_A_SECOND);
        Some(Self { pid, name, cpu })
    }
}

/// The CPU time so far of all programs that run, by name.
pub fn cpu_times() -> BTreeMap<String, Duration> {
    let mut times: BTreeMap<String, Duration> = BTreeMap::new();
    for child in children() {
        *times.entry(child.name).or_default() += child.cpu;
    }
    times
}

/// Prints the CPU time that each program took for each of `count` pods since `before`.
#[expect(clippy::cast_precision_loss, reason = "for a person")]
pub fn say_cpu(before: &BTreeMap<String, Duration>, count: usize) {
    let each = cpu_times().into_iter().map(|(program, time)| {
        let time = time.saturating_sub(before.get(&program).copied().unwrap_or_default());
        format!("{program} {:.1}", time.as_secs_f64() * 1_000.0 / count.max(1) as f64)
    });
    say(&format!("  CPU ms a pod: {}", each.collect::<Vec<_>>().join(", ")));
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
