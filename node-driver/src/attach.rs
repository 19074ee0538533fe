//! Interfaces into a pod's network namespace and back, and RDMA devices where the
//! RDMA subsystem is in exclusive mode.
//!
//! Into it by `node-driver attach`, an OCI `createRuntime` hook that the CDI
//! spec names: the runtime starts it in the host's namespaces before the
//! container's first process, and its failure fails the container. Back by the
//! driver, when the claim is unprepared. All effects, no decision: both do what
//! the plan says.

mod children;
pub mod enter;
pub mod hook;
pub mod leave;
pub mod link;
pub mod namespaces;
pub mod netns;
pub mod rdma;
pub mod record;
mod sysctl;

use cluster_model::network_config::LinkName;
use std::io;

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
    /// The pod has another interface of that name.
    #[error(
        "the pod has an interface `{name}` already; name another by `interface.name` of the network configuration"
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
