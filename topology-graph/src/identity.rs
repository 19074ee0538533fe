//! The identities of devices, which differ between machines of the same shape.

use serde::{Deserialize, Serialize};

#[cfg(feature = "crd")]
use crate::address::PLACE;
use crate::{PciAddress, Snapshot};

/// The names of one GPU, NIC or NVMe controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeviceIdentity {
    /// Its PCI address.
    #[cfg_attr(feature = "crd", schemars(regex(pattern = PLACE)))]
    pub at: String,
    /// A GPU's UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// A GPU's product name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A NIC's RDMA device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_device: Option<String>,
    /// A NIC's network interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub netdevs: Vec<String>,
    /// GUID of the RDMA node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_guid: Option<String>,
    /// GUID of the whole adapter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sys_image_guid: Option<String>,
    /// A GPU's Direct Rendering Manager (DRM) device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drm_card: Option<String>,
    /// An NVMe controller's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme: Option<String>,
}

impl DeviceIdentity {
    /// What the kernel says of an endpoint.
    pub(crate) fn new(address: PciAddress, snapshot: &Snapshot) -> Self {
        let gpu = snapshot.gpus.iter().find(|gpu| gpu.address == address);
        let rdma = snapshot.rdma_device(address);
        Self {
            at: address.to_string(),
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

    /// Returns true if the device has a name.
    pub(crate) fn is_named(&self) -> bool {
        *self != Self { at: self.at.clone(), ..Self::default() }
    }
}

/// Whether a GUID has digits other than zero.
fn is_set(guid: &str) -> bool {
    guid.bytes().any(|byte| !matches!(byte, b'0' | b':'))
}
