//! What the kernel has for RDMA beside its devices: what the init container did about modules,
//! and how NICs reach the memory of GPUs.

use crate::modules::{ModulesReport, REPORT};
use process::chain::Chain;
use std::fs;
use std::path::Path;
use topology_graph::HostRoot;

/// Modules that give GPUs' memory to NICs: NVIDIA's, and those of before its driver 465.
const PEER_MEMORY_MODULES: [&str; 3] = ["nvidia_peermem", "nv_peer_mem", "ib_peer_mem"];

/// What is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelFacts {
    /// What the init container did; none where nobody asked it for anything.
    pub(crate) report: Option<ModulesReport>,
    /// The kernel that runs.
    pub(crate) release: String,
    /// The first peer memory module that is loaded.
    pub(crate) peer_memory: Option<&'static str>,
    /// What NVIDIA's driver says of itself, where it is loaded.
    pub(crate) nvidia: Option<String>,
    /// Whether AMD's driver is loaded.
    pub(crate) amdgpu: bool,
}

impl KernelFacts {
    /// Reads them. What cannot be read is not known.
    pub(crate) fn read(host: &HostRoot, run_dir: &Path) -> Self {
        let report = ModulesReport::read(&run_dir.join(REPORT)).unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "Going on without the report on modules");
            None
        });
        let text = |path: &str| fs::read_to_string(host.proc().join(path)).ok();
        let loaded = |name: &str| host.sys().join("module").join(name).is_dir();
        Self {
            report,
            release: text("sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            peer_memory: PEER_MEMORY_MODULES.into_iter().find(|name| loaded(name)),
            nvidia: text("driver/nvidia/version"),
            amdgpu: loaded("amdgpu"),
        }
    }
}
