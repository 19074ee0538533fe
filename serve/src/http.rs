//! Serving a router on a socket, with or without TLS, until told to stop.

use crate::args::ServerArgs;
use crate::tls::{Certificate, Identity, TlsError};
use axum::Router;
use axum_server::Handle;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long requests in flight may take after a stop: the longest time limit
/// that the API server gives a webhook is 30 s, the scheduler gives us 5 s.
const GRACE: Duration = Duration::from_secs(10);

/// How often a taken address is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// A server could not start or broke.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not ours.
    #[error("failed to listen on {address}")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The accept loop ended.
    #[error("failed to serve")]
    Serve {
        /// Why.
        source: io::Error,
    },
}

/// A socket that is bound and not served yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    security: Security,
    address: SocketAddr,
}

/// An address that another process may have still: the instance that this one replaces,
/// on the host's network.
#[derive(Debug)]
pub enum Awaited {
    /// It is ours.
    Bound(Bound),
    /// It is another's.
    Taken(SocketAddr),
}

/// What a connection is secured with.
#[derive(Debug)]
enum Security {
    None,
    Files(Box<Certificate>),
    Identity(Identity),
}

impl Bound {
    /// Binds a plain HTTP socket.
    pub fn plain(address: SocketAddr) -> Result<Self, ServeError> {
        Self::bind(address, Security::None)
    }

    /// Binds a plain HTTP socket now, or later where the address is taken.
    pub fn plain_or_later(address: SocketAddr) -> Result<Awaited, ServeError> {
        match Self::plain(address) {
            Ok(bound) => Ok(Awaited::Bound(bound)),
            Err(ServeError::Bind { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {
                Ok(Awaited::Taken(address))
            }
            Err(error) => Err(error),
        }
    }

    /// Binds as the flags say, with TLS where they name a certificate.
    pub async fn from_args(args: &ServerArgs) -> Result<Self, ServeError> {
        let security = match (&args.tls_cert, &args.tls_key) {
            (Some(cert), Some(key)) => {
                Security::Files(Box::new(Certificate::load(cert, key).await?))
            }
            _ => Security::None,
        };
        Self::bind(args.listen, security)
    }

    /// Binds with TLS by a certificate that the program itself keeps.
    pub fn with_identity(address: SocketAddr, identity: Identity) -> Result<Self, ServeError> {
        Self::bind(address, Security::Identity(identity))
    }

    fn bind(address: SocketAddr, security: Security) -> Result<Self, ServeError> {
        let open = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = open().map_err(|source| ServeError::Bind { address, source })?;
        Ok(Self { listener, security, address })
    }

    /// Where it listens; the port is the real one also where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the token is cancelled, then lets requests in flight end.
    pub async fn serve(self, router: Router, stop: CancellationToken) -> Result<(), ServeError> {
        let handle = Handle::new();
        let watch = tokio::spawn(shut_down_on(stop.clone(), handle.clone()));
        let service = router.into_make_service();
        let served = async {
            let config = match self.security {
                Security::None => {
                    let server = axum_server::from_tcp(self.listener)?;
                    return server.handle(handle).serve(service).await;
                }
                Security::Identity(identity) => identity.config(),
                Security::Files(certificate) => {
                    let config = certificate.config();
                    tokio::spawn(certificate.follow(stop));
                    config
                }
            };
            let server = axum_server::from_tcp_rustls(self.listener, config)?;
            server.handle(handle).serve(service).await
        };
        let result = served.await;
        watch.abort();
        result.map_err(|source| ServeError::Serve { source })
    }
}

impl Awaited {
    /// Serves from when the address is free until the token is cancelled.
    pub async fn serve(
        mut self,
        router: Router,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        if let Self::Taken(address) = &self {
            tracing::warn!(%address, "Another process listens there; waiting until it has ended");
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
