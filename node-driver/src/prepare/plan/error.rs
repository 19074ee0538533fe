//! Why a claim's requests cannot be fulfilled. Messages are for the claim's author.

use crate::kernel::attach::ethtool::EthtoolError;
use crate::model::claim::ClaimRef;
use crate::model::plan::Child;
use cluster_model::network_config::{ConfigError, LinkName};
use publication::network::Withheld;
use std::net::IpAddr;

/// The claim's requests cannot be fulfilled.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The machine has no such device.
    #[error("device `{device}` is not on this machine; it has {present}")]
    UnknownDevice {
        /// The device.
        device: String,
        /// Devices of the machine.
        present: String,
    },
    /// Another claim holds the device.
    #[error("device `{device}` is held by claim `{holder}`, whose pod still uses it")]
    Held {
        /// The device.
        device: String,
        /// The claim that holds it.
        holder: ClaimRef,
    },
    /// Its character device does not exist.
    #[error(
        "device `{device}`: `/dev/infiniband/{missing}` does not exist; is the module ib_uverbs loaded?"
    )]
    NoCharDevice {
        /// The device.
        device: String,
        /// What is missing.
        missing: String,
    },
    /// Its interface is not in the host's network namespace.
    #[error(
        "device `{device}` has no interface in the host's network namespace; a pod that ends may still have it"
    )]
    NoLink {
        /// The device.
        device: String,
    },
    /// The interface carries the node's own traffic.
    #[error(
        "device `{device}`: interface `{link}` carries the node's own traffic, by its default route or to the API server, and stays with the host"
    )]
    Uplink {
        /// The device.
        device: String,
        /// Its interface.
        link: String,
    },
    /// The host or pods use the interface otherwise.
    #[error("device `{device}`: interface `{link}` stays with the host: {reason}")]
    Used {
        /// The device.
        device: String,
        /// Its interface.
        link: String,
        /// Who uses it.
        reason: Withheld,
    },
    /// The interface is a member of another interface of the host.
    #[error(
        "device `{device}`: interface `{link}` belongs to `{master}`, a bond, bridge or virtual switch of the host, and stays with it"
    )]
    Member {
        /// The device.
        device: String,
        /// Its interface.
        link: String,
        /// The interface that it is a member of.
        master: String,
    },
    /// The interface joins the ports of the device.
    #[error(
        "device `{device}`: interface `{link}` joins its ports, and the kernel moves no such interface into a pod; set `interface.type` to `macvlan` or `ipvlan`, or configure no interface"
    )]
    Bond {
        /// The device.
        device: String,
        /// Its interface.
        link: String,
    },
    /// Several pods share the claim, but an interface can be in only one pod.
    #[error(
        "device `{device}` has an interface, which only one pod can have, but the claim is reserved for {pods} pods"
    )]
    ManyPods {
        /// The device.
        device: String,
        /// The number of pods.
        pods: usize,
    },
    /// Several pods share the claim, but in exclusive mode an RDMA device can be in only
    /// one pod.
    #[error(
        "device `{device}` has an RDMA device, which only one pod can have while the node's RDMA subsystem is in exclusive mode, but the claim is reserved for {pods} pods"
    )]
    ExclusiveRdma {
        /// The device.
        device: String,
        /// The number of pods.
        pods: usize,
    },
    /// The device is shared, but in exclusive mode an RDMA device can be in only one pod.
    #[error(
        "device `{device}` is shared, and while the node's RDMA subsystem is in exclusive mode an RDMA device is in one pod only; set shared mode, or use whole devices"
    )]
    ExclusiveShare {
        /// The device.
        device: String,
    },
    /// A share of a device does not include its interface.
    #[error(
        "device `{device}` is shared, and its interface stays with the host; set `interface.type` to `macvlan` or `ipvlan`"
    )]
    SharedLink {
        /// The device.
        device: String,
    },
    /// Another claim has a child of another kind on the same interface.
    #[error(
        "device `{device}`: claim `{holder}` has a {theirs} on it, and an interface cannot have {asked} besides; set `interface.type` to `{theirs}`"
    )]
    OtherChild {
        /// The device.
        device: String,
        /// The claim with the other child.
        holder: ClaimRef,
        /// The kind of that child.
        theirs: Child,
        /// The requested kind.
        asked: Child,
    },
    /// The device is shared, but settings of a virtual function apply to all of it.
    #[error(
        "device `{device}` is shared, but `virtualFunction` needs the whole device; remove it, or request a whole device"
    )]
    SharedFunction {
        /// The device.
        device: String,
    },
    /// The device is not a virtual function.
    #[error(
        "device `{device}` is not a virtual function, but its configuration sets `virtualFunction`"
    )]
    NoVirtualFunction {
        /// The device.
        device: String,
    },
    /// The physical function has no interface that reports the virtual function.
    #[error(
        "device `{device}`: no interface of its physical function `{physical}` in the host's network namespace manages virtual functions, so `virtualFunction` cannot be set"
    )]
    NoPhysicalFunction {
        /// The device.
        device: String,
        /// The PCI address of its physical function.
        physical: String,
    },
    /// The requested port GUID could not be reverted after the claim.
    #[error(
        "device `{device}`: `virtualFunction.portGuid` cannot be set, because physical function `{physical}` reports no port GUID of the device that could be restored later; set one first, as the driver does for virtual functions that it creates"
    )]
    NoFormerGuid {
        /// The device.
        device: String,
        /// The PCI address of its physical function.
        physical: String,
    },
    /// This kind of child cannot be created on the interface.
    #[error(
        "device `{device}`: interface `{link}` does not support {asked}; set `interface.type` to `{fits}`"
    )]
    NoSuchChild {
        /// The device.
        device: String,
        /// Its interface.
        link: String,
        /// The requested kind.
        asked: Child,
        /// The kind that can be created.
        fits: Child,
    },
    /// Two pods on one NIC would have the same address.
    #[error("device `{device}`: address `{address}` is used by claim `{holder}` on the same NIC")]
    SameAddress {
        /// The device.
        device: String,
        /// The address.
        address: IpAddr,
        /// The claim that has it.
        holder: ClaimRef,
    },
    /// The device has no RDMA device for RDMA parameters.
    #[error("device `{device}` has no RDMA device, but its configuration sets `rdma`")]
    NoRdma {
        /// The device.
        device: String,
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
    /// Its configuration is malformed.
    #[error("device `{device}`")]
    Config {
        /// The device.
        device: String,
        /// What is wrong.
        source: ConfigError,
    },
    /// The interface does not support the requested features.
    #[error("device `{device}`")]
    Ethtool {
        /// The device.
        device: String,
        /// The reason.
        source: EthtoolError,
    },
    /// The MTU is larger than the physical function's, so packets would be lost.
    #[error(
        "device `{device}` is a virtual function: `interface.mtu` {mtu} is larger than the MTU {physical} of its physical function; lower it, or raise the physical function's"
    )]
    LargerMtu {
        /// The device.
        device: String,
        /// The requested MTU, in bytes.
        mtu: u32,
        /// The physical function's MTU, in bytes.
        physical: u32,
    },
    /// DHCP does not support IP over InfiniBand.
    #[error(
        "device `{device}`: `interface.dhcp` is for Ethernet, and interface `{link}` is IP over InfiniBand; set `interface.addresses`"
    )]
    DhcpOverInfiniBand {
        /// The device.
        device: String,
        /// Its interface.
        link: String,
    },
}
