//! Sockets for rtnetlink on which no interface is lost. Names, alternative names and aliases are bytes
//! for the kernel, and a pod can choose them (`dev_valid_name` in `net/core/dev.c`). The library
//! drops a message with a text that is not UTF-8, and with it the interface. Here such bytes are
//! replaced.
//!
//! A router's table has a million routes. Who wants only default routes does not have the others
//! parsed: the kernel cannot select them (`ip_valid_fib_dump_req` in `net/ipv4/fib_frontend.c`).

use bytes::{BufMut, BytesMut};
use netlink_packet_core::{NLM_F_DUMP_INTR, NLM_F_MULTIPART};
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::Handle;
use rtnetlink::proto::Connection;
use rtnetlink::sys::{AsyncSocket, Socket, SocketAddr, TokioSocket};
use std::cell::RefCell;
use std::io;
use std::task::{Context, Poll, ready};

/// Length of `struct nlmsghdr`, and of that and `struct ifinfomsg`.
const HEADER: usize = 16;
const LINK_HEADER: usize = 32;
/// Length of `struct nlattr`.
const ATTRIBUTE_HEADER: usize = 4;
/// `RTM_NEWLINK`, `RTM_NEWROUTE`.
const NEW_LINK: u16 = 16;
const NEW_ROUTE: u16 = 24;
/// `NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`.
const FLAGS: u16 = 0xc000;
/// `IFLA_IFNAME`, `IFLA_IFALIAS`, `IFLA_ALT_IFNAME`.
const TEXTS: [u16; 3] = [3, 20, 53];
/// `IFLA_PROP_LIST`, which has the alternative names.
const PROPERTIES: u16 = 52;
/// Stands for what is not UTF-8.
const UNREADABLE: u8 = b'?';

/// A socket of the thread's network namespace. With `DEFAULTS_ONLY`, lists of routes have only default
/// routes.
pub(crate) struct RouteSocket<const DEFAULTS_ONLY: bool> {
    socket: TokioSocket,
    datagram: RefCell<BytesMut>,
}

/// A socket for requests, and what sends them.
type Opened<const DEFAULTS_ONLY: bool> =
    (Connection<RouteNetlinkMessage, RouteSocket<DEFAULTS_ONLY>>, Handle);

/// Opens a socket for requests.
pub(crate) fn open<const DEFAULTS_ONLY: bool>() -> io::Result<Opened<DEFAULTS_ONLY>> {
    let (connection, handle, _) = rtnetlink::new_connection_with_socket()?;
    Ok((connection, handle))
}

impl<const DEFAULTS_ONLY: bool> AsyncSocket for RouteSocket<DEFAULTS_ONLY> {
    fn socket_ref(&self) -> &Socket {
        self.socket.socket_ref()
    }

    fn socket_mut(&mut self) -> &mut Socket {
        self.socket.socket_mut()
    }

    fn new(protocol: isize) -> io::Result<Self> {
        Ok(Self { socket: TokioSocket::new(protocol)?, datagram: RefCell::default() })
    }

    fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_send(cx, buf)
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        addr: &SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_send_to(cx, buf, addr)
    }

    fn poll_recv<B: BufMut>(&self, cx: &mut Context<'_>, buf: &mut B) -> Poll<io::Result<()>> {
        self.poll_recv_from(cx, buf).map_ok(drop)
    }

    fn poll_recv_from<B: BufMut>(
        &self,
        cx: &mut Context<'_>,
        buf: &mut B,
    ) -> Poll<io::Result<SocketAddr>> {
        let mut datagram = self.datagram.borrow_mut();
        datagram.clear();
        datagram.reserve(buf.chunk_mut().len());
        let address = ready!(self.socket.poll_recv_from(cx, &mut *datagram))?;
        put_received::<DEFAULTS_ONLY>(&mut datagram, buf);
        Poll::Ready(Ok(address))
    }

    fn poll_recv_from_full(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Vec<u8>, SocketAddr)>> {
        let (mut datagram, address) = ready!(self.socket.poll_recv_from_full(cx))?;
        make_readable(&mut datagram);
        Poll::Ready(Ok((datagram, address)))
    }
}

/// Copies a datagram as it is parsed.
pub(crate) fn put_received<const DEFAULTS_ONLY: bool>(datagram: &mut [u8], into: &mut impl BufMut) {
    make_readable(datagram);
    if DEFAULTS_ONLY {
        put_without_routes(datagram, into);
    } else {
        into.put_slice(datagram);
    }
}

/// Copies a datagram without the specific routes of a list.
fn put_without_routes(mut datagram: &[u8], into: &mut impl BufMut) {
    while let Some(length) = number(datagram, 0).map(|length| length as usize) {
        if length < HEADER || length > datagram.len() {
            break;
        }
        let (message, more) = datagram.split_at(length.next_multiple_of(4).min(datagram.len()));
        if !is_specific_route(message) {
            into.put_slice(message);
        }
        datagram = more;
    }
    into.put_slice(datagram);
}

