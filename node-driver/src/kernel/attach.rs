//! Moves interfaces into a pod's network namespace and back, and RDMA devices too if the
//! RDMA subsystem is in exclusive mode.
//!
//! Into the pod: by `node-driver attach`, an OCI `createRuntime` hook that the CDI spec
//! names. The runtime starts it in the host's namespaces before the container's first
//! process; if it fails, the container fails. Or by the driver itself, as an [NRI
//! plugin](crate::runtime::nri). Back to the host: by the driver, when the claim is
//! unprepared. This module only carries out the plan; it decides nothing.

mod addresses;
mod attributes;
mod children;
mod configure;
pub mod dhcp;
mod ebpf;
pub mod enter;
pub mod ethtool;
mod flags;
pub mod host_links;
mod identity;
mod ip_settings;
pub mod known;
pub mod leave;
pub mod link;
pub mod multipath;
mod names;
pub mod namespaces;
mod napi;
mod neighbor_settings;
mod neighbors;
pub mod netns;
pub mod node_network;
mod own_network;
mod own_table;
#[cfg(test)]
pub(crate) mod played;
mod pod_settings;
pub mod rdma;
pub mod record;
mod route_message;
mod routes;
mod rules;
mod same_network;
mod setting;
pub mod settings;
mod shaping;
mod sysctl;
mod up;
mod uplink;
pub mod virtual_function_settings;

use crate::kernel::attach::dhcp::LeaseError;
use crate::kernel::attach::ethtool::EthtoolError;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::network::NetworkError;
use crate::model::claim::ClaimRef;
use crate::model::plan::Plan;
use cluster_model::network_config::{IpPrefix, LinkName};
use node_files::durable::FileError;
use std::io;

/// The kernel's network settings of the calling thread's namespace; read-only in most
/// containers.
pub const SYSCTL: &str = "/proc/sys/net";

/// An interface could not be moved or configured.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel refused.
    #[error("interface `{link}`: failed to {verb}")]
    Netlink {
        /// The interface's name at that time.
        link: String,
        /// The attempted action.
        verb: String,
        /// The kernel's error.
        source: rtnetlink::Error,
    },
    /// A namespace could not be opened or entered, or a file not written.
    #[error("failed to {verb}")]
    System {
        /// The attempted action.
        verb: String,
        /// The system's error.
        source: io::Error,
    },
    /// The interface is in no visible namespace.
    #[error(
        "interface `{link}` is not in the host's network namespace; it was removed, or another pod has it"
    )]
    Gone {
        /// Its name on the host.
        link: String,
    },
    /// The node uses the interface itself.
    #[error(
        "the node's own traffic now goes through interface `{link}`, by a default route that it did not have when the claim was prepared; it stays with the host"
    )]
    Uplink {
        /// Its name on the host.
        link: String,
    },
    /// The RDMA device is in no visible namespace.
    #[error(
        "RDMA device `{name}` is not in the host's network namespace; it was removed, or another pod has it"
    )]
    NoRdma {
        /// Its name.
        name: String,
    },
    /// The driver of a physical function does not support this setting.
    #[error(
        "interface `{link}`: its driver does not set `{field}` of virtual functions; remove it from the network configuration"
    )]
    NoFunctionSetting {
        /// The physical function's interface.
        link: String,
        /// The field of the network configuration.
        field: &'static str,
    },
    /// The host's interfaces could not be read.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The attach record could not be written.
    #[error(transparent)]
    Record(#[from] FileError),
    /// The interface does not support the requested features.
    #[error(transparent)]
    Ethtool(#[from] EthtoolError),
    /// No DHCP server has answered with an address.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The pod uses the host's network.
    #[error(
        "pod of claim `{claim}` uses the host's network, which already has the interfaces; remove `hostNetwork`"
    )]
    HostNetwork {
        /// The claim.
        claim: ClaimRef,
    },
    /// The claim has ended.
    #[error(
        "claim `{claim}` is not prepared on this node any more; delete the pod, and another one gets its devices"
    )]
    Ended {
        /// The claim.
        claim: String,
    },
    /// A running pod has the interfaces.
    #[error(
        "interfaces of claim `{claim}` are in another running pod, and can be in one pod only; give each pod its own claim by a ResourceClaimTemplate"
    )]
    InUse {
        /// The claim.
        claim: ClaimRef,
    },
    /// The pod cannot have IPv6 addresses.
    #[error(
        "interface `{link}`: the pod's network has no IPv6, but the claim asks for address `{address}`; enable IPv6 for the pod's network, or remove the address"
    )]
    NoIpv6 {
        /// The interface's name in the pod.
        link: String,
        /// The address.
        address: IpPrefix,
    },
    /// The interface has come back with more programs than it had.
    #[error(
        "interface `{link}` has eBPF programs that it did not have before the pod; if the pod left them, remove them, for example by `ip link set {link} xdp off`"
    )]
    NewPrograms {
        /// The interface.
        link: String,
    },
    /// The pod removed eBPF programs of the host that the kernel no longer has.
    #[error(
        "interface `{link}` had eBPF programs on the host that the pod removed, with the IDs {ids}; whoever attached them must attach them again"
    )]
    LostPrograms {
        /// The interface.
        link: String,
        /// Their IDs.
        ids: String,
    },
    /// The pod already has another interface with that name.
    #[error(
        "the pod already has an interface `{name}`; set another `interface.name` in the network configuration"
    )]
    NameTaken {
        /// The name.
        name: LinkName,
    },
}

impl AttachError {
    fn netlink(link: &str, verb: impl Into<String>, source: rtnetlink::Error) -> Self {
        Self::Netlink { link: link.to_owned(), verb: verb.into(), source }
    }

    fn system(verb: impl Into<String>, source: io::Error) -> Self {
        Self::System { verb: verb.into(), source }
    }
}

/// How interfaces get into pods.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// By a hook in the CDI spec, which the container runtime runs.
    #[default]
    Hook,
    /// By the driver as an NRI plugin.
    Nri,
}

impl AttachMode {
    /// Decides how this plan's interfaces get into the pod. With NRI, every pod start on
    /// the node waits for a plugin's answer, the runtime disconnects a plugin that takes
    /// longer than two seconds (`plugin_request_timeout`), and a container cannot write
    /// below `/proc/sys`. So if an interface needs DHCP or kernel settings, the hook
    /// attaches the whole claim: only the claim's own container waits for it.
    #[must_use]
    pub fn of(self, plan: &Plan) -> Self {
        let mut interfaces = plan.links().map(|link| &link.config.interface);
        let needs_hook = interfaces.any(|it| it.dhcp == Some(true) || sysctl::has_any(it));
        if needs_hook { Self::Hook } else { self }
    }
}

/// Whether the pod has a network namespace of its own. Without one, RDMA devices are
/// already visible and an interface cannot be moved.
pub fn is_separate(plan: &Plan, host: &NetNs, pod: &NetNs) -> Result<bool, AttachError> {
    if !pod.is_same(host)? {
        return Ok(true);
    }
    let has_link = plan.devices.iter().any(|device| device.link.is_some());
    if has_link { Err(AttachError::HostNetwork { claim: plan.claim.clone() }) } else { Ok(false) }
}
