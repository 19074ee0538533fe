//! Serves a router on a socket, with or without TLS, until it is stopped, within limits on
//! connections, bodies and answers.

pub use crate::answers::AnswerLimits;

use crate::answers::{Answers, PIECE};
use crate::args::ServerArgs;
use crate::bodies::{self, Bodies, BodyLimits, Requests};
use crate::connections::{Connections, Limited, Recognizing};
use crate::tls::clients::Clients;
use crate::tls::{Certificate, Identity, TlsError};
use axum::extract::DefaultBodyLimit;
use axum::{Router, middleware};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsAcceptor;
use rustix::net::sockopt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How long requests in flight may take after a stop. The API server waits at most 30 s for a
/// webhook, the scheduler 5 s for us.
const GRACE: Duration = Duration::from_secs(10);

/// Connections that the kernel accepts for us before we do; it limits them to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The interval between checks of the times that connections and answers may take.
const CHECK: Duration = Duration::from_secs(1);

/// Requests at the same time on one connection with HTTP/2. kube-apiserver opens another connection
/// when all are in use; it has at most some hundred requests for pods in flight.
const STREAMS: u32 = 32;

/// The largest head of a request with HTTP/2, in bytes. That of kube-apiserver has less than 1 kB.
const HEAD_MAX: u32 = 8 << 10;

/// What a client may send on a connection before we have read it, in bytes.
const WINDOW: u32 = 256 << 10;

/// What is read and written of a connection with HTTP/1 at a time, in bytes; also the largest head.
const BUFFER: usize = 64 << 10;

/// What the kernel holds of the answers on a connection, in bytes; it takes twice as much for it.
const SEND_BUFFER: usize = 64 << 10;

/// Milliseconds after which the kernel closes a connection whose other end acknowledges nothing, or
/// has no room, although there is something to send.
const UNACKNOWLEDGED: u32 = 15_000;

/// The interval between attempts to bind a taken address.
const RETRY: Duration = Duration::from_millis(250);

/// A server failed to start or failed while serving.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or does not exist here.
    #[error("failed to listen on {address}")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The error.
        source: io::Error,
    },
    /// The certificate is invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The accept loop failed.
    #[error("failed to serve")]
    Serve {
        /// The error.
        source: io::Error,
    },
}

/// The limits of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections. A new one replaces one that waits or is idle.
    pub connections: usize,
    /// Sizes of the bodies of requests.
    pub bodies: BodyLimits,
    /// Sizes of the answers that clients have not taken.
    pub answers: AnswerLimits,
}

impl Limits {
    /// For health and metrics: requests without a body, from the kubelet and Prometheus.
    pub const OPERATIONS: Self = Self {
        connections: 64,
        bodies: BodyLimits { each: 4 << 10, together: 1 << 20, handled: 4 << 10 },
        answers: AnswerLimits { together: 1 << 20, of_connection: 256 << 10 },
    };

    /// For requests of kube-apiserver or kube-scheduler, with bodies of at most `each` bytes. Both
    /// have few connections with many requests on each.
    pub const fn requests(each: usize) -> Self {
        let bodies = BodyLimits { each, together: 32 << 20, handled: 6 << 20 };
        let answers = AnswerLimits { together: 16 << 20, of_connection: 1 << 20 };
        Self { connections: 512, bodies, answers }
    }
}

/// A socket that is bound but not served yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    security: Security,
    address: SocketAddr,
    limits: Limits,
}

/// The result of binding an address that another process may still hold, such as the instance on
/// the host network that this one replaces.
#[derive(Debug)]
pub enum Awaited {
    /// The address is bound.
    Bound(Bound),
    /// Another process holds the address.
    Taken(SocketAddr),
}

/// The security of connections.
#[derive(Debug)]
enum Security {
    None,
    Files(Box<Certificate>),
    Identity(Identity),
}

impl Bound {
    /// Binds a plain HTTP socket for health and metrics.
    pub fn plain(address: SocketAddr) -> Result<Self, ServeError> {
        Self::bind(address, Security::None)
    }

