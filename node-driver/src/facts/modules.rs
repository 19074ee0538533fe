//! Facts about the kernel by which NICs reach the memory of GPUs.

use cluster_model::peer_memory;
use std::fs;
use topology_graph::HostRoot;

/// Facts about kernel modules and GPU drivers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelFacts {
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
    pub(crate) fn read(host: &HostRoot) -> Self {
        Self {
            release: proc_text(host, "sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            peer_memory: peer_memory::MODULES.into_iter().find(|name| is_loaded(host, name)),
            nvidia: proc_text(host, "driver/nvidia/version"),
            amdgpu: is_loaded(host, "amdgpu"),
        }
    }
}

fn proc_text(host: &HostRoot, path: &str) -> Option<String> {
    fs::read_to_string(host.proc().join(path)).ok()
}

fn is_loaded(host: &HostRoot, module: &str) -> bool {
    host.sys().join("module").join(module).is_dir()
}
