//! The NodeTopology condition about GPU memory. Pure.

use crate::facts::modules::KernelFacts;
use cluster_model::peer_memory::{exports_dma_buf, takes_dma_buf};
use topology_graph::HostCondition;

/// Condition type: whether NICs can reach GPU memory.
pub(crate) const PEER_MEMORY: &str = "PeerMemory";

/// NVIDIA needs a separate module or the open driver's dma-buf, AMD needs dma-buf. dma-buf
/// needs RDMA drivers that import it: Linux has them since 5.12, a vendor's may do so earlier.
pub(crate) fn condition(facts: &KernelFacts) -> Option<HostCondition> {
    let of_driver = match &facts.nvidia {
        Some(version) if exports_dma_buf(version) => Some("NVIDIA's open driver exports it"),
        Some(_) => None,
        None if facts.amdgpu => Some("AMD's driver exports it"),
        None => return None,
    };
    let release = &facts.release;
    let (holds, reason, message) = match (facts.peer_memory, of_driver) {
        (Some(module), _) => (true, "Module", format!("module {module} is loaded")),
        (None, Some(driver)) if takes_dma_buf(release) => {
            (true, "DmaBuf", format!("dma-buf: {driver}, and Linux {release} imports it"))
        }
        (None, Some(driver)) => (
            false,
            "OldKernel",
            format!(
                "dma-buf: {driver}, but RDMA drivers can import it only since Linux 5.12, and \
                 this is {release}; load nvidia_peermem, or use a newer kernel"
            ),
        ),
        (None, None) => (
            false,
            "NoModule",
            "NVIDIA's proprietary driver exports no dma-buf, and nvidia_peermem is not loaded; \
             load it, or install NVIDIA's open kernel modules"
                .to_owned(),
        ),
    };
    let entries = Vec::new();
    Some(HostCondition { kind: PEER_MEMORY, holds, reason, message, entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(facts: &KernelFacts) -> Vec<String> {
        let said =
            |it: HostCondition| format!("{} {} {}: {}", it.kind, it.holds, it.reason, it.message);
        condition(facts).into_iter().map(said).collect()
    }

    #[test]
    fn no_conditions_without_gpu_driver_and_report() {
        assert!(said(&KernelFacts::default()).is_empty());
    }

    #[test]
    fn how_nics_reach_the_memory_of_gpus() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86";
        let nvidia = |version: &str, release: &str, peer_memory| KernelFacts {
            nvidia: Some(version.to_owned()),
            release: release.to_owned(),
            peer_memory,
            ..KernelFacts::default()
        };
        let amd =
            KernelFacts { amdgpu: true, release: "6.8.0".to_owned(), ..KernelFacts::default() };
        let all = [
            nvidia(closed, "6.8.0-45-generic", None),
            nvidia(closed, "6.8.0-45-generic", Some("nvidia_peermem")),
            nvidia(open, "6.8.0-45-generic", None),
            nvidia(open, "5.4.0-1-generic", None),
            nvidia(open, "5.12.0", None),
            amd,
        ];
        let said: Vec<_> = all.iter().flat_map(said).collect();
        insta::assert_snapshot!(said.join("\n"), @"
        PeerMemory false NoModule: NVIDIA's proprietary driver exports no dma-buf, and nvidia_peermem is not loaded; load it, or install NVIDIA's open kernel modules
        PeerMemory true Module: module nvidia_peermem is loaded
        PeerMemory true DmaBuf: dma-buf: NVIDIA's open driver exports it, and Linux 6.8.0-45-generic imports it
        PeerMemory false OldKernel: dma-buf: NVIDIA's open driver exports it, but RDMA drivers can import it only since Linux 5.12, and this is 5.4.0-1-generic; load nvidia_peermem, or use a newer kernel
        PeerMemory true DmaBuf: dma-buf: NVIDIA's open driver exports it, and Linux 5.12.0 imports it
        PeerMemory true DmaBuf: dma-buf: AMD's driver exports it, and Linux 6.8.0 imports it
        ");
    }
}
