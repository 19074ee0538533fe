//! Interfaces into a pod's network namespace and back, and RDMA devices where the
//! RDMA subsystem is in exclusive mode.
//!
//! Into it by `node-driver attach`, an OCI `createRuntime` hook that the CDI
//! spec names: the runtime starts it in the host's namespaces before the
//! container's first process, and its failure fails the container. Or by the
//! driver itself, as an [NRI plugin](crate::runtime::nri). Back by the driver, when the claim
//! is unprepared. All effects, no decision: all do what the plan says.

mod children;
mod configure;
pub mod dhcp;
mod ebpf;
pub mod enter;
pub mod ethtool;
pub mod functions;
pub mod hook;
pub mod host_links;
mod identity;
pub mod leave;
pub mod link;
pub mod namespaces;
pub mod netns;
pub mod rdma;
pub mod record;
mod settings;
mod shaping;
mod sysctl;

use crate::facts::network::kernel::NetworkError;
use crate::kernel::attach::dhcp::LeaseError;
use crate::kernel::attach::ethtool::EthtoolError;
use crate::kernel::attach::netns::NetNs;
use crate::prepare::claim::ClaimRef;
use crate::prepare::durable::FileError;
use crate::prepare::plan::{Plan, PlannedLink};
use cluster_model::network_config::LinkName;
use std::io;

/// The kernel's settings of networks, of the calling thread's namespace; read-only in most
/// containers.
pub const SYSCTL: &str = "/proc/sys/net";

/// An interface could not be moved or configured.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel refused.
    #[error("interface `{link}`: failed to {verb}")]
    Netlink {
        /// Which one, by the name that it had then.
        link: String,
        /// What was tried.
        verb: String,
        /// What the kernel said.
        source: rtnetlink::Error,
    },
    /// A namespace could not be opened or entered, or a file not written.
    #[error("failed to {verb}")]
    System {
        /// What was tried.
        verb: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is in no namespace that can be seen.
    #[error(
        "interface `{link}` is not in the host's network namespace; it was removed, or another pod has it"
    )]
    Gone {
        /// Its name on the host.
        link: String,
    },
    /// The RDMA device is in no namespace that can be seen.
    #[error(
        "RDMA device `{name}` is not in the host's network namespace; it was removed, or another pod has it"
    )]
    NoRdma {
        /// Its name.
        name: String,
    },
    /// The driver of a physical function has no such setting.
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
    /// The record of it could not be written.
    #[error(transparent)]
    Record(#[from] FileError),
    /// It cannot have the features that are asked for.
    #[error(transparent)]
    Ethtool(#[from] EthtoolError),
    /// No DHCP server has given an address.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The pod has no network of its own.
    #[error(
        "pod of claim `{claim}` uses the host's network, which already has the interfaces; remove `hostNetwork`"
    )]
    HostNetwork {
        /// Which claim.
        claim: ClaimRef,
    },
    /// A pod that runs has them.
    #[error(
        "interfaces of claim `{claim}` are in another running pod, and can be in one pod only; give each pod its own claim by a ResourceClaimTemplate"
    )]
    InUse {
        /// Which claim.
        claim: ClaimRef,
    },
    /// The pod has another interface of that name.
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
    /// How the interfaces of this plan get into its pod. NRI holds up every pod of the
    /// node while a plugin answers, closes a plugin that takes longer than two seconds
    /// (`plugin_request_timeout`), and a container may not write below `/proc/sys`. So an
    /// address by DHCP and the kernel's settings of an interface are the hook's, whose
    /// one container alone waits, and with them all of the claim.
    #[must_use]
    pub fn of(self, plan: &Plan) -> Self {
        let needs_hook = |link: &PlannedLink| {
            let interface = &link.config.interface;
            interface.dhcp == Some(true) || sysctl::has_any(interface)
        };
        let mut links = plan.devices.iter().filter_map(|device| device.link.as_ref());
        if links.any(needs_hook) { Self::Hook } else { self }
    }
}

/// Whether a pod has a network of its own. Without one RDMA devices are there already,
/// and an interface cannot be moved.
pub fn is_separate(plan: &Plan, host: &NetNs, pod: &NetNs) -> Result<bool, AttachError> {
    if pod.id()? != host.id()? {
        return Ok(true);
    }
    let has_link = plan.devices.iter().any(|device| device.link.is_some());
    if has_link { Err(AttachError::HostNetwork { claim: plan.claim.clone() }) } else { Ok(false) }
}
