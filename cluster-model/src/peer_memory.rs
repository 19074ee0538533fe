//! How NICs reach the memory of GPUs: by a module of NVIDIA's, or by dma-buf.

/// The modules that give NICs access to the memory of NVIDIA's GPUs: NVIDIA's own, and its predecessors before
/// driver 465.
pub const MODULES: [&str; 3] = ["nvidia_peermem", "nv_peer_mem", "ib_peer_mem"];

/// Part of the version text by which NVIDIA's open driver is recognized.
const OPEN: &str = "Open Kernel Module";

/// The first kernel whose RDMA drivers import dma-buf (`ib_umem_dmabuf_get`).
const DMA_BUF_SINCE: (u32, u32) = (5, 12);

/// Whether NVIDIA's driver with this version text exports dma-buf: only the open one does.
pub fn exports_dma_buf(nvidia: &str) -> bool {
    nvidia.contains(OPEN)
}

/// Whether RDMA drivers of this kernel import dma-buf; a vendor's kernel may do so earlier.
pub fn takes_dma_buf(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    version.is_some_and(|version| version >= DMA_BUF_SINCE)
}
