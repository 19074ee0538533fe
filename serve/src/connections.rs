//! Limits on the connections of one port, so that idle and slow clients cannot keep others out.
//!
//! A connection waits until the body of its first request is there. At the limit, a new connection
//! replaces the one that has waited longest; if none waits, the one that has been idle longest.
//! Clients that send their request at once, as kube-apiserver and the kubelet do, are therefore
//! served however many others connect and send nothing. Connections of known clients go last.

use crate::tls::clients::Clients;
use crate::turns::Caller;
use axum::extract::Request;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsAcceptor;
use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower_service::Service;

/// Longest time from the connection until the first request is complete, TLS included.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// Longest time without a request. Prometheus and kube-apiserver close their idle connections
/// earlier.
const IDLE: Duration = Duration::from_mins(10);

/// The open connections of a port.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max: usize,
    /// Whether some clients are known.
    prefers: bool,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    connections: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    closed: CancellationToken,
    caller: Caller,
    /// The number of requests whose body is complete and whose answer is not.
    answering: usize,
    /// Whether a request was answered.
    is_served: bool,
    /// The time of the connection or of its last answer.
    since: Instant,
}

impl Entry {
    fn is_overdue(&self, now: Instant) -> bool {
        let max = if self.is_served { IDLE } else { FIRST_REQUEST };
        self.answering == 0 && now.duration_since(self.since) > max
    }

    /// Whether a new connection may replace it. If the port knows clients, requests of others do
    /// not keep them out.
    fn may_go(&self, prefers: bool) -> bool {
        self.answering == 0 || prefers && self.caller == Caller::Unknown
    }

    /// The least goes first.
    fn rank(&self) -> (bool, bool, bool, Instant) {
        (self.caller == Caller::Known, self.answering > 0, self.is_served, self.since)
    }
}

impl Connections {
    pub(crate) fn new(max: usize, prefers: bool) -> Self {
        Self(Arc::new(Shared { max, prefers, open: Mutex::default() }))
    }

    /// Closes connections that wait or are idle for too long.
    pub(crate) fn close_overdue(&self, now: Instant) {
        self.lock().connections.retain(|_, entry| {
            let is_overdue = entry.is_overdue(now);
            if is_overdue {
                entry.closed.cancel();
            }
            !is_overdue
        });
    }

    /// Admits a connection, if necessary in place of another one.
    pub(crate) fn admit(&self) -> io::Result<Connection> {
        let mut open = self.lock();
        if open.connections.len() >= self.0.max {
            let all = open.connections.iter();
            let idle = all.filter(|(_, entry)| entry.may_go(self.0.prefers));
            let oldest = idle.min_by_key(|(_, entry)| entry.rank());
            let oldest = *oldest
                .ok_or_else(|| {
                    io::Error::other("all connections have requests that are being answered")
                })?
                .0;
            if let Some(entry) = open.connections.remove(&oldest) {
                entry.closed.cancel();
            }
        }
        let (id, closed) = (open.next, CancellationToken::new());
        open.next += 1;
        let entry = Entry {
            closed: closed.clone(),
            caller: Caller::Unknown,
            answering: 0,
            is_served: false,
            since: Instant::now(),
        };
        open.connections.insert(id, entry);
        drop(open);
        let (connections, unread) = (self.clone(), watch::Sender::new(0));
        Ok(Connection(Arc::new(Place { id, closed, connections, unread })))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of an open connection; it is free when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Place>);

#[derive(Debug)]
struct Place {
    id: u64,
    closed: CancellationToken,
    connections: Connections,
    /// Bytes of answers that the client has not taken.
    unread: watch::Sender<usize>,
}

impl Connection {
    /// Keeps the connection from being replaced until the returned guard is dropped.
    pub(crate) fn answering(&self) -> Answering {
        if let Some(entry) = self.0.connections.lock().connections.get_mut(&self.0.id) {
            entry.answering += 1;
        }
        Answering(self.clone())
    }

    /// Who is at the other end.
    pub(crate) fn caller(&self) -> Caller {
        let open = self.0.connections.lock();
        open.connections.get(&self.0.id).map(|entry| entry.caller).unwrap_or_default()
    }

    /// Whether this is the same connection.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the connection is given up.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.closed.is_cancelled()
    }

    /// Closes the connection with everything on it.
    pub(crate) fn close(&self) {
        self.0.connections.lock().connections.remove(&self.0.id);
        self.0.closed.cancel();
    }

    pub(crate) fn add_unread(&self, bytes: usize) {
        self.0.unread.send_modify(|unread| *unread += bytes);
    }

    pub(crate) fn remove_unread(&self, bytes: usize) {
        self.0.unread.send_modify(|unread| *unread -= bytes);
    }

