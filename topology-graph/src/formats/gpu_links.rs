//! Labels of links between GPUs: one box for a mesh instead of an edge between every two GPUs.

use crate::graph::{Fabric, Mesh};

/// The maximum number of `NVLinks` of a GPU: 6 on V100, 12 on A100, 18 on H100 to GB300 (NVIDIA,
/// "NVLink and NVLink Switch", table "Number of links").
const NVLINKS_MAX: usize = 18;

/// Returns true if the mesh gets a box. Two GPUs have a single link, which is drawn as a line.
pub(super) fn is_boxed(mesh: &Mesh) -> bool {
    mesh.gpus.len() > 2
}

/// `NVSwitch` if the GPUs have too few links to reach each other directly.
pub(super) fn mesh_name(mesh: &Mesh) -> &'static str {
    let peers = mesh.gpus.len().saturating_sub(1);
    match mesh.fabric {
        Fabric::NvLink { links } if beyond_direct_links(links, peers) => "NVSwitch",
        Fabric::NvLink { .. } => "NVLink",
        Fabric::Xgmi { .. } => "XGMI",
    }
}

/// `NVSwitch, NV18 between every two GPUs`.
pub(super) fn mesh_label(mesh: &Mesh) -> String {
    format!("{}, {} between every two GPUs", mesh_name(mesh), mesh.fabric.path())
}

fn beyond_direct_links(links: u32, peers: usize) -> bool {
    peers.saturating_mul(usize::try_from(links).unwrap_or(usize::MAX)) > NVLINKS_MAX
}
