//! `node-driver attach`: the OCI hook. It reads the container's state from standard
//! input, finds the pod's network namespace, and carries out the plan.
//!
//! It needs no running driver, so it works while the driver is down or being replaced.
//! Follows the hooks of the OCI runtime specification, `config.md` and `runtime.md`.

use crate::kernel::attach::namespaces::{hand_over, tell_attached};
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::node_network::{KernelNetwork, NodeNetwork};
use crate::kernel::attach::record::{AttachRecord, attach_recorded};
use crate::kernel::attach::{AttachError, SYSCTL, is_separate};
use crate::kernel::memlock;
use crate::model::plan::{Plan, PlannedDevice};
use crate::prepare::current::{Currency, RdmaDevices};
use crate::prepare::effects::Faults;
use crate::prepare::error::PrepareError;
use anyhow::Context;
use clap::Parser;
use node_files::paths::namespaces_socket;
use node_files::turn;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest OCI state that is read, in bytes.
const STATE_MAX: u64 = 1 << 20;

/// Move a claim's interfaces into the pod of the container whose OCI state is on
/// standard input
#[derive(Clone, Debug, Parser)]
#[command(name = "node-driver attach", version)]
pub struct AttachArgs {
    /// The driver's plan for the claim
    #[arg(long, value_name = "FILE")]
    pub plan: PathBuf,
    /// The driver's directory for state that lasts until the next boot
    #[arg(long, value_name = "DIR", default_value = "/run/dranet")]
    pub run_dir: PathBuf,
    /// Directory with the machine's dev and sys
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Let the container lock all of its memory, for RDMA
    #[arg(long)]
    pub locked_memory: bool,
}

/// The fields of the OCI state that the hook uses.
#[derive(Deserialize)]
struct State {
    pid: u32,
}

/// A container that is about to start.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    /// Its first process.
    pub(crate) pid: u32,
    /// Its network namespace.
    pub(crate) network: PathBuf,
}

impl From<State> for Container {
    fn from(State { pid }: State) -> Self {
        Self { pid, network: format!("/proc/{pid}/ns/net").into() }
    }
}

/// Runs the hook.
pub fn run(args: &AttachArgs) -> anyhow::Result<()> {
    let mut text = String::new();
    io::stdin().take(STATE_MAX).read_to_string(&mut text).context("failed to read the state")?;
    let state: State = serde_json::from_str(&text).context("malformed container state")?;
    attach(args, &state.into(), &KernelNetwork, &Faults::default())
}

/// Gives a container what its claim has.
pub(crate) fn attach(
    args: &AttachArgs,
    container: &Container,
    network: &dyn NodeNetwork,
    faults: &Faults,
) -> anyhow::Result<()> {
    let turn = claims_turn(&args.plan)?;
    let plan = read_plan(&args.plan)?;
    let has_rdma = plan.devices.iter().any(|device| device.rdma.is_some());
    if args.locked_memory && has_rdma {
        lift_memlock(container.pid);
    }
    let moves = plan.devices.iter().any(PlannedDevice::moves);
    if !moves {
        return check_numbers(&plan, &args.root);
    }
    let host = NetNs::current()?;
    let pod = NetNs::open(&container.network)?;
    let namespace = pod.id()?;
    if !is_separate(&plan, &host, &pod)? {
        return Ok(());
    }
    let uid = &plan.claim.uid;
    // Hand over before the record changes: the driver takes back what an earlier sandbox
    // of this pod still has. If the driver is not running, the kernel does so.
    faults.reached("hook:hand-over:before");
    let held = hand_over(&namespaces_socket(&args.run_dir), uid, &pod);
    if held.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
        return Err(AttachError::InUse { claim: plan.claim }.into());
    }
    if held.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Err(AttachError::Ended { claim: plan.claim.to_string() }.into());
    }
    faults.reached("hook:hand-over:after");
    // Now, because the driver was asked and has written the plan again.
    check_numbers(&plan, &args.root)?;
    let path = args.run_dir.join(format!("attached/{uid}.json"));
    // Stored when something moves: if another sandbox has it, its record stays.
    let mut record = AttachRecord::begin(&path, namespace, None);
    let files = [&*path, Path::new(SYSCTL)];
    let given = attach_recorded(network, &plan, &mut record, files, [&host, &pod])?;
    faults.reached("hook:links:after");
    record.attached(given, &path)?;
    faults.reached("hook:attached:after");
    // The driver may wait for it to undo the claim, and answers only afterwards.
    drop(turn);
    let socket = namespaces_socket(&args.run_dir);
    if let Err(error) = held.and_then(|()| tell_attached(&socket, uid)) {
        report(&format!("the driver did not answer; continuing without it: {error}"));
    }
    Ok(())
}

/// Takes the turn of the claim with this plan: nobody undoes it meanwhile.
fn claims_turn(plan: &Path) -> anyhow::Result<File> {
    let folder = plan.parent().unwrap_or(plan);
    let name = folder.file_name().unwrap_or_default();
    let claim = name.to_string_lossy().into_owned();
    Ok(turn::take_claim(folder)?.ok_or(AttachError::Ended { claim })?)
}

/// Refuses the container if its numbers are of before, since they may be another NIC's now. The
/// driver writes the CDI spec again.
fn check_numbers(plan: &Plan, root: &Path) -> anyhow::Result<()> {
    let claim = plan.claim.clone();
    match RdmaDevices::new(root.join("sys"), &root.join("dev")).compare(plan) {
        Currency::Current => Ok(()),
        Currency::Changed(_, changes) => Err(PrepareError::Renumbered { claim, changes }.into()),
        Currency::Lost(devices) => Err(PrepareError::Lost { claim, devices }.into()),
    }
}

/// The container may need no more than the runtime's limit, so a failure does not stop it.
fn lift_memlock(pid: u32) {
    if let Err(error) = memlock::lift(pid) {
        report(&format!("failed to lift the limit of locked memory: {error}"));
    }
}

fn read_plan(path: &Path) -> anyhow::Result<Plan> {
    let text = fs::read(path).with_context(|| format!("failed to read `{}`", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("malformed plan `{}`", path.display()))
}

#[expect(clippy::print_stderr, reason = "the runtime logs a hook's standard error")]
fn report(line: &str) {
    eprintln!("{line}");
}
