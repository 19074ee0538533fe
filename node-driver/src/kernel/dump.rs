//! Consistent rtnetlink dumps. If something changes while the kernel writes a long
//! answer, entries can be missing or repeated. The kernel then sets a flag in its
//! messages (`nl_dump_check_consistent` in `include/net/netlink.h`), and the dump is
//! requested again. An error in the last message means that the kernel ended the dump early.

use crate::kernel::route_socket;
use futures::{Stream, StreamExt};
use rtnetlink::packet_core::{
    ErrorMessage, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::rule::RuleMessage;
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Error, Handle};
use std::io;
use std::num::NonZeroI32;
use std::pin::pin;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Attempts before giving up on interfaces that keep changing.
const TRIES: u32 = 10;
/// `EINTR`, which libnl returns in the same case.
const INTERRUPTED: NonZeroI32 = NonZeroI32::new(-4).expect("it is not zero");
/// `ETIMEDOUT`.
const LATE: NonZeroI32 = NonZeroI32::new(-110).expect("it is not zero");
/// Longest wait for one answer. The kernel drops replies that do not fit into the socket's
/// buffer, and then never completes the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A socket for requests about the thread's network namespace. It ends with this value, and
/// with it every answer that is still awaited.
#[derive(Debug)]
pub(crate) struct Requests {
    handle: Handle,
    connection: JoinHandle<()>,
}

impl Requests {
    /// Opens the socket. With `DEFAULTS_ONLY`, lists of routes have only default routes.
    pub(crate) fn open<const DEFAULTS_ONLY: bool>() -> io::Result<Self> {
        let (mut connection, handle) = route_socket::open::<DEFAULTS_ONLY>()?;
        // It has the error of a dump that was cut short.
        connection.set_forward_done(true);
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    /// Sends requests.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Requests all entries of the request's kind. Returns `EINTR` if every attempt was
/// interrupted, `ETIMEDOUT` if the kernel does not answer.
pub(crate) async fn dump(
    handle: &Handle,
    request: RouteNetlinkMessage,
) -> Result<Vec<RouteNetlinkMessage>, Error> {
    dump_each(handle, request, Some).await
}

/// The same, and keeps what `keep` takes from each entry as it arrives: a namespace can have
/// thousands of interfaces, of which each takes 16 KiB.
pub(crate) async fn dump_each<T>(
    handle: &Handle,
    request: RouteNetlinkMessage,
    keep: impl Fn(RouteNetlinkMessage) -> Option<T>,
) -> Result<Vec<T>, Error> {
    for _ in 0..TRIES {
        let mut message = NetlinkMessage::from(request.clone());
        message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let answer = handle.clone().request(message)?;
        let answer = timeout(PATIENCE, whole(answer, &keep)).await;
        if let Some(whole) = answer.map_err(|_| failed(LATE))?? {
            return Ok(whole);
        }
    }
    Err(failed(INTERRUPTED))
}

/// Requests the routing rules of both families. A kernel without a family, as with `ipv6.disable=1`,
/// has no rules of it (`fib_nl_dumprule` in `net/core/fib_rules.c`).
pub(crate) async fn rules(handle: &Handle) -> Result<Vec<RuleMessage>, Error> {
    let mut rules = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut message = RuleMessage::default();
        message.header.family = family;
        match dump_each(handle, RouteNetlinkMessage::GetRule(message), rule).await {
            Err(error) if is_without_family(&error) => {}
            of_family => rules.extend(of_family?),
        }
    }
    Ok(rules)
}

fn rule(message: RouteNetlinkMessage) -> Option<RuleMessage> {
    if let RouteNetlinkMessage::NewRule(rule) = message { Some(rule) } else { None }
}

/// Whether the error is `EAFNOSUPPORT` or `EOPNOTSUPP`.
fn is_without_family(error: &Error) -> bool {
    matches!(error, Error::NetlinkError(error) if matches!(error.raw_code(), -97 | -95))
}

fn failed(code: NonZeroI32) -> Error {
    let mut error = ErrorMessage::default();
    error.code = Some(code);
    Error::NetlinkError(error)
}

/// What is kept of an answer; `None` if it was interrupted.
async fn whole<T>(
    answer: impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>>,
    keep: &impl Fn(RouteNetlinkMessage) -> Option<T>,
) -> Result<Option<Vec<T>>, Error> {
    let mut answer = pin!(answer);
    let (mut kept, mut is_interrupted) = (Vec::new(), false);
    // An interrupted answer is read to its end too.
    while let Some(message) = answer.next().await {
        is_interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
        match message.payload {
            NetlinkPayload::InnerMessage(inner) if !is_interrupted => kept.extend(keep(inner)),
            NetlinkPayload::Error(error) => return Err(Error::NetlinkError(error)),
            NetlinkPayload::Done(done) => ended(done.code)?,
            _ => {}
        }
    }
    Ok((!is_interrupted).then_some(kept))
}

/// The error that `NLMSG_DONE` carries, if any (`netlink_dump_done` in
/// `net/netlink/af_netlink.c`).
fn ended(code: i32) -> Result<(), Error> {
    match NonZeroI32::new(code) {
        Some(code) if code.is_negative() => Err(failed(code)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::packet_core::{DoneMessage, NetlinkHeader};
    use rtnetlink::packet_route::link::LinkMessage;

    fn link(index: u32, flags: u16) -> NetlinkMessage<RouteNetlinkMessage> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        let mut message = NetlinkMessage::from(RouteNetlinkMessage::NewLink(link));
        message.header.flags = flags;
        message
    }

    #[tokio::test]
    async fn an_interrupted_answer_is_discarded() {
        let answer = async |flags| {
            let answer = futures::stream::iter([link(1, 2), link(2, flags)]);
            whole(answer, &Some).await.unwrap()
        };
        assert_eq!(answer(2).await.map(|messages| messages.len()), Some(2));
        assert_eq!(answer(2 | NLM_F_DUMP_INTR).await, None);
    }

    #[test]
    fn a_kernel_without_a_family_has_no_rules_of_it() {
        let code = |code| failed(NonZeroI32::new(code).unwrap());
        assert!(is_without_family(&code(-97)) && is_without_family(&code(-95)));
        assert!(!is_without_family(&code(-12)));
    }

    #[tokio::test]
    async fn an_answer_that_the_kernel_ended_early_is_an_error() {
        let done = |code| {
            let mut done = DoneMessage::default();
            done.code = code;
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::Done(done))
        };
        let answer =
            async |code| whole(futures::stream::iter([link(1, 2), done(code)]), &Some).await;
        assert_eq!(answer(0).await.unwrap().map(|messages| messages.len()), Some(1));
        // `ENOMEM`.
        assert!(answer(-12).await.is_err());
    }
}
