//! Why a claim cannot have what it asks for, in words that its author can act on.

use crate::kernel::attach::ethtool::EthtoolError;
use crate::prepare::claim::ClaimRef;
use crate::prepare::plan::Child;
use cluster_model::network_config::{ConfigError, LinkName};
use std::net::IpAddr;

/// The claim cannot have what it asks for.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// No such device.
    #[error("device `{device}` is not on this machine; it has {present}")]
    UnknownDevice {
        /// The device.
        device: String,
        /// Those that are there.
        present: String,
    },
    /// Another claim has it.
    #[error("device `{device}` is held by claim `{holder}`, whose pod still uses it")]
    Held {
        /// The device.
        device: String,
        /// Who has it.
        holder: ClaimRef,
    },
    /// Its character device is not there.
    #[error(
        "device `{device}`: `/dev/infiniband/{missing}` is not there; is the module ib_uverbs loaded?"
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
    /// It carries the node's own traffic.
    #[error(
        "device `{device}`: interface `{link}` is the node's own way, by its default route or to the API server, and stays with the host"
    )]
    Uplink {
        /// The device.
        device: String,
        /// Its interface.
        link: String,
    },
    /// It is part of another interface of the host's.
    #[error(
        "device `{device}`: interface `{link}` belongs to `{master}`, a bond, bridge or virtual switch of the host, and stays with it"
    )]
    Member {
        /// The device.
        device: String,
        /// Its interface.
        link: String,
        /// What it belongs to.
        master: String,
    },
    /// An interface can be in one pod only.
    #[error(
        "device `{device}` has an interface, which only one pod can have, but the claim is reserved for {pods} pods"
    )]
    ManyPods {
        /// The device.
        device: String,
        /// How many.
        pods: usize,
    },
    /// So can an RDMA device where the subsystem is in exclusive mode.
    #[error(
        "device `{device}` has an RDMA device, which only one pod can have while the node's RDMA subsystem is in exclusive mode, but the claim is reserved for {pods} pods"
    )]
    ExclusiveRdma {
        /// The device.
        device: String,
        /// How many.
        pods: usize,
    },
    /// Nor can the subsystem share one then.
    #[error(
        "device `{device}` is shared, and while the node's RDMA subsystem is in exclusive mode an RDMA device is in one pod only; set shared mode, or use whole devices"
    )]
    ExclusiveShare {
        /// The device.
        device: String,
    },
    /// A share is no whole interface.
    #[error(
        "device `{device}` is shared, and its interface stays with the host; set `interface.type` to `macvlan` or `ipvlan`"
    )]
    SharedLink {
        /// The device.
        device: String,
    },
    /// The kernel has children of one kind on an interface.
    #[error(
        "device `{device}`: claim `{holder}` has a {theirs} of it, and an interface has no {asked} beside that; set `interface.type` to `{theirs}`"
    )]
    OtherChild {
        /// The device.
        device: String,
        /// Whose child is there.
        holder: ClaimRef,
        /// Of which kind it is.
        theirs: Child,
        /// What is asked for.
        asked: Child,
    },
    /// Settings of a virtual function are set for all who have it.
    #[error(
        "device `{device}` is shared, but `virtualFunction` needs the whole device; remove it, or request a whole device"
    )]
    SharedFunction {
        /// The device.
        device: String,
    },
    /// It has no physical function to set them at.
    #[error(
        "device `{device}` is not a virtual function, but its configuration sets `virtualFunction`"
    )]
    NoVirtualFunction {
        /// The device.
        device: String,
    },
    /// Its physical function has no interface that tells of it.
    #[error(
        "device `{device}`: no interface of its physical function `{physical}` in the host's network namespace manages virtual functions, so `virtualFunction` cannot be set"
    )]
    NoPhysicalFunction {
        /// The device.
        device: String,
        /// The PCI address of its physical function.
        physical: String,
    },
    /// The kernel makes no such interface on this one.
    #[error(
        "device `{device}`: no {asked} can be made on interface `{link}`; set `interface.type` to `{fits}`"
    )]
    NoSuchChild {
        /// The device.
        device: String,
        /// Its interface.
        link: String,
        /// What is asked for.
        asked: Child,
        /// What can be made.
        fits: Child,
    },
    /// Two pods on one NIC would have one address.
    #[error("device `{device}`: address `{address}` is that of claim `{holder}` on the same NIC")]
    SameAddress {
        /// The device.
        device: String,
        /// The address.
        address: IpAddr,
        /// Who has it.
        holder: ClaimRef,
    },
    /// It has no RDMA ports to use parameters on.
    #[error("device `{device}` has no RDMA device, but its configuration sets `rdma`")]
    NoRdma {
        /// The device.
        device: String,
    },
    /// A container has one environment for all of its NICs.
    #[error(
        "devices `{device}` and `{other}` have different `rdma` parameters, but a container has one value of each for all NICs of a claim; use the same for both, or two pods"
    )]
    DifferentRdma {
        /// The device.
        device: String,
        /// The other one.
        other: String,
    },
    /// Two interfaces of one claim would have one name.
    #[error(
        "two devices of the claim would be named `{name}` in the pod; name them by separate configurations"
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
    /// Its interface cannot have the features that are asked for.
    #[error("device `{device}`")]
    Ethtool {
        /// The device.
        device: String,
        /// What is asked for, and what it has.
        source: EthtoolError,
    },
    /// Packets of that size would be lost.
    #[error(
        "device `{device}` is a virtual function: `interface.mtu` {mtu} is larger than the {physical} of its physical function; lower it, or raise that one's"
    )]
    LargerMtu {
        /// The device.
        device: String,
        /// What is asked for, in bytes.
        mtu: u32,
        /// What its physical function has, in bytes.
        physical: u32,
    },
    /// DHCP knows it not.
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
