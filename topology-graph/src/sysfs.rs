//! Reads a machine below one root directory into a [`Snapshot`]. The only part
//! of this crate that touches files.
//!
//! Nothing assumes `/`: a container passes the host's mount, a test a planted
//! machine. One bad file never spoils the rest; it becomes an [`Anomaly`]. The
//! layout follows the kernel's `Documentation/ABI/{stable,testing}/sysfs-*`.

mod gpu;
mod net;
mod numa;
mod pci;
mod rdma;
mod tree;

use std::io;
use std::path::PathBuf;

use crate::snapshot::{SNAPSHOT_VERSION, Snapshot};
use tree::Tree;

/// The root below which all of a host's files are found.
#[derive(Clone, Debug)]
pub struct HostRoot {
    root: PathBuf,
    sys: Option<PathBuf>,
    proc: Option<PathBuf>,
}

/// A root that no machine can be read from.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no sysfs.
    #[error(
        "found no sysfs at `{path}`: it has no directory `devices`; name the directory that holds `sys`"
    )]
    NoSysfs {
        /// Where it was looked for.
        path: PathBuf,
        /// Why it cannot be seen.
        source: io::Error,
    },
}

impl HostRoot {
    /// The host whose root directory is mounted here.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), sys: None, proc: None }
    }

    /// The same with its sysfs mounted elsewhere.
    #[must_use]
    pub fn with_sys(self, sys: impl Into<PathBuf>) -> Self {
        Self { sys: Some(sys.into()), ..self }
    }

    /// The same with its procfs mounted elsewhere.
    #[must_use]
    pub fn with_proc(self, proc: impl Into<PathBuf>) -> Self {
        Self { proc: Some(proc.into()), ..self }
    }

    /// Where sysfs is.
    pub fn sys(&self) -> PathBuf {
        self.sys.clone().unwrap_or_else(|| self.root.join("sys"))
    }

    /// Where procfs is.
    pub fn proc(&self) -> PathBuf {
        self.proc.clone().unwrap_or_else(|| self.root.join("proc"))
    }

    /// Where device nodes are.
    pub fn dev(&self) -> PathBuf {
        self.root.join("dev")
    }

    /// Where runtime files are.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Where configuration is.
    pub fn etc(&self) -> PathBuf {
        self.root.join("etc")
    }

    /// Where variable files are.
    pub fn var(&self) -> PathBuf {
        self.root.join("var")
    }
}

/// Read all that this crate knows of.
pub fn read(host: &HostRoot) -> Result<Snapshot, ReadError> {
    let mut sys = Tree::at("sys", host.sys());
    sys.require("devices").map_err(|source| ReadError::NoSysfs { path: host.sys(), source })?;
    let mut proc = Tree::at("proc", host.proc());
    let mut snapshot = Snapshot {
        version: SNAPSHOT_VERSION,
        pci: pci::functions(&mut sys),
        numa_nodes: numa::nodes(&mut sys),
        gpus: gpu::nvidia(&mut proc),
        rdma: rdma::devices(&mut sys),
        netdevs: net::netdevs(&mut sys),
        anomalies: Vec::new(),
    };
    snapshot.anomalies = sys.into_anomalies();
    snapshot.anomalies.append(&mut proc.into_anomalies());
    snapshot.anomalies.sort();
    Ok(snapshot)
}
