//! A server with TLS and the limits of the webhook, and clients of it.

use axum::Router;
use axum::routing::{get, post};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serve::authority::CertificateBundle;
use serve::http::{Bound, Limits};
use serve::tls::Identity;
use serve::tls::clients::Clients;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

const NAME: &str = "admission.dranet-system.svc";
const LARGE: usize = 100 << 10;
const BODY_MAX: usize = 64 << 10;
/// A server closes a connection whose client is gone within this time.
const SOON: Duration = Duration::from_secs(15);

/// A running server.
pub(crate) struct Server {
    address: SocketAddr,
    http2: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let now = k8s_openapi::jiff::Timestamp::now();
        let held = CertificateBundle::default().renewed(&[NAME.to_owned()], now);
        let held = held.expect("a certificate").expect("the first one");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let bound = runtime.block_on(async {
            let identity = Identity::new(&held.certificate, &held.key, Clients::default());
            let loopback = ([127, 0, 0, 1], 0).into();
            let identity = identity.expect("it is valid");
            Bound::with_identity(loopback, identity, Limits::requests(BODY_MAX)).expect("a port")
        });
        // As the runtime of Rust programs does, which targets of libFuzzer have not.
        let ignored = runtime.block_on(async { signal(SignalKind::pipe()) }).expect("a signal");
        std::mem::forget(ignored);
        let address = bound.address();
        let router = Router::new()
            .route("/large", get(async || "a".repeat(LARGE)))
            .route("/small", get(async || "a"))
            .route("/body", post(async |body: String| body));
        std::thread::spawn(move || {
            runtime.block_on(bound.serve(router, CancellationToken::new())).expect("it serves");
        });
        let config = |protocol| Arc::new(client(&held.authorities, protocol));
        Self { address, http2: config("h2"), http1: config("http/1.1") }
    }

    /// Sends bytes on a connection, and ends it as a client does that is gone. Returns when the server
    /// has closed it too.
    pub(crate) fn send(&self, bytes: &[u8]) {
        let mut tls = self.connect(&self.http2);
        // The server may close the connection at any time.
        let _ = tls.write_all(bytes).and_then(|()| tls.flush());
        tls.conn.send_close_notify();
        let _ = tls.conn.write_tls(&mut tls.sock);
        let _ = tls.sock.shutdown(Shutdown::Write);
        let mut answer = [0; 1 << 14];
        loop {
            match tls.sock.read(&mut answer) {
                Ok(0) => return,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    panic!("the server keeps a connection whose client is gone");
                }
                Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Checks that a client that takes its answer gets it.
    pub(crate) fn answers_others(&self) {
        let mut tls = self.connect(&self.http1);
        let request = b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        tls.write_all(request).expect("the server reads");
        let mut answer = Vec::new();
        tls.read_to_end(&mut answer).expect("the server answers");
        assert!(answer.starts_with(b"HTTP/1.1 200") && answer.len() > LARGE, "{}", answer.len());
    }

    fn connect(&self, config: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
        let name = ServerName::try_from(NAME).expect("a name");
        let connection = ClientConnection::new(Arc::clone(config), name).expect("it is complete");
        let socket = TcpStream::connect(self.address).expect("the server accepts");
        socket.set_read_timeout(Some(SOON)).expect("a socket");
        socket.set_write_timeout(Some(SOON)).expect("a socket");
        StreamOwned::new(connection, socket)
    }
}

fn client(authorities: &str, protocol: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for authority in pem::parse_many(authorities).expect("PEM") {
        roots.add(authority.into_contents().into()).expect("an authority");
    }
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("ring has all");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.into()];
    config
}
