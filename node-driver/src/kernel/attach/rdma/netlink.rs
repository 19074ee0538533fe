//! RDMA netlink: the index of a device, and its move to another namespace.
//!
//! A socket belongs to the namespace of the thread that opened it, so every function here
//! works on the calling thread's namespace.

use crate::kernel::nldev::has_no_rdma;
use crate::kernel::nldev::{GET, INDEX, NAME, NETNS_FD, Nldev, SET};
use rustix::fd::{AsFd, AsRawFd};
use std::io;

/// The index of a device; `None` if it is not in the calling thread's namespace.
pub(super) fn index_of(name: &str) -> io::Result<Option<u32>> {
    let replies = match Nldev::open().and_then(|nldev| nldev.dump(GET, &[])) {
        Err(error) if has_no_rdma(&error) => return Ok(None),
        replies => replies?,
    };
    Ok(replies
        .iter()
        .find(|reply| reply.text(NAME) == Some(name))
        .and_then(|reply| reply.number(INDEX)))
}

/// Moves a device from the calling thread's namespace to another. The kernel closes its open
/// handles.
pub(super) fn move_to(index: u32, namespace: &impl AsFd) -> io::Result<()> {
    let fd = namespace.as_fd().as_raw_fd();
    let attributes = [(INDEX, index.to_ne_bytes()), (NETNS_FD, fd.to_ne_bytes())];
    Nldev::open()?.change(SET, &attributes)
}
