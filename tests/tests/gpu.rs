//! The suite `gpu`: one node on this machine's own hardware, with the vendor's driver of its GPUs and
//! its own kernel. A pod that asks by annotation computes on the GPU and has the NIC beside it.
//!
//! The whole binary runs in separate namespaces, as root. `DRANET_GPU_NIC` names the interface that
//! pods may get; it is in the suite's network namespace until the end.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

mod gpu {
    pub(crate) mod found;
    pub(crate) mod pod;
    pub(crate) mod record;
}

use std::{env, path::Path, process::ExitCode};

use tests::{Options, node::isolated_with, setting, suite};

/// The file that NVIDIA's kernel driver creates.
const CONTROL: &str = "/dev/nvidiactl";
const NIC: &str = "DRANET_GPU_NIC";

fn main() -> ExitCode {
    let listed = env::args().any(|argument| argument == "--list");
    if !listed && !Path::new(CONTROL).exists() {
        suite::report(&format!(
            "skipped: there is no `{CONTROL}`, so no NVIDIA GPU with its driver"
        ));
        return ExitCode::SUCCESS;
    }
    let nic = interface();
    if nic.is_empty() {
        suite::report(&format!("error: set {NIC} to the interface of a NIC that pods may get"));
        return ExitCode::FAILURE;
    }
    isolated_with(Some(&nic), || suite::run(&Options::default(), gpu::pod::tests()))
}

/// The interface that pods may get; empty if none is named.
pub(crate) fn interface() -> String {
    setting(NIC, String::new()).unwrap_or_default()
}
