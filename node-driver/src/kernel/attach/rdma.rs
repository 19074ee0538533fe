//! Moves RDMA devices into a pod's namespace and back if the RDMA subsystem is in exclusive
//! mode: a device is then in one network namespace, and only processes in that namespace can
//! open it (`rdma-system(8)`, `rdma-dev(8)`). Each function works on the calling thread's
//! namespace.

mod netlink;

use crate::kernel::attach::AttachError;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::nldev::{NETNS_MODE, Nldev, SYSTEM_GET, has_no_rdma};
pub use publication::netns_mode::NetnsMode;
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

/// Whether a device is in this namespace.
pub(super) fn is_here(name: &str) -> Result<bool, AttachError> {
    index_of(name).map(|index| index.is_some())
}

/// Moves a device from this namespace into another; `whose` names that namespace in errors.
/// Returns false if the device is not here: the kernel itself moves devices out of a namespace
/// that has ended.
pub(super) fn send(name: &str, to: &NetNs, whose: &str) -> Result<bool, AttachError> {
    let Some(index) = index_of(name)? else { return Ok(false) };
    let moved = netlink::move_to(index, to);
    moved.map(|()| true).map_err(|source| {
        AttachError::system(
            format!("move RDMA device `{name}` into the {whose} network namespace"),
            source,
        )
    })
}

fn index_of(name: &str) -> Result<Option<u32>, AttachError> {
    netlink::index_of(name)
        .map_err(|source| AttachError::system(format!("look for RDMA device `{name}`"), source))
}
