//! Applies plans to interfaces: checks them in a pod's network namespace, and on the host
//! after their return. Uses the real kernel, without a kubelet and a runtime; `ip` and `tc`
//! show the result.
//!
//! Every test creates its own namespaces. They belong to a user namespace of this
//! program, so no root is needed if the machine lets users create such namespaces.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "late/dice.rs"]
mod dice;
#[path = "attach/disk.rs"]
mod disk;
#[path = "attach/identity.rs"]
mod identity;
#[path = "attach/networks.rs"]
mod networks;
#[path = "attach/node.rs"]
mod node;
#[path = "attach/settings.rs"]
mod settings;
#[path = "attach/shares.rs"]
mod shares;
#[path = "attach/stage.rs"]
mod stage;
#[path = "attach/thousands.rs"]
mod thousands;
#[path = "attach/traffic.rs"]
mod traffic;
#[path = "attach/twin.rs"]
mod twin;

use libtest_mimic::{Arguments, Trial};
use nix::sched::{CloneFlags, unshare};
use rustix::process::{getegid, geteuid};
use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = enter() {
        return refuse(&format!("failed to create a network namespace (needs root): {error}"));
    }
    let all = [
        disk::tests(),
        identity::tests(),
        networks::tests(),
        settings::tests(),
        shares::tests(),
        traffic::tests(),
    ];
    let args = Arguments::from_args();
    let together = libtest_mimic::run(&args, trials(all.into_iter().flatten()));
    // They keep the kernel busy, and one measures the memory of the whole process.
    let arguments = Arguments { test_threads: Some(1), ..args };
    let alone =
        libtest_mimic::run(&arguments, trials(thousands::tests().into_iter().chain(twin::tests())));
    if together.has_failed() { together.exit_code() } else { alone.exit_code() }
}

fn trials(tests: impl IntoIterator<Item = (&'static str, fn())>) -> Vec<Trial> {
    let trial = |(name, body): (&'static str, fn())| {
        Trial::test(name, move || {
            body();
            Ok(())
        })
    };
    tests.into_iter().map(trial).collect()
}

/// Enters new namespaces before any thread exists. The user is root in them, and processes
/// that a test starts have the same privileges.
fn enter() -> std::io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    if unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).is_err() {
        return Ok(unshare(CloneFlags::CLONE_NEWNET)?);
    }
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

#[expect(clippy::print_stderr, reason = "a test program")]
fn refuse(text: &str) -> ExitCode {
    eprintln!("error: {text}");
    ExitCode::FAILURE
}
