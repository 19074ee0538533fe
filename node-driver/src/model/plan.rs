//! What a claim's pod gets: character devices, and interfaces with their configuration. The
//! checkpoint stores it.

use crate::model::claim::{ClaimRef, OtherDevice, PodRef};
use crate::model::host_link::HostLink;
use cluster_model::network_config::{LinkName, NetworkConfig, RdmaConfig, VirtualFunctionConfig};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::ops;
use topology_graph::PciAddress;

/// What one claim gets on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The claim.
    pub claim: ClaimRef,
    /// The pods that it was reserved for.
    pub pods: Vec<PodRef>,
    /// Its devices.
    pub devices: Vec<PlannedDevice>,
    /// `rdma_cm`, if one of the devices has RDMA.
    pub rdma_cm: Option<CharDevice>,
    /// The GPUs that device plugins gave the pod, if NICs were chosen for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugin_gpus: Vec<PluginGpu>,
    /// Other drivers' devices in the claim.
    pub others: Vec<OtherDevice>,
    /// Its name in the pod, if it was created from a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_claim_name: Option<String>,
    /// The topology of its devices, for the files in the container.
    #[serde(default)]
    pub wiring: Wiring,
    /// The boot for which its kernel names and device numbers are valid. Absent if the machine
    /// has no boot ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedDevice {
    /// The request that it satisfies, with its subrequest.
    pub request: String,
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: String,
    /// The device in the allocation for which it was chosen, if that names no NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The ID of its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// Whether the share is all of the device.
    #[serde(default, skip_serializing_if = "ops::Not::not")]
    pub is_whole: bool,
    /// Admin access: the claim gets the device in addition to its holder.
    #[serde(default)]
    pub admin_access: bool,
    /// Its PCI address; empty for a virtual interface.
    pub pci_bus_id: String,
    /// Its RDMA device.
    pub rdma: Option<PlannedRdma>,
    /// Its interface, to be moved into the pod.
    pub link: Option<PlannedLink>,
    /// For a virtual function, the settings at its physical function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<PlannedFunction>,
}

/// Settings of a virtual function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedFunction {
    /// The PCI address of its physical function.
    pub physical: String,
    /// The physical function's interface.
    pub link: String,
    /// The virtual function's number.
    pub index: u32,
    /// The requested settings.
    pub asked: VirtualFunctionConfig,
    /// The former settings, to be restored.
    pub former: VirtualFunctionConfig,
}

/// An RDMA device for a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedRdma {
    /// Kernel name, `mlx5_0`.
    pub name: String,
    /// The scalable function that it belongs to, `mlx5_core.sf.4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Numbers of its ports.
    pub ports: Vec<u32>,
    /// Its character devices.
    pub chars: Vec<CharDevice>,
    /// Whether it moves into the pod's network namespace. It does in the exclusive mode
    /// of the RDMA subsystem, except for admin access.
    #[serde(default)]
    pub moves: bool,
    /// RDMA parameters for applications on its ports.
    #[serde(default)]
    pub parameters: RdmaConfig,
}

impl Plan {
    /// Whether the claim was made for one pod, from a template. Others can be named by any pod.
    pub fn is_of_one_pod(&self) -> bool {
        self.pod_claim_name.is_some()
    }

    /// The interfaces that its pod gets.
    pub fn links(&self) -> impl Iterator<Item = &PlannedLink> {
        self.devices.iter().filter_map(|device| device.link.as_ref())
    }

    /// Removes the rate limit of links that have all of their device's bandwidth: the
    /// port itself limits them.
    pub fn unlimit_whole(&mut self, bandwidth: impl Fn(&PlannedDevice) -> Option<u64>) {
        for device in &mut self.devices {
            let whole = bandwidth(device);
            if let Some(link) = &mut device.link {
                link.rate = link.rate.filter(|rate| whole.is_none_or(|whole| *rate < whole));
            }
        }
    }

    /// The virtual functions that the claim configures.
    pub fn functions(&self) -> impl Iterator<Item = &PlannedFunction> {
        self.devices.iter().filter_map(|device| device.function.as_ref())
    }

    /// The devices described to containers, with their claims: its own and those of the
    /// pod's other claims. If there are other claims, they are sorted by PCI address.
    pub fn told(&self) -> Vec<(&ClaimRef, &PlannedDevice)> {
        let own = self.devices.iter().map(|device| (&self.claim, device));
        let beside = self.wiring.beside.iter();
        let beside = beside.flat_map(|it| it.devices.iter().map(|device| (&it.claim, device)));
        let mut told: Vec<_> = own.chain(beside).collect();
        if !self.wiring.beside.is_empty() {
            told.sort_by_key(|(claim, device)| (&device.pci_bus_id, &claim.uid));
        }
        told
    }
}

