//! Why a claim's requests cannot be fulfilled. Messages are for the claim's author.

use crate::kernel::attach::ethtool::EthtoolError;
use crate::model::claim::ClaimRef;
use crate::model::plan::Child;
use cluster_model::network_config::{ConfigError, LinkName};
use process::chain::Chain;
use publication::network::Withheld;
use std::net::IpAddr;

/// The claim's requests cannot be fulfilled.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A device cannot be given as requested.
    #[error("device `{device}`{why}")]
    Device {
        /// The device.
        device: String,
        /// Why.
        why: Refusal,
    },
    /// Devices of the pod have different RDMA parameters, but a container has one
    /// environment.
    #[error(
        "devices `{device}` and `{other}` have different `rdma` parameters, but a container has one value of each for all NICs of a claim; use the same for both, or two pods"
    )]
    DifferentRdma {
        /// The device.
        device: String,
        /// The other device.
        other: String,
    },
    /// Two interfaces of the claim would have the same name.
    #[error(
        "two devices of the claim would be named `{name}` in the pod; name them in separate configurations"
    )]
    SameName {
        /// The name.
        name: LinkName,
    },
}

impl PlanError {
    pub(super) fn of(device: &str) -> impl Fn(Refusal) -> Self {
        move |why| Self::Device { device: device.to_owned(), why }
    }
}

/// Why a device cannot be given as requested. A text goes on after the device's name.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The machine has no such device.
    #[error(" is not on this machine; it has {present}")]
    UnknownDevice {
        /// Devices of the machine.
        present: String,
    },
    /// Another claim holds the device.
    #[error(" is held by claim `{holder}`, whose pod still uses it")]
    Held {
        /// The claim that holds it.
        holder: ClaimRef,
    },
    /// Its character device does not exist.
    #[error(": `/dev/infiniband/{missing}` does not exist; is the module ib_uverbs loaded?")]
    NoCharDevice {
        /// What is missing.
        missing: String,
    },
    /// Its interface is not in the host's network namespace.
    #[error(" has no interface in the host's network namespace; a pod that ends may still have it")]
    NoLink,
    /// The interface carries the node's own traffic.
    #[error(
        ": interface `{link}` carries the node's own traffic, by its default route or to the API server, and stays with the host"
    )]
    Uplink {
        /// Its interface.
        link: String,
    },
    /// The host or pods use the interface otherwise.
    #[error(": interface `{link}` stays with the host: {reason}")]
    Used {
        /// Its interface.
        link: String,
        /// Who uses it.
        reason: Withheld,
    },
    /// The interface is a member of another interface of the host.
    #[error(
        ": interface `{link}` belongs to `{master}`, a bond, bridge or virtual switch of the host, and stays with it"
    )]
    Member {
        /// Its interface.
        link: String,
        /// The interface that it is a member of.
        master: String,
    },
    /// The interface joins the ports of the device.
    #[error(
        ": interface `{link}` joins its ports, and the kernel moves no such interface into a pod; set `interface.type` to `macvlan` or `ipvlan`, or configure no interface"
    )]
    Bond {
        /// Its interface.
        link: String,
    },
    /// Several pods share the claim, but an interface can be in only one pod.
    #[error(
        " has an interface, which only one pod can have, but the claim is reserved for {pods} pods"
    )]
    ManyPods {
        /// The number of pods.
        pods: usize,
    },
    /// Several pods share the claim, but in exclusive mode an RDMA device can be in only
    /// one pod.
    #[error(
        " has an RDMA device, which only one pod can have while the node's RDMA subsystem is in exclusive mode, but the claim is reserved for {pods} pods"
    )]
    ExclusiveRdma {
        /// The number of pods.
        pods: usize,
    },
    /// The device is shared, but in exclusive mode an RDMA device can be in only one pod.
    #[error(
        " is shared, and while the node's RDMA subsystem is in exclusive mode an RDMA device is in one pod only; set shared mode, or use whole devices"
    )]
    ExclusiveShare,
    /// A share of a device does not include its interface.
    #[error(
        " is shared, and its interface stays with the host; set `interface.type` to `macvlan` or `ipvlan`"
    )]
    SharedLink,
    /// Another claim has a child of another kind on the same interface.
    #[error(
        ": claim `{holder}` has a {theirs} on it, and an interface cannot have {asked} besides; set `interface.type` to `{theirs}`"
    )]
    OtherChild {
        /// The claim with the other child.
        holder: ClaimRef,
        /// The kind of that child.
        theirs: Child,
        /// The requested kind.
        asked: Child,
    },
    /// The device is shared, but settings of a virtual function apply to all of it.
    #[error(
        " is shared, but `virtualFunction` needs the whole device; remove it, or request a whole device"
    )]
    SharedFunction,
    /// The device is not a virtual function.
    #[error(" is not a virtual function, but its configuration sets `virtualFunction`")]
    NoVirtualFunction,
    /// The physical function has no interface that reports the virtual function.
    #[error(
        ": no interface of its physical function `{physical}` in the host's network namespace manages virtual functions, so `virtualFunction` cannot be set"
    )]
    NoPhysicalFunction {
        /// The PCI address of its physical function.
        physical: String,
    },
    /// The requested port GUID could not be reverted after the claim.
    #[error(
        ": `virtualFunction.portGuid` cannot be set, because physical function `{physical}` reports no port GUID of the device that could be restored later; set one first, as the driver does for virtual functions that it creates"
    )]
    NoFormerGuid {
        /// The PCI address of its physical function.
        physical: String,
    },
    /// This kind of child cannot be created on the interface.
    #[error(": interface `{link}` does not support {asked}; set `interface.type` to `{fits}`")]
    NoSuchChild {
        /// Its interface.
        link: String,
        /// The requested kind.
        asked: Child,
        /// The kind that can be created.
        fits: Child,
    },
    /// Two pods on one NIC would have the same address.
    #[error(": address `{address}` is used by claim `{holder}` on the same NIC")]
    SameAddress {
        /// The address.
        address: IpAddr,
        /// The claim that has it.
        holder: ClaimRef,
    },
    /// The device has no RDMA device for RDMA parameters.
    #[error(" has no RDMA device, but its configuration sets `rdma`")]
    NoRdma,
    /// Its configuration is malformed.
    #[error(": {}", Chain(.0))]
    Config(ConfigError),
    /// The interface does not support the requested features.
    #[error(": {}", Chain(.0))]
    Ethtool(EthtoolError),
    /// The MTU is larger than the physical function's, so packets would be lost.
    #[error(
        " is a virtual function: `interface.mtu` {mtu} is larger than the MTU {physical} of its physical function; lower it, or raise the physical function's"
    )]
    LargerMtu {
        /// The requested MTU, in bytes.
        mtu: u32,
        /// The physical function's MTU, in bytes.
        physical: u32,
    },
    /// DHCP does not support IP over InfiniBand.
    #[error(
        ": `interface.dhcp` is for Ethernet, and interface `{link}` is IP over InfiniBand; set `interface.addresses`"
    )]
    DhcpOverInfiniBand {
        /// Its interface.
        link: String,
    },
}
