//! What a claim's pod gets: character devices, interfaces with their
//! configuration. A pure function of the claim, the node's devices and what
//! other claims hold; the plan is what the checkpoint keeps.

mod cloud;
mod decide;
mod error;
mod link;

use crate::prepare::claim::{ClaimRef, OtherDevice, PodRef};
use crate::prepare::host_link::HostLink;
use crate::prepare::inventory::CharDevice;
use cluster_model::network_config::{LinkName, NetworkConfig, RdmaConfig, VirtualFunctionConfig};
pub use decide::{Facts, Policy, plan};
pub use error::PlanError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

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
    /// `rdma_cm`, where one of them has RDMA.
    pub rdma_cm: Option<CharDevice>,
    /// An IMEX channel, where the operator gives it beside NICs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imex: Option<CharDevice>,
    /// Other drivers' devices in the claim.
    pub others: Vec<OtherDevice>,
    /// Its name in the pod, where it was made from a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_claim_name: Option<String>,
    /// How its devices lie, as files in the container tell.
    #[serde(default)]
    pub wiring: Wiring,
    /// The boot for which its kernel names and device numbers hold; absent in plans of
    /// drivers that did not record it, and where the machine does not tell its boot.
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
    /// Which share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// Given besides whoever holds it.
    #[serde(default)]
    pub admin_access: bool,
    /// Its PCI address; empty for a virtual interface.
    pub pci_bus_id: String,
    /// Its RDMA device.
    pub rdma: Option<PlannedRdma>,
    /// Its interface, to be moved into the pod.
    pub link: Option<PlannedLink>,
    /// Of a virtual function: what its physical function is to let it do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<PlannedFunction>,
}

/// A virtual function with settings of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedFunction {
    /// The PCI address of its physical function.
    pub physical: String,
    /// The interface of that.
    pub link: String,
    /// Its number there.
    pub index: u32,
    /// What it is to have.
    pub asked: VirtualFunctionConfig,
    /// What it had, and shall have again.
    pub former: VirtualFunctionConfig,
}

/// An RDMA device for a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedRdma {
    /// Kernel name, `mlx5_0`.
    pub name: String,
    /// Numbers of its ports.
    pub ports: Vec<u32>,
    /// Its character devices.
    pub chars: Vec<CharDevice>,
    /// Whether it is to be moved into the pod's network namespace: so in the
    /// exclusive mode of the RDMA subsystem, save for monitoring.
    #[serde(default)]
    pub moves: bool,
    /// What applications are told to use on its ports.
    #[serde(default)]
    pub parameters: RdmaConfig,
}

impl Plan {
    /// The interfaces that its pod gets.
    pub fn links(&self) -> impl Iterator<Item = &PlannedLink> {
        self.devices.iter().filter_map(|device| device.link.as_ref())
    }

    /// Who has all of a device's bandwidth is held to nothing: the port does it.
    pub fn free_whole(&mut self, bandwidth: impl Fn(&PlannedDevice) -> Option<u64>) {
        for device in &mut self.devices {
            let whole = bandwidth(device);
            if let Some(link) = &mut device.link {
                link.rate = link.rate.filter(|rate| whole.is_none_or(|whole| *rate < whole));
            }
        }
    }

    /// The virtual functions whose settings are the claim's.
    pub fn functions(&self) -> impl Iterator<Item = &PlannedFunction> {
        self.devices.iter().filter_map(|device| device.function.as_ref())
    }

    /// The devices that a container is told of, with their claims: its own, and those
    /// of its pod's other claims, in the order of their places then.
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
    /// Its RDMA device, where that goes into the pod's network namespace.
    pub fn moving_rdma(&self) -> Option<&PlannedRdma> {
        self.rdma.as_ref().filter(|rdma| rdma.moves)
    }

    /// Whether anything of it goes into the pod's network namespace.
    pub fn moves(&self) -> bool {
        self.link.is_some() || self.moving_rdma().is_some()
    }
}

/// An interface for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedLink {
    /// How the host has it, and shall have it again.
    pub host: HostLink,
    /// Where the pod gets a child of it, and the host keeps it: of what kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Child>,
    /// A name of no other interface's, for one that the kernel gives to the host when the pod's
    /// network ends: by it the host's is told from the claim's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<LinkName>,
    /// What it may send, in bits per second, where the claim has a part of the bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Its name in the pod.
    pub name: LinkName,
    /// Its whole configuration in the pod: the claim's, completed from the host's.
    pub config: NetworkConfig,
}

/// How the marks of [`PlannedLink::mark`] begin.
pub const MARK: &str = "dranet";

/// An interface that is made on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Child {
    /// Bridge mode: the children of one NIC reach each other.
    MacVlan,
    /// Mode `l2`.
    IpVlan,
    /// Datagram mode, in a partition of its own where the configuration names one.
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

/// How the devices of a claim lie, and what is known of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wiring {
    /// The GPUs of the claim, in the order of the allocation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<PlannedGpu>,
    /// The graph as an NCCL topology file, where it tells anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nccl: Option<String>,
    /// Attributes of our devices by name, as the slice has them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, BTreeMap<String, Value>>,
    /// The other claims of the pod, whose devices are told of too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Companion>,
}

/// A GPU of another driver in the claim, and the NICs that go with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedGpu {
    /// The request that it satisfies.
    pub request: String,
    /// Its driver.
    pub driver: String,
    /// Its name in the slice.
    pub device: String,
    /// Where it is, where its driver tells.
    #[serde(default, rename = "pciBusID", skip_serializing_if = "Option::is_none")]
    pub pci_bus_id: Option<String>,
    /// Its UUID, where its driver tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The NICs of the claim that are for it, nearest first.
    pub nics: Vec<NearNic>,
}

/// A NIC beside a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NearNic {
    /// Its name in the slice.
    pub device: String,
    /// Its RDMA device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_device: Option<String>,
    /// How far it is, in the words of `nvidia-smi topo -m`.
    pub path: String,
}

/// Another claim of the same pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Companion {
    /// Which one.
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

#[cfg(test)]
mod tests;
