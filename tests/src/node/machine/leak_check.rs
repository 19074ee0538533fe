//! Checks a machine for leaks: nothing of any pod may be left, and the host must have everything
//! back. Also removes the machine at its end.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Check, eventually,
    node::{
        containerd,
        links::{self, shell},
        machine::{Machine, names_in},
        plugin::NAMED,
    },
};

/// The kubelet looks once a minute for claims of pods that disappeared unnoticed
/// (`defaultReconcilePeriod` of its DRA manager).
const ORPHANS: Duration = Duration::from_mins(2);

impl Machine {
    /// Waits until the machine is as at the start: no claims, no sandboxes, and the host's
    /// interfaces restored.
    pub async fn wait_until_clean(&self) -> anyhow::Result<()> {
        if self.kubelet.is_none() {
            // A test that acts as the kubelet has already received the driver's response.
            self.nothing_left()?;
        }
        eventually(ORPHANS, async || {
            let left = self.left()?;
            Ok(Check::that(left.is_empty(), || left))
        })
        .await
    }

    /// Checks that nothing of any claim is left.
    pub fn nothing_left(&self) -> anyhow::Result<()> {
        let left = self.driver_files()?;
        anyhow::ensure!(left.is_empty(), "left: {left:?}");
        Ok(())
    }

    /// What is left of pods, and what the host lacks.
    fn left(&self) -> anyhow::Result<String> {
        let files = self.driver_files()?;
        if !files.is_empty() {
            return Ok(format!("left: {files:?}"));
        }
        let names = names_in(Path::new(NAMED));
        if !names.is_empty() {
            return Ok(format!("network namespaces are left: {names:?}"));
        }
        let difference = links::difference(&self.before, &links::state()?);
        if !difference.is_empty() || self.containerd.is_none() {
            return Ok(difference);
        }
        let tasks = self.tasks()?;
        Ok(if tasks.is_empty() { String::new() } else { format!("sandboxes run: {tasks:?}") })
    }

    /// All files of the driver on this machine: CDI specs, claims, copies of plans, attach records, incomplete
    /// writes, and the claims in its checkpoint.
    pub fn driver_files(&self) -> anyhow::Result<Vec<String>> {
        let mut left = names_in(&self.folder.path().join("cdi"));
        left.extend(names_in(&self.plugin_dir().join("claims")));
        left.extend(names_in(&self.folder.path().join("run/attached")));
        left.extend(names_in(&self.folder.path().join("run/plans")));
        left.extend(names_in(&self.folder.path().join("run/ready")));
        let plugin = names_in(&self.plugin_dir()).into_iter();
        left.extend(
            plugin
                .chain(names_in(&self.plugin_dir().join("bin")))
                .filter(|name| Path::new(name).extension().is_some_and(|it| it == "tmp")),
        );
        let path = self.plugin_dir().join("checkpoint.json");
        if path.exists() {
            let checkpoint: serde_json::Value = serde_json::from_slice(&fs::read(path)?)?;
            let claims = checkpoint["data"]["claims"].as_object().context("claims")?;
            left.extend(claims.keys().map(|uid| format!("checkpoint: {uid}")));
            let unrestored = checkpoint["data"]["unrestored"].as_array();
            left.extend(unrestored.into_iter().flatten().map(|it| format!("unrestored: {it}")));
        }
        Ok(left)
    }

    /// The first processes of all sandboxes and containers, from containerd.
    pub fn tasks(&self) -> anyhow::Result<Vec<i32>> {
        let listed = self.listed_tasks()?;
        let pids = listed.lines().filter_map(|line| line.split_whitespace().nth(1));
        Ok(pids.filter_map(|pid| pid.parse().ok()).collect())
    }

    /// A line for each of them: its ID, its first process, and its status.
    pub fn listed_tasks(&self) -> anyhow::Result<String> {
        let ctr = crate::binaries::node("ctr")?;
        let socket = containerd::socket(self.folder.path());
        let (ctr, socket) = (ctr.display(), socket.display());
        let listed = shell(&format!("{ctr} --address {socket} --namespace k8s.io tasks list"))?;
        // A header is above them.
        Ok(listed.lines().skip(1).collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The kubelet first, since it would restart the others.
        self.kubelet = None;
        self.driver = None;
        self.containerd = None;
        // Only a failed test leaves anything.
        end_sandboxes(self.folder.path());
        unmount(self.folder.path());
    }
}

/// Kills the containers and shims of the containerd whose state is in this folder, and removes the
/// names of their networks.
fn end_sandboxes(folder: &Path) {
    let folder = folder.display().to_string();
    let processes = processes();
    let shims: Vec<i32> = processes
        .iter()
        .filter(|process| process.command.contains(&folder))
        .map(|shim| shim.id)
        .collect();
    let inside = processes.iter().filter(|process| shims.contains(&process.parent));
    for id in inside.map(|process| process.id).chain(shims.iter().copied()) {
        // The process may have ended.
        let _ = Pid::from_raw(id).map(|pid| kill_process(pid, Signal::KILL));
    }
    for name in names_in(Path::new(NAMED)) {
        let _ = shell(&format!("ip netns del {name}"));
    }
}

struct Process {
    id: i32,
    parent: i32,
    command: String,
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |path: PathBuf| {
        let id = path.file_name()?.to_str()?.parse().ok()?;
        let status = fs::read_to_string(path.join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        let command = fs::read(path.join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).into_owned();
        Some(Process { id, parent: parent.trim().parse().ok()?, command })
    };
    entries.filter_map(|entry| process(entry.path())).collect()
}

/// Unmounts everything below a folder, so that it can be removed.
fn unmount(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // `proc_pid_mountinfo(5)`: the fifth field is the mount point.
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let below: Vec<_> = points.filter(|point| Path::new(point).starts_with(folder)).collect();
    for point in below.into_iter().rev() {
        let _ = shell(&format!("umount -l {point}"));
    }
}