impl PlannedDevice {
    /// The name of the device that the scheduler allocated.
    pub fn allocated(&self) -> &str {
        self.place.as_deref().unwrap_or(&self.device)
    }

    /// Whether other claims can have parts of it.
    pub fn is_shared(&self) -> bool {
        self.share_id.is_some() && !self.is_whole
    }

    /// Its RDMA device, if that moves into the pod's network namespace.
    pub fn moving_rdma(&self) -> Option<&PlannedRdma> {
        self.rdma.as_ref().filter(|rdma| rdma.moves)
    }

    /// Whether any part of it moves into the pod's network namespace.
    pub fn moves(&self) -> bool {
        self.link.is_some() || self.moving_rdma().is_some()
    }
}

/// An interface for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedLink {
    /// Its state on the host, to be restored.
    pub host: HostLink,
    /// The kind of child interface that the pod gets; `None` if the interface itself moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Child>,
    /// A unique name for a child, derived from the claim's UID. It distinguishes the claim's
    /// interface from others of the pod, of other pods and of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<LinkName>,
    /// Rate limit in bits per second, if the claim has a part of the bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Its name in the pod.
    pub name: LinkName,
    /// Its complete configuration in the pod: the claim's, completed from the host's.
    pub config: NetworkConfig,
}

/// Prefix of the marks in [`PlannedLink::mark`].
pub const MARK: &str = "dranet";

/// The kind of an interface that is created on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Child {
    /// In the configured mode, by default `bridge`.
    MacVlan,
    /// Mode `l2`.
    IpVlan,
    /// Datagram mode, in the configured partition, if any.
    IpoIb,
}

impl fmt::Display for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MacVlan => "macvlan",
            Self::IpVlan => "ipvlan",
            Self::IpoIb => "ipoib",
        })
    }
}

/// The topology of a claim's devices, and what is known about them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wiring {
    /// The GPUs of the claim, in the order of the allocation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<PlannedGpu>,
    /// The topology as an NCCL topology file, if it says anything about the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nccl: Option<String>,
    /// Whether containers get this file only if the operator wants it: NCCL and RCCL find as much, or
    /// more, by themselves.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nccl_on_request: bool,
    /// Attributes of this driver's devices by device name, as in the slice.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, BTreeMap<String, Value>>,
    /// The other claims of the pod, whose devices are described too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Companion>,
}

/// A GPU that a device plugin gave the pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginGpu {
    /// The extended resource.
    pub resource: String,
    /// The ID that the device plugin gave it.
    pub id: String,
    /// Its PCI address.
    #[serde(rename = "pciBusID")]
    pub pci_bus_id: PciAddress,
    /// Its UUID, if its driver shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

/// A GPU of another driver in the claim, and the NICs assigned to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedGpu {
    /// The request that it satisfies.
    pub request: String,
    /// Its driver.
    pub driver: String,
    /// Its name in the slice.
    pub device: String,
    /// Its PCI address, if its driver publishes it.
    #[serde(default, rename = "pciBusID", skip_serializing_if = "Option::is_none")]
    pub pci_bus_id: Option<String>,
    /// Its UUID, if its driver publishes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The claim's NICs that are assigned to it, nearest first.
    pub nics: Vec<NearNic>,
}

/// A NIC that is assigned to a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NearNic {
    /// Its name in the slice.
    pub device: String,
    /// Its RDMA device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_device: Option<String>,
    /// Its distance, as `nvidia-smi topo -m` names it.
    pub path: String,
}

/// Another claim of the same pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Companion {
    /// The claim.
    pub claim: ClaimRef,
    /// Its devices of this driver.
    pub devices: Vec<PlannedDevice>,
    /// Its devices of other drivers.
    pub others: Vec<OtherDevice>,
}

impl From<&Plan> for Companion {
    fn from(plan: &Plan) -> Self {
        let (devices, others) = (plan.devices.clone(), plan.others.clone());
        Self { claim: plan.claim.clone(), devices, others }
    }
}

/// A character device below `/dev/infiniband`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CharDevice {
    /// Its name, `uverbs0`.
    pub name: String,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}
