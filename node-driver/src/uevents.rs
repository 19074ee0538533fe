//! What the kernel says when devices come and go: `NETLINK_KOBJECT_UEVENT`, as
//! udev hears it. Follows `lib/kobject_uevent.c`.
//!
//! The kernel sends these to the initial user namespace only; elsewhere nothing
//! is heard and the slow tick finds changes.

use bytes::BytesMut;
use rtnetlink::sys::protocols::NETLINK_KOBJECT_UEVENT;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use std::io;

/// The group of the kernel's own messages; udev's are in the second.
const GROUP_KERNEL: u32 = 1;
/// `UEVENT_BUFFER_SIZE`, with room for the header.
const MAX_EVENT_BYTES: usize = 4096;

/// Subsystems whose devices are facts of the driver.
const SUBSYSTEMS: [&[u8]; 4] = [b"infiniband", b"infiniband_verbs", b"net", b"pci"];

/// A socket on which devices are announced.
pub(crate) struct Uevents {
    socket: TokioSocket,
    buffer: BytesMut,
}

impl Uevents {
    /// Opens the socket.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_KOBJECT_UEVENT)?;
        socket.socket_mut().bind(&SocketAddr::new(0, GROUP_KERNEL))?;
        Ok(Self { socket, buffer: BytesMut::with_capacity(MAX_EVENT_BYTES) })
    }

    /// Waits for an event of a device that matters. Events that were lost
    /// because there were too many count as one.
    pub(crate) async fn next(&mut self) -> io::Result<()> {
        loop {
            self.buffer.clear();
            self.buffer.reserve(MAX_EVENT_BYTES);
            match self.socket.recv(&mut self.buffer).await {
                Ok(()) if !is_of_interest(&self.buffer) => {}
                Ok(()) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// `include/uapi/asm-generic/errno.h`.
const ENOBUFS: i32 = 105;

/// Whether an event, `add@/devices/…` and `KEY=value` separated by zeros, is of
/// one of the subsystems.
fn is_of_interest(event: &[u8]) -> bool {
    let fields = event.split(|byte| *byte == 0);
    let mut subsystems = fields.filter_map(|field| field.strip_prefix(b"SUBSYSTEM="));
    subsystems.any(|subsystem| SUBSYSTEMS.contains(&subsystem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_by_subsystem() {
        for (event, expected) in [
            (
                &b"add@/devices/pci0000:00/0000:00:05.0\0ACTION=add\0SUBSYSTEM=pci\0SEQNUM=9\0"[..],
                true,
            ),
            (b"move@/devices/virtual/net/eth1\0SUBSYSTEM=net\0", true),
            (b"add@/devices/x/infiniband/rxe0\0SUBSYSTEM=infiniband\0", true),
            (b"change@/devices/virtual/block/dm-0\0SUBSYSTEM=block\0", false),
            (b"add@/devices/x\0NOTSUBSYSTEM=net\0", false),
            (b"", false),
            (b"\0\0", false),
        ] {
            assert_eq!(is_of_interest(event), expected, "{}", String::from_utf8_lossy(event));
        }
    }
}
