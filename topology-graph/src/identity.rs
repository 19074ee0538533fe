//! The identities of devices, which differ between machines of the same shape.

use crate::{PciAddress, Snapshot};

/// The names of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Identity {
    pub(crate) uuid: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) rdma_device: Option<String>,
    pub(crate) netdevs: Vec<String>,
    pub(crate) node_guid: Option<String>,
    pub(crate) sys_image_guid: Option<String>,
    pub(crate) drm_card: Option<String>,
    pub(crate) nvme: Option<String>,
}

impl Identity {
    pub(crate) fn new(address: PciAddress, snapshot: &Snapshot) -> Self {
        let gpu = snapshot.gpus.iter().find(|gpu| gpu.address == address);
        let rdma = snapshot.rdma_device(address);
        Self {
            uuid: gpu.and_then(|gpu| gpu.uuid.clone()),
            model: gpu.and_then(|gpu| gpu.model.clone()),
            rdma_device: rdma.map(|rdma| rdma.name.clone()),
            netdevs: snapshot.netdevs_of(address).map(|netdev| netdev.name.clone()).collect(),
            node_guid: rdma.and_then(|rdma| rdma.node_guid.clone()).filter(|guid| is_set(guid)),
            sys_image_guid: rdma.and_then(|rdma| rdma.sys_image_guid.clone()),
            drm_card: gpu.and_then(|gpu| gpu.drm_card.clone()),
            nvme: snapshot.nvme_of(address).map(|controller| controller.name.clone()),
        }
    }
}

/// Whether a GUID has digits other than zero.
fn is_set(guid: &str) -> bool {
    guid.bytes().any(|byte| !matches!(byte, b'0' | b':'))
}
