//! Names that people have for devices: `mlx5_0` and `GPU0` beside the names in ResourceSlices.

use cluster_model::gpu_drivers;
use cluster_model::names::attribute;
use cluster_model::node_devices::address_on;
use cluster_model::published_device::{PublishedDevice as _, Role};
use cluster_model::view::ClusterView;
use dra_allocator::Device;

/// A NIC's RDMA device, otherwise its interface, otherwise the name of the device.
pub(crate) fn nic(device: &Device) -> &str {
    let names = [attribute::dranet::RDMA_DEVICE, attribute::dranet::IF_NAME];
    names.iter().find_map(|name| device.text(name)).unwrap_or_else(|| device.name())
}

/// Whether a device stands for any NIC of its node, which is chosen when a pod starts.
pub(crate) fn is_place(device: &Device) -> bool {
    device.role() == Role::Place
}

/// A device as people name it: the number of a GPU in its node's graph, the RDMA device of a NIC,
/// and otherwise the name in the slice.
pub(crate) fn short(view: &ClusterView, node: &str, device: &Device) -> String {
    let id = device.id();
    if is_place(device) {
        return format!("place {}", id.device);
    }
    if gpu_drivers::by_name(&id.driver).is_none() {
        return nic(device).to_owned();
    }
    let gpu = address_on(view, node, device);
    let gpu = gpu.and_then(|at| Some(view.topology(node)?.gpu(at)?.name.clone()));
    gpu.unwrap_or_else(|| id.device.to_string())
}
