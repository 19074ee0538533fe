//! The mode of the RDMA subsystem (`rdma-system(8)`): whether an RDMA device belongs to one
//! network namespace.

use super::wire::{NETNS_MODE, Nldev, SYSTEM_GET, has_no_rdma};
use std::io;

/// Which processes may open an RDMA device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetnsMode {
    /// Processes in all network namespaces.
    #[default]
    Shared,
    /// Processes in the device's network namespace.
    Exclusive,
}

impl NetnsMode {
    /// The word that `rdma system` uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Exclusive => "exclusive",
        }
    }
}

/// The mode of this machine; shared if the kernel has no RDMA or is older than 5.2, which
/// introduced the modes.
pub(crate) fn netns_mode() -> io::Result<NetnsMode> {
    let replies = match Nldev::open().and_then(|nldev| nldev.ask(SYSTEM_GET, &[])) {
        Err(error) if has_no_rdma(&error) => return Ok(NetnsMode::Shared),
        replies => replies?,
    };
    let mode = replies.iter().find_map(|reply| reply.byte(NETNS_MODE));
    Ok(if mode == Some(0) { NetnsMode::Exclusive } else { NetnsMode::Shared })
}
