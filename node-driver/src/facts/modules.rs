//! Facts about kernel modules: what the init container loaded, and how NICs reach the memory
//! of GPUs.

use crate::modules::{ModulesReport, REPORT};
use process::chain::Chain;
use std::fs;
use std::path::Path;
use topology_graph::HostRoot;

/// Modules that give NICs access to GPU memory: NVIDIA's, and its predecessors before driver
/// 465.
const PEER_MEMORY_MODULES: [&str; 3] = ["nvidia_peermem", "nv_peer_mem", "ib_peer_mem"];

/// Facts about kernel modules and GPU drivers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelFacts {
    /// The init container's report; `None` if it was not asked to load modules.
    pub(crate) report: Option<ModulesReport>,
    /// The release of the running kernel.
    pub(crate) release: String,
    /// The first peer memory module that is loaded.
    pub(crate) peer_memory: Option<&'static str>,
    /// The version text of NVIDIA's driver, if it is loaded.
    pub(crate) nvidia: Option<String>,
    /// Whether AMD's driver is loaded.
    pub(crate) amdgpu: bool,
}

impl KernelFacts {
    /// Reads the facts. Those that cannot be read are unknown.
    pub(crate) fn read(host: &HostRoot, run_dir: &Path) -> Self {
        let report = ModulesReport::read(&run_dir.join(REPORT)).unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "Continuing without the report on modules");
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