    /// Waits until the client has not taken at most so many bytes.
    pub(crate) async fn unread_at_most(&self, bytes: usize) {
        // The sender lives as long as this.
        let _ = self.0.unread.subscribe().wait_for(|unread| *unread <= bytes).await;
    }

    /// Records that the client has shown a certificate that the port prefers.
    pub(crate) fn set_known(&self) {
        if let Some(entry) = self.0.connections.lock().connections.get_mut(&self.0.id) {
            entry.caller = Caller::Known;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().connections.remove(&self.id);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Answering(Connection);

impl Drop for Answering {
    fn drop(&mut self) {
        let place = &self.0.0;
        if let Some(entry) = place.connections.lock().connections.get_mut(&place.id) {
            entry.answering -= 1;
            entry.is_served = true;
            entry.since = Instant::now();
        }
    }
}

/// Gives each connection a place before anything is read from it.
#[derive(Clone, Debug)]
pub(crate) struct Limited(pub(crate) Connections);

impl<S> Accept<TcpStream, S> for Limited {
    type Stream = LimitedStream;
    type Service = LimitedService<S>;
    type Future = std::future::Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        // With Nagle's algorithm, a response would wait until the one before it is acknowledged.
        let admitted = stream.set_nodelay(true).and_then(|()| self.0.admit());
        std::future::ready(admitted.map(|connection| {
            let closed = Box::pin(connection.0.closed.clone().cancelled_owned());
            let stream = LimitedStream { stream, closed, _connection: connection.clone() };
            (stream, LimitedService { service, connection })
        }))
    }
}

/// Looks after the handshake whether the client is a known one.
#[derive(Clone, Debug)]
pub(crate) struct Recognizing {
    pub(crate) acceptor: RustlsAcceptor<Limited>,
    pub(crate) clients: Clients,
}

impl<S: Send + 'static> Accept<TcpStream, S> for Recognizing {
    type Stream = <RustlsAcceptor<Limited> as Accept<TcpStream, S>>::Stream;
    type Service = LimitedService<S>;
    type Future =
        Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send + 'static>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let (accepted, clients) = (self.acceptor.accept(stream, service), self.clients.clone());
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            let (_, tls) = stream.get_ref();
            if tls.peer_certificates().is_some_and(|chain| clients.prefer(chain)) {
                service.connection.set_known();
            }
            Ok((stream, service))
        })
    }
}

/// A connection that fails as soon as its place is given to another one.
#[derive(Debug)]
pub(crate) struct LimitedStream {
    stream: TcpStream,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    _connection: Connection,
}

impl LimitedStream {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.closed.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    // So that answers are not copied before they are written.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Tells the handlers of requests which connection they came by.
#[derive(Clone, Debug)]
pub(crate) struct LimitedService<S> {
    service: S,
    connection: Connection,
}

impl<S, B> Service<Request<B>> for LimitedService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request.extensions_mut().insert(self.connection.clone());
        self.service.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[test]
    fn a_new_connection_replaces_the_one_that_waits_longest() {
        let connections = Connections::new(3, false);
        let [first, second, third] = std::array::from_fn(|_| connections.admit().unwrap());
        drop(first.answering());
        let answering = second.answering();
        let fourth = connections.admit().unwrap();
        assert!(third.is_closed(), "the only one without a request");
        let fifth = connections.admit().unwrap();
        assert!(fourth.is_closed() && !first.is_closed(), "served connections go last");
        let _answering = fifth.answering();
        let sixth = connections.admit().unwrap();
        assert!(first.is_closed() && !second.is_closed());
        let _last = sixth.answering();
        connections.admit().unwrap_err();
        drop(answering);
        connections.admit().unwrap();
        assert!(second.is_closed());
    }

    #[test]
    fn a_new_connection_never_replaces_that_of_a_known_client() {
        let connections = Connections::new(2, true);
        let [known, other] = std::array::from_fn(|_| connections.admit().unwrap());
        known.set_known();
        let _answering = other.answering();
        let next = connections.admit().unwrap();
        assert!(other.is_closed() && !known.is_closed(), "although the other is being answered");
        next.set_known();
        let _answering = [known.answering(), next.answering()];
        connections.admit().unwrap_err();
    }

    #[tokio::test]
    async fn responses_do_not_wait_for_acknowledgements() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (_client, accepted) = tokio::join!(client, listener.accept());
        let limited = Limited(Connections::new(1, false));
        let (stream, _) = limited.accept(accepted.unwrap().0, ()).await.unwrap();
        assert!(stream.stream.nodelay().unwrap());
    }

    #[test]
    fn a_closed_connection_leaves_its_place() {
        let connections = Connections::new(1, false);
        let first = connections.admit().unwrap();
        let answering = first.answering();
        drop(first);
        connections.admit().unwrap_err();
        drop(answering);
        connections.admit().unwrap();
    }
}
