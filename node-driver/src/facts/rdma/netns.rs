//! The mode of the RDMA subsystem (`rdma-system(8)`): whether an RDMA device belongs to one
//! network namespace.

use super::wire::{NETNS_MODE, Nldev, SYSTEM_GET, has_no_rdma};
use std::io;

/// Which processes may open an RDMA device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetnsMode {
    /// Those of all network namespaces.
    #[default]
    Shared,
    /// Those of the device's own.
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

/// The mode of this machine; shared if the kernel has no RDMA, or is older than the modes (5.2).
pub(crate) fn netns_mode() -> io::Result<NetnsMode> {
    let replies = match Nldev::open().and_then(|nldev| nldev.ask(SYSTEM_GET, &[])) {
        Err(error) if has_no_rdma(&error) => return Ok(NetnsMode::Shared),
        replies => replies?,
    };
    let mode = replies.iter().find_map(|reply| reply.byte(NETNS_MODE));
    Ok(if mode == Some(0) { NetnsMode::Exclusive } else { NetnsMode::Shared })
}
