//! Reads a machine below one root directory into a [`Snapshot`]. The only part
//! of this crate that touches files.
//!
//! Nothing assumes `/`: a container passes the host's mount, a test a planted
//! machine. One bad file never spoils the rest; it becomes an [`Anomaly`]. The
//! layout follows the kernel's `Documentation/ABI/{stable,testing}/sysfs-*`.

#[cfg(feature = "archive")]
mod archive;
#[cfg(feature = "archive")]
mod capture;
mod config;
mod gpu;
mod kfd;
mod net;
mod numa;
mod pci;
mod rdma;
mod source;
mod tree;
mod vpd;

use std::io;
use std::path::PathBuf;
#[cfg(feature = "archive")]
use std::sync::Arc;

use crate::snapshot::{GpuFacts, SNAPSHOT_VERSION, Snapshot};
#[cfg(feature = "archive")]
use archive::Archive;
use source::Source;
use tree::{Record, Tree};

#[cfg(feature = "archive")]
pub use archive::ArchiveError;
#[cfg(feature = "archive")]
pub use capture::{CaptureError, Identities, capture};

/// The root below which all of a host's files are found.
#[derive(Clone, Debug)]
pub struct HostRoot {
    root: PathBuf,
    sys: Option<PathBuf>,
    proc: Option<PathBuf>,
    /// In place of the directories, the same in an archive.
    #[cfg(feature = "archive")]
    archive: Option<(Arc<Archive>, String)>,
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
        Self {
            root: root.into(),
            sys: None,
            proc: None,
            #[cfg(feature = "archive")]
            archive: None,
        }
    }

    /// The host whose files were packed into this archive (tar, plain or compressed
    /// by gzip or bzip2): a capture of ours or of hwloc's. `name` is what messages
    /// call it.
    #[cfg(feature = "archive")]
    pub fn in_archive(name: impl Into<PathBuf>, bytes: &[u8]) -> Result<Self, ArchiveError> {
        let archive = Archive::read(bytes)?;
        let root = archive.root()?;
        Ok(Self { archive: Some((Arc::new(archive), root)), ..Self::at(name) })
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

    fn sources(&self) -> (Source, Source) {
        #[cfg(feature = "archive")]
        if let Some((archive, root)) = &self.archive {
            let below = |name| Source::Archive(archive.clone(), format!("{root}/{name}"));
            return (below("sys"), below("proc"));
        }
        (Source::Directory(self.sys()), Source::Directory(self.proc()))
    }
}

/// Read all that this crate knows of.
pub fn read(host: &HostRoot) -> Result<Snapshot, ReadError> {
    read_all(host).map(|(snapshot, _)| snapshot)
}

/// What was read, with the name of its tree.
type Records = Vec<(&'static str, Record)>;

/// What the drivers of all makes tell.
fn gpus(sys: &mut Tree, proc: &mut Tree) -> Vec<GpuFacts> {
    let mut gpus = gpu::nvidia(proc);
    gpus.append(&mut kfd::gpus(sys));
    gpus.sort_by_key(|gpu| gpu.address);
    gpus
}

/// The facts, and what they are from.
fn read_all(host: &HostRoot) -> Result<(Snapshot, Records), ReadError> {
    let (sys, proc) = host.sources();
    sys.require("devices").map_err(|source| ReadError::NoSysfs { path: host.sys(), source })?;
    let (mut sys, mut proc) = (Tree::new("sys", sys), Tree::new("proc", proc));
    let mut snapshot = Snapshot {
        version: SNAPSHOT_VERSION,
        pci: pci::functions(&mut sys),
        numa_nodes: numa::nodes(&mut sys),
        gpus: gpus(&mut sys, &mut proc),
        nvidia_peer_memory: gpu::nvidia_peer_memory(&mut sys, &mut proc),
        rdma: rdma::devices(&mut sys),
        netdevs: net::netdevs(&mut sys),
        anomalies: Vec::new(),
    };
    let mut records = Vec::new();
    for tree in [sys, proc] {
        let (name, anomalies, read) = tree.finish();
        snapshot.anomalies.extend(anomalies);
        records.extend(read.into_iter().map(|record| (name, record)));
    }
    snapshot.anomalies.sort();
    Ok((snapshot, records))
}
