//! Notifications of changed interfaces, addresses, routes and routing rules (`rtnetlink(7)`, groups
//! `RTMGRP_*`).
//!
//! The contents are not read: everything is read anew after a change. Nothing is requested
//! on this socket, so a flood of changes costs no reply; notifications that the kernel had
//! to drop count as one change.

use bytes::BytesMut;
use futures::FutureExt;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use std::fmt;
use std::io;

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV4_RULE`, `RTMGRP_IPV6_IFADDR`,
/// `RTMGRP_IPV6_ROUTE`, and the group `RTNLGRP_IPV6_RULE`.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18;
/// Enough for the header; the rest of a notification is cut off.
const HEADER_BYTES: usize = 16;
/// `include/uapi/asm-generic/errno.h`.
const ENOBUFS: i32 = 105;

/// A socket that receives notifications.
pub struct Changes {
    socket: TokioSocket,
    buffer: BytesMut,
}

impl Changes {
    /// Subscribes.
    pub fn open() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
        socket.socket_mut().bind(&SocketAddr::new(0, GROUPS))?;
        Ok(Self { socket, buffer: BytesMut::with_capacity(HEADER_BYTES) })
    }

    /// Waits for a change of any interface, address or route.
    pub async fn next(&mut self) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.reserve(HEADER_BYTES);
        match self.socket.recv(&mut self.buffer).await {
            Err(error) if error.raw_os_error() == Some(ENOBUFS) => Ok(()),
            outcome => outcome,
        }
    }

    /// Discards pending notifications, before everything is read anyway.
    pub fn forget(&mut self) {
        while let Some(Ok(())) = self.next().now_or_never() {}
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}
