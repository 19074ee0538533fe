//! Device events of the kernel: `NETLINK_KOBJECT_UEVENT`, as udev receives them. Follows
//! `lib/kobject_uevent.c`.
//!
//! The kernel sends these only to the initial user namespace. Elsewhere none arrive, and
//! the periodic rescan finds changes.

use bytes::BytesMut;
use rtnetlink::sys::protocols::NETLINK_KOBJECT_UEVENT;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use std::io;

/// The multicast group of the kernel's own messages; udev's are in the second group.
const GROUP_KERNEL: u32 = 1;
/// `UEVENT_BUFFER_SIZE`, plus room for the header.
const MAX_EVENT_BYTES: usize = 4096;

/// Subsystems whose devices the driver reads.
const SUBSYSTEMS: [&str; 4] = ["infiniband", "infiniband_verbs", "net", "pci"];

/// A socket that receives device events.
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

    /// Waits for an event of a relevant subsystem and returns the subsystem's name.
    /// Events lost to an overflow count as one.
    pub(crate) async fn next(&mut self) -> io::Result<&'static str> {
        loop {
            self.buffer.clear();
            self.buffer.reserve(MAX_EVENT_BYTES);
            match self.socket.recv(&mut self.buffer).await {
                Ok(()) => {
                    if let Some(subsystem) = subsystem(&self.buffer) {
                        return Ok(subsystem);
                    }
                }
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => return Ok("any"),
                Err(error) => return Err(error),
            }
        }
    }
}

/// `include/uapi/asm-generic/errno.h`.
const ENOBUFS: i32 = 105;

/// The relevant subsystem of an event. An event is `add@/devices/…` and `KEY=value`
/// entries, separated by zeros.
fn subsystem(event: &[u8]) -> Option<&'static str> {
    let fields = event.split(|byte| *byte == 0);
    let mut subsystems = fields.filter_map(|field| field.strip_prefix(b"SUBSYSTEM="));
    subsystems.find_map(|name| SUBSYSTEMS.into_iter().find(|known| known.as_bytes() == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_by_subsystem() {
        for (event, expected) in [
            (
                &b"add@/devices/pci0000:00/0000:00:05.0\0ACTION=add\0SUBSYSTEM=pci\0SEQNUM=9\0"[..],
                Some("pci"),
            ),
            (b"move@/devices/virtual/net/eth1\0SUBSYSTEM=net\0", Some("net")),
            (b"add@/devices/x/infiniband/rxe0\0SUBSYSTEM=infiniband\0", Some("infiniband")),
            (b"change@/devices/virtual/block/dm-0\0SUBSYSTEM=block\0", None),
            (b"add@/devices/x\0NOTSUBSYSTEM=net\0", None),
            (b"", None),
            (b"\0\0", None),
        ] {
            assert_eq!(subsystem(event), expected, "{}", String::from_utf8_lossy(event));
        }
    }
}
