//! Encodes, sends and parses netlink messages of families that no crate supports
//! (`netlink(7)`, `Documentation/userspace-api/netlink/intro.rst`).
//!
//! Parsers accept or reject any input; they never panic. A socket belongs to the network
//! namespace of the thread that opened it.

use netlink_packet_core::{
    NLA_F_NESTED, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::io;
use std::time::Duration;

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of `struct nlattr`.
const ATTRIBUTE_HEADER: usize = 4;

/// Longest wait for a reply. The kernel has it ready before the request returns.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens a socket of a family, connected to the kernel.
pub(crate) fn open(family: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(family)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

/// Sends one request and returns the payloads of its replies.
pub(crate) fn exchange(
    socket: &Socket,
    command: u16,
    flags: u16,
    payload: &[u8],
) -> io::Result<Vec<Vec<u8>>> {
    socket.send(&request(command, NLM_F_REQUEST | flags, payload), 0)?;
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

fn request(command: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER];
    message.extend(payload);
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut header = NetlinkBuffer::new(&mut message);
    header.set_length(length);
    header.set_message_type(command);
    header.set_flags(flags);
    message
}

/// Encodes one attribute, padded.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(usize::from(length).next_multiple_of(4));
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Encodes a nested attribute.
pub(crate) fn nest(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NLA_F_NESTED, &attributes.concat())
}

/// Appends the payloads of a datagram; returns true if it contains the last one.
pub(crate) fn collect(mut datagram: &[u8], replies: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while !datagram.is_empty() {
        let message = NetlinkBuffer::new_checked(datagram).map_err(io::Error::other)?;
        let payload = message.payload();
        match message.message_type() {
            NLMSG_DONE | NLMSG_ERROR => return ended(payload),
            _ => replies.push(payload.to_vec()),
        }
        let length = (message.length() as usize).next_multiple_of(4);
        datagram = datagram.get(length..).unwrap_or_default();
    }
    Ok(false)
}

/// Parses the code of an end or error message. A negative code is an error, also at the
/// end of a dump.
fn ended(payload: &[u8]) -> io::Result<bool> {
    let code = payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    if code < 0 { Err(io::Error::from_raw_os_error(code.saturating_neg())) } else { Ok(true) }
}

/// The attributes of a payload: kind and value.
pub(crate) fn attributes(payload: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(payload).flatten().filter_map(|attribute| {
        let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
        Some((kind, attribute.into_inner().get(ATTRIBUTE_HEADER..length)?))
    })
}

/// The first attribute of a kind.
pub(crate) fn find(payload: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(payload).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A message with attributes, as the kernel writes it.
    pub(crate) fn message(kind: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let payload: Vec<_> =
            attributes.iter().map(|(kind, value)| attribute(*kind, value)).collect();
        request(kind, 0, &payload.concat())
    }

    const INDEX: u16 = 1;
    const NAME: u16 = 2;

    #[test]
    fn replies_are_parsed_until_the_last() {
        let first = message(77, &[(INDEX, &1_u32.to_ne_bytes()), (NAME, b"mlx5_0\0")]);
        let second = message(77, &[(INDEX, &7_u32.to_ne_bytes()), (NAME, b"mlx5_10\0")]);
        let mut replies = Vec::new();
        assert!(!collect(&[first, second].concat(), &mut replies).unwrap());
        assert!(collect(&message(NLMSG_DONE, &[]), &mut replies).unwrap());
        let names: Vec<_> = replies.iter().map(|reply| find(reply, NAME)).collect();
        assert_eq!(names, [Some(&b"mlx5_0\0"[..]), Some(b"mlx5_10\0")]);
        assert_eq!(find(&replies[1], INDEX), Some(&7_u32.to_ne_bytes()[..]));
        assert_eq!(find(&replies[1], 66), None);
    }

    #[test]
    fn kernel_errors_become_system_errors() {
        for kind in [NLMSG_ERROR, NLMSG_DONE] {
            let error = request(kind, 0, &(-95_i32).to_ne_bytes());
            let error = collect(&error, &mut Vec::new()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(95));
        }
        let acknowledged = request(NLMSG_ERROR, 0, &0_i32.to_ne_bytes());
        assert!(collect(&acknowledged, &mut Vec::new()).unwrap());
    }

    #[test]
    fn malformed_replies_are_errors() {
        let good = message(77, &[(INDEX, &1_u32.to_ne_bytes()), (NAME, b"mlx5_0\0")]);
        for end in 1..good.len() {
            let mut replies = Vec::new();
            assert!(collect(&good[..end], &mut replies).is_err(), "{end}");
        }
        for end in 0..good.len() - HEADER {
            let payload = &good[HEADER..HEADER + end];
            let _ = find(payload, NAME);
        }
    }

    #[test]
    fn nested_attributes_are_found_again() {
        let inner = [attribute(3, b"x"), attribute(4, b"yz")];
        let outer = nest(9, &inner);
        let found = find(&outer, 9).unwrap();
        assert_eq!(attributes(found).collect::<Vec<_>>(), [(3, &b"x"[..]), (4, b"yz")]);
    }
}
