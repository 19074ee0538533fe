//! Routes as the kernel's messages, which are recorded as text.

use netlink_packet_core::{DecodeError, Parseable as _};
use netlink_packet_route::route::{RouteAttribute, RouteMessage};

/// Bytes of `struct rtmsg`.
const ROUTE_HEADER: usize = 12;

/// Whether the kernel takes it with a request; the others are state from when the route was read.
pub(super) fn is_attribute_of_request(attribute: &RouteAttribute) -> bool {
    !matches!(attribute, RouteAttribute::CacheInfo(_))
}

/// Reads a recorded message.
pub(super) fn parsed(text: &str) -> Result<RouteMessage, DecodeError> {
    let digits: Vec<u8> = text.bytes().collect();
    let bytes: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).ok())
        .collect();
    let bytes = bytes.filter(|bytes| bytes.len() >= ROUTE_HEADER);
    let bytes = bytes.ok_or_else(|| DecodeError::from("not a route message"))?;
    RouteMessage::parse(bytes.as_slice())
}