/// Whether it is a route of a list, with a destination. A message that says that the list changed
/// meanwhile is kept.
fn is_specific_route(message: &[u8]) -> bool {
    let is_listed = short(message, 6)
        .is_some_and(|flags| flags & NLM_F_MULTIPART != 0 && flags & NLM_F_DUMP_INTR == 0);
    // `rtm_dst_len`
    let has_destination = message.get(HEADER + 1).is_some_and(|length| *length != 0);
    is_listed && short(message, 4) == Some(NEW_ROUTE) && has_destination
}

/// Makes the texts of all messages about interfaces UTF-8.
fn make_readable(mut datagram: &mut [u8]) {
    while let Some(length) = number(datagram, 0).map(|length| length as usize) {
        if length < HEADER || length > datagram.len() {
            return;
        }
        let (message, more) = split(datagram, length);
        if short(message, 4) == Some(NEW_LINK) {
            make_texts_readable(message.get_mut(LINK_HEADER..).unwrap_or_default(), true);
        }
        datagram = more;
    }
}

/// The same for attributes, and for those in a list of properties.
fn make_texts_readable(mut attributes: &mut [u8], has_properties: bool) {
    while let (Some(length), Some(kind)) = (short(attributes, 0), short(attributes, 2)) {
        let length = usize::from(length);
        if length < ATTRIBUTE_HEADER || length > attributes.len() {
            return;
        }
        let (attribute, more) = split(attributes, length);
        let value = &mut attribute[ATTRIBUTE_HEADER..];
        match kind & !FLAGS {
            PROPERTIES if has_properties => make_texts_readable(value, false),
            kind if TEXTS.contains(&kind) => make_text_readable(value),
            _ => {}
        }
        attributes = more;
    }
}

fn make_text_readable(text: &mut [u8]) {
    while let Err(error) = str::from_utf8(text) {
        let from = error.valid_up_to();
        let to = error.error_len().map_or(text.len(), |length| from + length);
        text[from..to].fill(UNREADABLE);
    }
}

/// The first bytes, and those after their padding.
fn split(bytes: &mut [u8], length: usize) -> (&mut [u8], &mut [u8]) {
    let next = length.next_multiple_of(4).min(bytes.len());
    let (first, more) = bytes.split_at_mut(next);
    (&mut first[..length], more)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::netlink::{attribute, nest};

    fn message(kind: u16, texts: [&[u8]; 3]) -> Vec<u8> {
        let [name, alias, alternative] = texts;
        let attributes = [
            attribute(3, name),
            attribute(1, &[0xff, 0xfe, 0xfd]),
            attribute(20, alias),
            nest(52, &[attribute(53, b"enp1s0\0"), attribute(53, alternative)]),
        ];
        let mut message = vec![0; LINK_HEADER];
        message.extend(attributes.concat());
        let length = u32::try_from(message.len()).unwrap();
        message[..4].copy_from_slice(&length.to_ne_bytes());
        message[4..6].copy_from_slice(&kind.to_ne_bytes());
        message
    }

    #[test]
    fn texts_of_interfaces_become_readable() {
        let bad: [&[u8]; 3] = [b"net\xff\0", b"\xc3(rail\xe2\x82", b"\xa1\xa1\0"];
        let good: [&[u8]; 3] = [b"net?\0", b"?(rail??", b"??\0"];
        let whole: [&[u8]; 3] = ["nä\0".as_bytes(), "0 — rail".as_bytes(), b"slot7\0"];
        let mut datagram =
            [message(NEW_LINK, whole), message(24, bad), message(NEW_LINK, bad)].concat();
        make_readable(&mut datagram);
        let expected = [message(NEW_LINK, whole), message(24, bad), message(NEW_LINK, good)];
        assert_eq!(datagram, expected.concat());
    }

    fn route(flags: u16, destination: u8) -> Vec<u8> {
        let mut message = vec![0; HEADER + 12];
        message[..4].copy_from_slice(&28_u32.to_ne_bytes());
        message[4..6].copy_from_slice(&NEW_ROUTE.to_ne_bytes());
        message[6..8].copy_from_slice(&flags.to_ne_bytes());
        message[HEADER + 1] = destination;
        message
    }

    #[test]
    fn only_default_routes_of_a_list_are_kept() {
        const LISTED: u16 = NLM_F_MULTIPART;
        let link = message(NEW_LINK, [b"lo\0", b"", b""]);
        let kept = [
            route(LISTED, 0),
            route(LISTED | NLM_F_DUMP_INTR, 24),
            // The answer to a request for one route.
            route(0, 32),
            link.clone(),
        ];
        let datagram = [route(LISTED, 24), kept.concat(), route(LISTED, 1), vec![7, 7]].concat();
        let mut copied = Vec::new();
        put_without_routes(&datagram, &mut copied);
        assert_eq!(copied, [kept.concat(), vec![7, 7]].concat());
    }

    #[test]
    fn malformed_messages_never_panic() {
        let whole = message(NEW_LINK, [b"net\xff\0", b"\xc3", b"\xa1\0"]);
        for end in 0..whole.len() {
            make_readable(&mut whole[..end].to_vec());
            put_without_routes(&whole[..end], &mut Vec::new());
        }
        for byte in 0..whole.len() {
            for value in [0, 1, 4, 0xff] {
                let mut other = whole.clone();
                other[byte] = value;
                make_readable(&mut other);
                put_without_routes(&other, &mut Vec::new());
            }
        }
    }
}
