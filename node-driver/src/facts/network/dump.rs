//! Consistent rtnetlink dumps. If something changes while the kernel writes a long
//! answer, entries can be missing or repeated. The kernel then sets a flag in its
//! messages (`nl_dump_check_consistent` in `include/net/netlink.h`), and the dump is
//! requested again.

use futures::StreamExt;
use rtnetlink::packet_core::{
    ErrorMessage, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{Error, Handle};
use std::num::NonZeroI32;

/// Attempts before giving up on interfaces that keep changing.
const TRIES: u32 = 10;
/// `EINTR`, which libnl returns in the same case.
const INTERRUPTED: NonZeroI32 = NonZeroI32::new(-4).expect("it is not zero");

/// Requests all entries of the request's kind. Returns `EINTR` if every attempt was
/// interrupted.
pub(crate) async fn dump(
    handle: &Handle,
    request: RouteNetlinkMessage,
) -> Result<Vec<RouteNetlinkMessage>, Error> {
    for _ in 0..TRIES {
        let mut message = NetlinkMessage::from(request.clone());
        message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let answer: Vec<_> = handle.clone().request(message)?.collect().await;
        if let Some(whole) = whole(answer)? {
            return Ok(whole);
        }
    }
    let mut error = ErrorMessage::default();
    error.code = Some(INTERRUPTED);
    Err(Error::NetlinkError(error))
}

/// The entries of an answer; `None` if it was interrupted.
fn whole(
    answer: Vec<NetlinkMessage<RouteNetlinkMessage>>,
) -> Result<Option<Vec<RouteNetlinkMessage>>, Error> {
    let mut messages = Vec::with_capacity(answer.len());
    for message in answer {
        if message.header.flags & NLM_F_DUMP_INTR != 0 {
            return Ok(None);
        }
        match message.payload {
            NetlinkPayload::InnerMessage(inner) => messages.push(inner),
            NetlinkPayload::Error(error) => return Err(Error::NetlinkError(error)),
            _ => {}
        }
    }
    Ok(Some(messages))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::packet_route::link::LinkMessage;

    fn link(index: u32, flags: u16) -> NetlinkMessage<RouteNetlinkMessage> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewLink(link));
        message.header.flags = flags;
        message
    }

    #[test]
    fn an_interrupted_answer_is_discarded() {
        let answer = |flags| whole(vec![link(1, 2), link(2, flags)]).unwrap();
        assert_eq!(answer(2).map(|messages| messages.len()), Some(2));
        assert_eq!(answer(2 | NLM_F_DUMP_INTR), None);
    }
}
