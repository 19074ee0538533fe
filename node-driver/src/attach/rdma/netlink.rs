//! RDMA netlink, `include/uapi/rdma/rdma_netlink.h`: the mode of the subsystem,
//! the index of a device, and its move to another namespace.
//!
//! A socket belongs to the namespace of the thread that opened it, so every
//! function here works on the calling thread's.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_RDMA};
use rustix::fd::{AsFd, AsRawFd};
use std::io;

/// `RDMA_NL_NLDEV << RDMA_NL_GET_CLIENT_SHIFT`: the subsystem of devices.
const DEVICES: u16 = 5 << 10;
/// `RDMA_NLDEV_CMD_GET`.
const GET: u16 = DEVICES | 1;
/// `RDMA_NLDEV_CMD_SET`.
const SET: u16 = DEVICES | 2;
/// `RDMA_NLDEV_CMD_SYS_GET`.
const SYSTEM_GET: u16 = DEVICES | 6;
/// `RDMA_NLDEV_ATTR_DEV_INDEX`, 32 bits.
const INDEX: u16 = 1;
/// `RDMA_NLDEV_ATTR_DEV_NAME`, text that ends with a zero.
const NAME: u16 = 2;
/// `RDMA_NLDEV_SYS_ATTR_NETNS_MODE`, 8 bits.
const NETNS_MODE: u16 = 66;
/// `RDMA_NLDEV_NET_NS_FD`, 32 bits.
const NETNS_FD: u16 = 68;
/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of `struct nlattr`.
const ATTRIBUTE_HEADER: usize = 4;

/// Which processes may open an RDMA device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetnsMode {
    /// Those of all network namespaces.
    #[default]
    Shared,
    /// Those of the device's own.
    Exclusive,
}

/// The mode of this machine; shared where the kernel has no RDMA, or is older
/// than its modes (5.2).
pub(crate) fn netns_mode() -> io::Result<NetnsMode> {
    let replies = match exchange(SYSTEM_GET, 0, &[]) {
        Err(error) if has_no_rdma(&error) => return Ok(NetnsMode::Shared),
        replies => replies?,
    };
    let mode = replies.iter().find_map(|reply| attribute(reply, NETNS_MODE)?.first().copied());
    Ok(if mode == Some(0) { NetnsMode::Exclusive } else { NetnsMode::Shared })
}

/// Whether a device is in the calling thread's namespace, and under which index.
pub(super) fn index_of(name: &str) -> io::Result<Option<u32>> {
    let replies = match exchange(GET, NLM_F_DUMP, &[]) {
        Err(error) if has_no_rdma(&error) => return Ok(None),
        replies => replies?,
    };
    let is_it = |reply: &&Vec<u8>| {
        attribute(reply, NAME).is_some_and(|text| text.strip_suffix(b"\0") == Some(name.as_bytes()))
    };
    let index = replies.iter().find(is_it).and_then(|reply| attribute(reply, INDEX));
    Ok(index.and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes))
}

/// Moves a device from the calling thread's namespace to another. Its open
/// handles are closed by the kernel.
pub(super) fn move_to(index: u32, namespace: &impl AsFd) -> io::Result<()> {
    let fd = namespace.as_fd().as_raw_fd();
    let attributes = [(INDEX, index.to_ne_bytes()), (NETNS_FD, fd.to_ne_bytes())];
    exchange(SET, NLM_F_ACK, &attributes).map(drop)
}

/// No such family (`EPROTONOSUPPORT`), nobody who answers (`ECONNREFUSED`), or
/// an unknown command (`EINVAL`, `EOPNOTSUPP`).
fn has_no_rdma(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(93 | 111 | 22 | 95))
}

