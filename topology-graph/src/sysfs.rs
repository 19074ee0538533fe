//! Reads a machine below a root directory into a [`Snapshot`]. Only this part of the crate reads
//! files.
//!
//! The root need not be `/`: a container passes the host's mount, a test a planted machine. An
//! unreadable file becomes an [`Anomaly`] and does not affect the rest. The layout follows the
//! kernel's `Documentation/ABI/{stable,testing}/sysfs-*`.

#[cfg(feature = "archive")]
mod archive;
#[cfg(feature = "archive")]
mod capture;
mod config;
mod drm;
mod gpu;
mod kfd;
mod limits;
mod nccl;
mod net;
mod numa;
mod nvme;
mod pci;
mod rdma;
mod socket;
mod source;
mod tree;
mod vpd;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::snapshot::{GpuFacts, PciFunction, SNAPSHOT_VERSION, Snapshot};
#[cfg(feature = "archive")]
use archive::Archive;
use source::Source;
use tree::{Record, Tree};

#[cfg(feature = "archive")]
pub use archive::ArchiveError;
#[cfg(feature = "archive")]
pub use capture::{CaptureError, Identities, capture};

/// Follows a read of a machine. A file of a device that does not answer blocks the reading thread
/// in the kernel; only another thread can notice.
pub trait ReadObserver: fmt::Debug + Send + Sync {
    /// Called before a file, link or directory is read, with its path below the host's root, such
    /// as `sys/devices/pci0000:00/0000:00:01.0/class`. `false` skips it.
    fn begins(&self, file: &str) -> bool;
}

/// The root directory of a host's files.
#[derive(Clone, Debug)]
pub struct HostRoot {
    root: PathBuf,
    nccl_file: Option<String>,
    /// RDMA devices whose ports are skipped.
    unread_ports: BTreeSet<String>,
    /// Learns of each file before it is read.
    observer: Option<Arc<dyn ReadObserver>>,
    /// An archive and the directory in it, used instead of the real directories.
    #[cfg(feature = "archive")]
    archive: Option<(Arc<Archive>, String)>,
}

/// No machine can be read below a root.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no sysfs.
    #[error(
        "found no sysfs at `{path}`: it has no directory `devices`; name the directory that holds `sys`"
    )]
    NoSysfs {
        /// The path that was checked.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl HostRoot {
    /// The host whose root directory is mounted at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            nccl_file: None,
            unread_ports: BTreeSet::new(),
            observer: None,
            #[cfg(feature = "archive")]
            archive: None,
        }
    }

    /// The host whose files are in this archive: a tar file, plain or compressed with gzip or
    /// bzip2, from this crate's [`capture`](crate::capture) or from hwloc. Messages call it `name`.
    #[cfg(feature = "archive")]
    pub fn in_archive(name: impl Into<PathBuf>, bytes: &[u8]) -> Result<Self, ArchiveError> {
        let archive = Archive::read(bytes)?;
        let root = archive.root()?;
        Ok(Self { archive: Some((Arc::new(archive), root)), ..Self::at(name) })
    }

    /// Uses the NCCL topology file at this path of the host instead of the configured one.
    #[must_use]
    pub fn with_nccl_file(self, path: impl Into<String>) -> Self {
        Self { nccl_file: Some(path.into()), ..self }
    }

    /// Skips the ports of these RDMA devices. Reading a port waits for the device, and a device
    /// that does not answer can block for a minute or more.
    #[must_use]
    pub fn without_ports_of(self, devices: BTreeSet<String>) -> Self {
        Self { unread_ports: devices, ..self }
    }

    /// Tells this observer of each file before it is read.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn ReadObserver>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Checks that a machine can be read below this root.
    pub fn check(&self) -> Result<(), ReadError> {
        let [sys, ..] = self.sources();
        sys.require("devices").map_err(|source| ReadError::NoSysfs { path: self.sys(), source })
    }

    /// The directory of sysfs.
    pub fn sys(&self) -> PathBuf {
        self.root.join("sys")
    }

    /// The directory of procfs.
    pub fn proc(&self) -> PathBuf {
        self.root.join("proc")
    }

    /// The directory of device nodes.
    pub fn dev(&self) -> PathBuf {
        self.root.join("dev")
    }

    /// The directory of runtime files.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The directory of configuration files.
    pub fn etc(&self) -> PathBuf {
        self.root.join("etc")
    }

    /// The directory of variable files.
    pub fn var(&self) -> PathBuf {
        self.root.join("var")
    }

    /// The sources of sysfs, procfs and the root itself.
    fn sources(&self) -> [Source; 3] {
        #[cfg(feature = "archive")]
        if let Some((archive, root)) = &self.archive {
            let roots = [format!("{root}/sys"), format!("{root}/proc"), root.clone()];
            return roots.map(|root| Source::Archive(archive.clone(), root));
        }
        [self.sys(), self.proc(), self.root.clone()].map(Source::Directory)
    }
}

/// Reads all facts that this crate knows.
pub fn read(host: &HostRoot) -> Result<Snapshot, ReadError> {
    read_all(host, false).map(|(snapshot, _)| snapshot)
}

/// The files that were read, with the name of their tree.
type Records = Vec<(&'static str, Record)>;

/// Reads the facts; with `record`, also returns the files that they come from.
fn read_all(host: &HostRoot, record: bool) -> Result<(Snapshot, Records), ReadError> {
    host.check()?;
    let [sys, proc, root] = host.sources();
    let [mut sys, mut proc, mut root] = [("sys", sys), ("proc", proc), ("", root)]
        .map(|(name, source)| Tree::new(name, source, record, host.observer.clone()));
    let pci = pci::functions(&mut sys);
    let numa_nodes = numa::nodes(&mut sys);
    let kfd = kfd::read(&mut sys);
    let mut snapshot = Snapshot {
        version: SNAPSHOT_VERSION,
        sockets: socket::sockets(&mut sys, &numa_nodes),
        gpus: gpus(&mut sys, &mut proc, kfd.gpus, &pci),
        xgmi: kfd.xgmi,
        nvlinks: Vec::new(),
        nvidia_peer_memory: gpu::nvidia_peer_memory(&mut sys, &mut proc),
        rdma: rdma::devices(&mut sys, &host.unread_ports),
        netdevs: net::netdevs(&mut sys),
        nvme: nvme::controllers(&mut sys),
        nccl_file: nccl::file(&mut root, host.nccl_file.as_deref()),
        anomalies: Vec::new(),
        pci,
        numa_nodes,
    };
    let mut records = Vec::new();
    for tree in [sys, proc, root] {
        let (name, anomalies, read) = tree.finish();
        snapshot.anomalies.extend(anomalies);
        records.extend(read.into_iter().map(|record| (name, record)));
    }
    snapshot.anomalies.sort();
    Ok((snapshot, records))
}

/// The GPUs from the drivers of all vendors.
fn gpus(sys: &mut Tree, proc: &mut Tree, amd: Vec<GpuFacts>, pci: &[PciFunction]) -> Vec<GpuFacts> {
    let mut gpus = gpu::nvidia(proc);
    gpus.extend(amd);
    drm::name(sys, pci, &mut gpus);
    gpus.sort_by_key(|gpu| gpu.address);
    gpus
}
