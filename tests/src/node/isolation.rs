//! Namespaces around a whole test binary: for processes (everything that it starts ends with it,
//! including container shims), mounts and networks.

use std::{
    env, fs,
    process::{Command, ExitCode},
};

use anyhow::Context;
use rustix::process::geteuid;

use super::borrowed::Borrowed;

/// Set in the process inside the namespaces.
const INSIDE: &str = "DRANET_TEST_ISOLATED";

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Runs `main` in its own namespaces, by starting this binary again under util-linux's `unshare`.
pub fn isolated(main: impl FnOnce() -> ExitCode) -> ExitCode {
    isolated_with(None, main)
}

/// The same, with this interface of the machine in the network namespace.
pub fn isolated_with(interface: Option<&str>, main: impl FnOnce() -> ExitCode) -> ExitCode {
    if env::var_os(INSIDE).is_some() {
        return prepare().map_or_else(|error| refuse(&error), |()| main());
    }
    match again(interface) {
        Ok(code) => code,
        Err(error) => refuse(&error),
    }
}

fn again(interface: Option<&str>) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        geteuid().is_root(),
        "this suite needs root: it starts a kubelet and a container runtime"
    );
    let _borrowed = interface.map(Borrowed::take).transpose()?;
    let mut unshare = if interface.is_some() {
        let mut command = Borrowed::command();
        command.arg("unshare");
        command
    } else {
        let mut command = Command::new("unshare");
        command.arg("--net");
        command
    };
    let status = unshare
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .arg(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(INSIDE, "1")
        .status()
        .context("failed to start `unshare` (Debian: util-linux)")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Prepares the namespaces. The control plane listens on the loopback interface, a kubelet needs an
/// interface with the default route, and named network namespaces stay private.
fn prepare() -> anyhow::Result<()> {
    // `ip netns exec` mounts a `/sys` for the namespace's interfaces, without control groups.
    if fs::read_dir(CGROUPS)?.next().is_none() {
        super::links::shell(&format!("mount -t cgroup2 cgroup2 {CGROUPS}"))?;
    }
    // Without duplicate detection, link-local addresses are final at once and states can be
    // compared.
    fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0")?;
    for command in [
        "ip link set lo up",
        "mount -t tmpfs tmpfs /run",
        // The kubelet has this path whatever its root directory is.
        "mkdir -p /var/lib/kubelet/device-plugins",
        "mount -t tmpfs tmpfs /var/lib/kubelet/device-plugins",
        "ip link add uplink type veth peer name uplink-peer",
        "ip addr add 10.88.0.2/24 dev uplink",
        "ip link set uplink up",
        "ip link set uplink-peer up",
        "ip route add default via 10.88.0.1 dev uplink",
    ] {
        super::links::shell(command)?;
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a suite reports to the person who runs it")]
fn refuse(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