/// Sends one request and returns the payloads of its replies.
fn exchange(command: u16, flags: u16, attributes: &[(u16, [u8; 4])]) -> io::Result<Vec<Vec<u8>>> {
    let mut socket = Socket::new(NETLINK_RDMA)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(command, NLM_F_REQUEST | flags, attributes), 0)?;
    let goes_on = flags & NLM_F_DUMP == NLM_F_DUMP;
    let mut replies = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let ended = collect(&datagram, &mut replies)?;
        if ended || !goes_on {
            return Ok(replies);
        }
    }
}

fn request(command: u16, flags: u16, attributes: &[(u16, [u8; 4])]) -> Vec<u8> {
    // Attributes of four bytes need no padding.
    let mut message = vec![0; HEADER];
    for (kind, value) in attributes {
        message.extend(8_u16.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(value);
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut header = NetlinkBuffer::new(&mut message);
    header.set_length(length);
    header.set_message_type(command);
    header.set_flags(flags);
    message
}

/// Takes the payloads out of a datagram; true where it holds the last of them.
fn collect(mut datagram: &[u8], replies: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while !datagram.is_empty() {
        let message = NetlinkBuffer::new_checked(datagram).map_err(io::Error::other)?;
        let payload = message.payload();
        match message.message_type() {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                return if code == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
            _ => replies.push(payload.to_vec()),
        }
        let length = (message.length() as usize).next_multiple_of(4);
        datagram = datagram.get(length..).unwrap_or_default();
    }
    Ok(false)
}

fn attribute(payload: &[u8], kind: u16) -> Option<&[u8]> {
    let mut all = NlasIterator::new(payload).flatten();
    let found = all.find(|attribute| attribute.kind() == kind)?;
    let length = usize::from(found.length());
    found.into_inner().get(ATTRIBUTE_HEADER..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply with attributes, as the kernel writes it.
    fn reply(kind: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = vec![0; HEADER];
        for (kind, value) in attributes {
            let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap();
            message.extend(length.to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(*value);
            message.resize(message.len().next_multiple_of(4), 0);
        }
        let length = u32::try_from(message.len()).unwrap();
        let mut header = NetlinkBuffer::new(&mut message);
        header.set_length(length);
        header.set_message_type(kind);
        message
    }

    #[test]
    fn replies_are_taken_apart_until_the_last() {
        let first = reply(GET, &[(INDEX, &1_u32.to_ne_bytes()), (NAME, b"mlx5_0\0")]);
        let second = reply(GET, &[(INDEX, &7_u32.to_ne_bytes()), (NAME, b"mlx5_10\0")]);
        let mut replies = Vec::new();
        assert!(!collect(&[first, second].concat(), &mut replies).unwrap());
        assert!(collect(&reply(NLMSG_DONE, &[]), &mut replies).unwrap());
        let names: Vec<_> = replies.iter().map(|reply| attribute(reply, NAME)).collect();
        assert_eq!(names, [Some(&b"mlx5_0\0"[..]), Some(b"mlx5_10\0")]);
        assert_eq!(attribute(&replies[1], INDEX), Some(&7_u32.to_ne_bytes()[..]));
        assert_eq!(attribute(&replies[1], NETNS_MODE), None);
    }

    #[test]
    fn an_error_of_the_kernel_is_the_systems() {
        let mut message = reply(NLMSG_ERROR, &[]);
        message.extend((-95_i32).to_ne_bytes());
        NetlinkBuffer::new(&mut message).set_length(20);
        let error = collect(&message, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(95));
    }

    #[test]
    fn bytes_that_are_no_reply_are_an_error_and_not_a_panic() {
        let good = reply(GET, &[(INDEX, &1_u32.to_ne_bytes()), (NAME, b"mlx5_0\0")]);
        for end in 1..good.len() {
            let mut replies = Vec::new();
            assert!(collect(&good[..end], &mut replies).is_err(), "{end}");
        }
        for end in 0..good.len() - HEADER {
            let payload = &good[HEADER..HEADER + end];
            let _ = attribute(payload, NAME);
        }
    }
}
