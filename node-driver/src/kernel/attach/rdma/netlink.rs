//! RDMA netlink: the index of a device, and its move to another namespace.
//!
//! A socket belongs to the namespace of the thread that opened it, so every
//! function here works on the calling thread's.

use crate::facts::rdma::wire::{GET, INDEX, NAME, NETNS_FD, Nldev, SET};
use crate::facts::rdma::wire::{Reply, has_no_rdma};
use rustix::fd::{AsFd, AsRawFd};
use std::io;

/// Whether a device is in the calling thread's namespace, and under which index.
pub(super) fn index_of(name: &str) -> io::Result<Option<u32>> {
    let replies = match Nldev::open().and_then(|nldev| nldev.dump(GET, &[])) {
        Err(error) if has_no_rdma(&error) => return Ok(None),
        replies => replies?,
    };
    let is_it = |reply: &&Reply| reply.text(NAME) == Some(name);
    Ok(replies.iter().find(is_it).and_then(|reply| reply.number(INDEX)))
}

/// Moves a device from the calling thread's namespace to another. Its open
/// handles are closed by the kernel.
pub(super) fn move_to(index: u32, namespace: &impl AsFd) -> io::Result<()> {
    let fd = namespace.as_fd().as_raw_fd();
    let attributes = [(INDEX, index.to_ne_bytes()), (NETNS_FD, fd.to_ne_bytes())];
    Nldev::open()?.change(SET, &attributes)
}
