//! Messages of RDMA netlink's device interface, `RDMA_NL_NLDEV` of
//! `include/uapi/rdma/rdma_netlink.h`, over a socket in the calling thread's network
//! namespace.
//!
//! This module only parses replies and never panics on any input; `devices` interprets
//! them.

use crate::kernel::netlink;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_sys::{Socket, protocols::NETLINK_RDMA};
use std::io;

/// `RDMA_NL_NLDEV << RDMA_NL_GET_CLIENT_SHIFT`: the subsystem of devices.
const DEVICES: u16 = 5 << 10;
/// `RDMA_NLDEV_CMD_GET`.
pub(crate) const GET: u16 = DEVICES | 1;
/// `RDMA_NLDEV_CMD_SET`.
pub(crate) const SET: u16 = DEVICES | 2;
/// `RDMA_NLDEV_CMD_PORT_GET`.
pub(crate) const PORT_GET: u16 = DEVICES | 5;
/// `RDMA_NLDEV_CMD_SYS_GET`.
pub(crate) const SYSTEM_GET: u16 = DEVICES | 6;

/// `RDMA_NLDEV_ATTR_DEV_INDEX`, 32 bits.
pub(crate) const INDEX: u16 = 1;
/// `RDMA_NLDEV_ATTR_DEV_NAME`, text that ends with a zero.
pub(crate) const NAME: u16 = 2;
/// `RDMA_NLDEV_ATTR_PORT_INDEX`, 32 bits: the number of a port, or a device's number of
/// ports.
pub(crate) const PORT: u16 = 3;
/// `RDMA_NLDEV_ATTR_NODE_GUID`, 64 bits in the host's order.
pub(crate) const NODE_GUID: u16 = 6;
/// `RDMA_NLDEV_ATTR_SYS_IMAGE_GUID`, 64 bits in the host's order.
pub(crate) const SYS_IMAGE_GUID: u16 = 7;
/// `RDMA_NLDEV_ATTR_PORT_STATE`, 8 bits.
pub(crate) const PORT_STATE: u16 = 12;
/// `RDMA_NLDEV_ATTR_NDEV_NAME`, text: the port's interface, if it is in the caller's
/// network namespace.
pub(crate) const NETDEV: u16 = 51;
/// `RDMA_NLDEV_SYS_ATTR_NETNS_MODE`, 8 bits.
pub(crate) const NETNS_MODE: u16 = 66;
/// `RDMA_NLDEV_ATTR_DEV_PROTOCOL`, text.
pub(crate) const PROTOCOL: u16 = 67;
/// `RDMA_NLDEV_NET_NS_FD`, 32 bits.
pub(crate) const NETNS_FD: u16 = 68;
/// `RDMA_NLDEV_SYS_ATTR_MONITOR_MODE`, 8 bits: not zero if the kernel sends
/// notifications.
pub(crate) const MONITOR_MODE: u16 = 103;

/// An attribute of a request; all of them have 32 bits.
pub(crate) type Asked = (u16, [u8; 4]);

/// The payload of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply(Vec<u8>);

/// A socket in the calling thread's network namespace.
pub(crate) struct Nldev(Socket);

impl Nldev {
    /// Opens the socket. The kernel then loads its RDMA subsystem, if it has one.
    pub(crate) fn open() -> io::Result<Self> {
        netlink::open(NETLINK_RDMA).map(Self)
    }

    /// Sends a request that has one reply.
    pub(crate) fn ask(&self, command: u16, attributes: &[Asked]) -> io::Result<Vec<Reply>> {
        self.exchange(command, 0, attributes)
    }

    /// Requests all objects.
    pub(crate) fn dump(&self, command: u16, attributes: &[Asked]) -> io::Result<Vec<Reply>> {
        self.exchange(command, NLM_F_DUMP, attributes)
    }

    /// Requests a change.
    pub(crate) fn change(&self, command: u16, attributes: &[Asked]) -> io::Result<()> {
        self.exchange(command, NLM_F_ACK, attributes).map(drop)
    }

    fn exchange(&self, command: u16, flags: u16, attributes: &[Asked]) -> io::Result<Vec<Reply>> {
        let payload = attributes.iter().map(|(kind, value)| netlink::attribute(*kind, value));
        let payload = payload.collect::<Vec<_>>().concat();
        let replies = netlink::exchange(&self.0, command, flags, &payload)?;
        Ok(replies.into_iter().map(Reply).collect())
    }
}

/// Whether the error means that the kernel has no RDMA: no such netlink family
/// (`EPROTONOSUPPORT`), no listener (`ECONNREFUSED`), or an unknown command (`EINVAL`,
/// `EOPNOTSUPP`).
pub(crate) fn has_no_rdma(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(93 | 111 | 22 | 95))
}

/// Appends the replies of a datagram; returns true if it contains the last one.
pub(crate) fn collect(datagram: &[u8], replies: &mut Vec<Reply>) -> io::Result<bool> {
    let mut payloads = Vec::new();
    let ended = netlink::collect(datagram, &mut payloads);
    replies.extend(payloads.into_iter().map(Reply));
    ended
}

impl Reply {
    fn attribute(&self, kind: u16) -> Option<&[u8]> {
        netlink::find(&self.0, kind)
    }

    /// An attribute of 8 bits.
    pub(crate) fn byte(&self, kind: u16) -> Option<u8> {
        self.attribute(kind)?.first().copied()
    }

    /// An attribute of 32 bits.
    pub(crate) fn number(&self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.attribute(kind)?.try_into().ok()?))
    }

    /// An attribute of 64 bits.
    pub(crate) fn long(&self, kind: u16) -> Option<u64> {
        Some(u64::from_ne_bytes(self.attribute(kind)?.try_into().ok()?))
    }

    /// A text attribute without its terminating zero.
    pub(crate) fn text(&self, kind: u16) -> Option<&str> {
        let text = self.attribute(kind)?.strip_suffix(b"\0")?;
        std::str::from_utf8(text).ok().filter(|text| !text.is_empty() && !text.contains('\0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::netlink::tests::message;

    #[test]
    fn attributes_are_read_by_their_size() {
        let first = message(GET, &[(INDEX, &1_u32.to_ne_bytes()), (NAME, b"mlx5_0\0")]);
        let second = message(GET, &[(INDEX, &7_u32.to_ne_bytes()), (NAME, b"mlx5_10\0")]);
        let mut replies = Vec::new();
        assert!(!collect(&[first, second].concat(), &mut replies).unwrap());
        let names: Vec<_> = replies.iter().map(|reply| reply.text(NAME)).collect();
        assert_eq!(names, [Some("mlx5_0"), Some("mlx5_10")]);
        assert_eq!(replies[1].number(INDEX), Some(7));
        assert_eq!(replies[1].byte(NETNS_MODE), None);
        assert_eq!(replies[1].long(INDEX), None, "it has four bytes");
    }
}
