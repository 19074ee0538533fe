//! Programs whose clock is wrong, by libfaketime.

use std::path::Path;

use crate::process::Program;

/// Where the Debian package `libfaketime` has it.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// The program with a clock that is ahead by so many seconds. Only the time of day is wrong: what measures how long
/// something takes is right, as where NTP fails.
///
/// # Errors
///
/// Fails if libfaketime is not installed.
pub(super) fn ahead_by(program: Program, seconds: i64) -> anyhow::Result<Program> {
    anyhow::ensure!(Path::new(LIBRARY).is_file(), "`{LIBRARY}` is missing: install libfaketime");
    Ok(program
        .env("LD_PRELOAD", LIBRARY)
        .env("FAKETIME", &format!("{seconds:+}"))
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("NO_FAKE_STAT", "1"))
}