    /// Binds a plain HTTP socket, or waits later if the address is taken.
    pub fn plain_or_later(address: SocketAddr) -> Result<Awaited, ServeError> {
        match Self::plain(address) {
            Ok(bound) => Ok(Awaited::Bound(bound)),
            Err(ServeError::Bind { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {
                Ok(Awaited::Taken(address))
            }
            Err(error) => Err(error),
        }
    }

    /// Binds as the flags say, with TLS if they name a certificate.
    pub async fn from_args(args: &ServerArgs, limits: Limits) -> Result<Self, ServeError> {
        let security = match (&args.tls_cert, &args.tls_key) {
            (Some(cert), Some(key)) => {
                let clients = Clients::from_args(args).await?;
                Security::Files(Box::new(Certificate::load(cert, key, clients).await?))
            }
            _ if args.client_ca_file.is_some() => return Err(TlsError::Plain.into()),
            _ => Security::None,
        };
        Ok(Self { limits, ..Self::bind(args.listen, security)? })
    }

    /// Binds with TLS, using a certificate that the program itself manages.
    pub fn with_identity(
        address: SocketAddr,
        identity: Identity,
        limits: Limits,
    ) -> Result<Self, ServeError> {
        Ok(Self { limits, ..Self::bind(address, Security::Identity(identity))? })
    }

    fn bind(address: SocketAddr, security: Security) -> Result<Self, ServeError> {
        let (listener, address) =
            listen(address).map_err(|source| ServeError::Bind { address, source })?;
        Ok(Self { listener, security, address, limits: Limits::OPERATIONS })
    }

    /// Changes the limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The address of the socket, with the real port even if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the token is cancelled, then completes requests in flight. Without TLS it serves
    /// only HTTP/1, which clients without TLS speak.
    pub async fn serve(self, router: Router, stop: CancellationToken) -> Result<(), ServeError> {
        let answers = Answers::new(self.limits.answers);
        self.serve_and_count(router, stop, answers).await
    }

    /// The same, with answers that the caller can count.
    pub(crate) async fn serve_and_count(
        self,
        router: Router,
        stop: CancellationToken,
        answers: Answers,
    ) -> Result<(), ServeError> {
        let handle = Handle::new();
        let watch = tokio::spawn(shut_down_on(stop.clone(), handle.clone()));
        let prefers = self.security.clients().is_some_and(Clients::are_preferred);
        let connections = Connections::new(self.limits.connections, prefers);
        let overdue = tokio::spawn(close_overdue(connections.clone(), answers.clone()));
        let requests = Requests { bodies: Bodies::new(self.limits.bodies, prefers), answers };
        let router = router
            .layer(DefaultBodyLimit::disable())
            .layer(middleware::from_fn_with_state(requests, bodies::limit));
        let service = router.into_make_service();
        let served = async {
            let limited = Limited(connections);
            let mut server = axum_server::from_tcp(self.listener)?.handle(handle).acceptor(limited);
            server.http_builder().http1().max_buf_size(BUFFER);
            let (config, clients) = match self.security {
                Security::None => return server.http1_only().serve(service).await,
                Security::Identity(identity) => (identity.config(), identity.clients().clone()),
                Security::Files(certificate) => {
                    let followed = (certificate.config(), certificate.clients().clone());
                    tokio::spawn(certificate.follow(stop));
                    followed
                }
            };
            server
                .http_builder()
                .http2()
                .max_concurrent_streams(STREAMS)
                .max_header_list_size(HEAD_MAX)
                .max_send_buf_size(PIECE)
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(WINDOW);
            let server = server.map(|limited| {
                let acceptor = RustlsAcceptor::new(config).acceptor(limited);
                Recognizing { acceptor, clients }
            });
            server.serve(service).await
        };
        let result = served.await;
        overdue.abort();
        watch.abort();
        result.map_err(|source| ServeError::Serve { source })
    }
}

impl Security {
    fn clients(&self) -> Option<&Clients> {
        match self {
            Self::None => None,
            Self::Files(certificate) => Some(certificate.clients()),
            Self::Identity(identity) => Some(identity.clients()),
        }
    }
}

/// Closes connections that wait for too long, without end.
async fn close_overdue(connections: Connections, answers: Answers) {
    let mut tick = tokio::time::interval(CHECK);
    loop {
        tick.tick().await;
        let now = Instant::now();
        connections.close_overdue(now);
        answers.close_unread(now);
    }
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    // Connections have these options of their listener.
    sockopt::set_socket_send_buffer_size(&listener, SEND_BUFFER)?;
    sockopt::set_tcp_user_timeout(&listener, UNACKNOWLEDGED)?;
    rustix::net::listen(&listener, BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Awaited {
    /// Serves from the time when the address becomes free until the token is cancelled.
    pub async fn serve(
        mut self,
        router: Router,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        if let Self::Taken(address) = &self {
            tracing::warn!(%address, "Address in use by another process; waiting until it is free");
        }
        loop {
            let address = match self {
                Self::Bound(bound) => return bound.serve(router, stop).await,
                Self::Taken(address) => address,
            };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(RETRY) => {}
            }
            self = Bound::plain_or_later(address)?;
        }
    }
}

async fn shut_down_on(stop: CancellationToken, handle: Handle<SocketAddr>) {
    stop.cancelled().await;
    handle.graceful_shutdown(Some(GRACE));
}
