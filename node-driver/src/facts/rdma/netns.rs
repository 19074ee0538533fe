//! Reads the mode of the RDMA subsystem.

use super::wire::{NETNS_MODE, Nldev, SYSTEM_GET, has_no_rdma};
use publication::netns_mode::NetnsMode;
use std::io;

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
