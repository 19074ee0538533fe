//! Serves a router on a socket, with or without TLS, until it is stopped.

use crate::args::ServerArgs;
use crate::tls::{Certificate, Identity, TlsError};
use axum::Router;
use axum_server::Handle;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long requests in flight may take after a stop. The API server waits at most 30 s for a
/// webhook, the scheduler 5 s for us.
const GRACE: Duration = Duration::from_secs(10);

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

/// A socket that is bound but not served yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    security: Security,
    address: SocketAddr,
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
    /// Binds a plain HTTP socket.
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
    pub async fn from_args(args: &ServerArgs) -> Result<Self, ServeError> {
        let security = match (&args.tls_cert, &args.tls_key) {
            (Some(cert), Some(key)) => {
                Security::Files(Box::new(Certificate::load(cert, key).await?))
            }
            _ => Security::None,
        };
        Self::bind(args.listen, security)
    }

    /// Binds with TLS, using a certificate that the program itself manages.
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

    /// The address of the socket, with the real port even if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the token is cancelled, then completes requests in flight.
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
