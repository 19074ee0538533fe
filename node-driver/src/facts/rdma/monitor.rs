//! Listens for changes of RDMA devices and of their ports' interfaces: the multicast
//! group `RDMA_NL_GROUP_NOTIFY`, which exists since Linux 6.12 (`rdma_nl_notify_event` in
//! `drivers/infiniband/core/nldev.c`).

use crate::kernel::nldev::{MONITOR_MODE, Nldev, Reply, SYSTEM_GET, has_no_rdma};
use bytes::BytesMut;
use netlink_sys::protocols::NETLINK_RDMA;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use std::io;

/// `RDMA_NL_GROUP_NOTIFY`, as a bit mask.
const GROUP_NOTIFY: u32 = 1 << (4 - 1);
/// More bytes than any notification has.
const MAX_EVENT_BYTES: usize = 4096;
/// `include/uapi/asm-generic/errno.h`.
const ENOBUFS: i32 = 105;

/// A socket that receives the kernel's notifications.
pub(crate) struct Monitor {
    socket: TokioSocket,
    buffer: BytesMut,
}

impl Monitor {
    /// Opens the socket; `None` if the kernel sends no notifications.
    pub(crate) fn open() -> io::Result<Option<Self>> {
        match Nldev::open().and_then(|nldev| nldev.ask(SYSTEM_GET, &[])) {
            Ok(replies) if notifies(&replies) => {}
            Ok(_) => return Ok(None),
            Err(error) if has_no_rdma(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        let mut socket = TokioSocket::new(NETLINK_RDMA)?;
        socket.socket_mut().bind(&SocketAddr::new(0, GROUP_NOTIFY))?;
        Ok(Some(Self { socket, buffer: BytesMut::with_capacity(MAX_EVENT_BYTES) }))
    }

    /// Waits for a notification. Notifications lost to an overflow count as one.
    pub(crate) async fn next(&mut self) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.reserve(MAX_EVENT_BYTES);
        match self.socket.recv(&mut self.buffer).await {
            Err(error) if error.raw_os_error() == Some(ENOBUFS) => Ok(()),
            outcome => outcome,
        }
    }
}

/// Whether the RDMA subsystem supports notifications.
fn notifies(replies: &[Reply]) -> bool {
    replies.iter().any(|reply| reply.byte(MONITOR_MODE).is_some_and(|mode| mode != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::netlink::tests::message;
    use crate::kernel::nldev::{NETNS_MODE, collect};

    #[test]
    fn kernels_report_whether_they_send_notifications() {
        let old: &[(u16, &[u8])] = &[(NETNS_MODE, &[1])];
        let new: &[(u16, &[u8])] = &[(NETNS_MODE, &[1]), (MONITOR_MODE, &[1])];
        for (attributes, expected) in [(old, false), (new, true), (&[], false)] {
            let mut replies = Vec::new();
            collect(&message(SYSTEM_GET, attributes), &mut replies).unwrap();
            assert_eq!(notifies(&replies), expected, "{attributes:?}");
        }
    }
}
