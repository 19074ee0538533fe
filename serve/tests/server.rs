//! Tests a server as its clients see it: protocols, certificates, orderly shutdown.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test may panic")]

use axum::Router;
use axum::routing::get;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream, StreamOwned};
use serve::args::ClientCertificate;
use serve::authority::CertificateBundle;
use serve::bodies::BodyLimits;
use serve::http::{AnswerLimits, Awaited, Bound, Limits};
use serve::operations;
use serve::readiness::Readiness;
use serve::tls::Identity;
use serve::tls::clients::Clients;
use serve::turns::Caller;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const NAME: &str = "admission.dranet-system.svc";

fn held() -> CertificateBundle {
    let now = k8s_openapi::jiff::Timestamp::now();
    CertificateBundle::default().renewed(&[NAME.to_owned()], now).unwrap().unwrap()
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn roots(authorities: &str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for authority in pem::parse_many(authorities).unwrap() {
        roots.add(authority.into_contents().into()).unwrap();
    }
    roots
}

/// Performs a TLS handshake as a client that trusts `authorities`; returns the negotiated protocol.
fn protocol(address: SocketAddr, authorities: &str) -> Result<Vec<u8>, std::io::Error> {
    let roots = roots(authorities);
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from(NAME).unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = TcpStream::connect(address)?;
    Stream::new(&mut connection, &mut socket).flush()?;
    connection.complete_io(&mut socket)?;
    Ok(connection.alpn_protocol().unwrap_or_default().to_vec())
}

#[tokio::test]
async fn the_certificate_can_be_replaced_while_serving_http2() {
    let (first, second) = (held(), held());
    let identity = Identity::new(&first.certificate, &first.key, Clients::default()).unwrap();
    let bound =
        Bound::with_identity(loopback(), identity.clone(), Limits::requests(1 << 20)).unwrap();
    let (address, stop) = (bound.address(), CancellationToken::new());
    let serving = tokio::spawn(bound.serve(Router::new(), stop.clone()));
    let shake = async |held: &CertificateBundle| {
        let authorities = held.authorities.clone();
        tokio::task::spawn_blocking(move || protocol(address, &authorities)).await.unwrap()
    };
    assert_eq!(shake(&first).await.unwrap(), b"h2");
    assert!(shake(&second).await.is_err(), "it is not trusted yet");
    identity.replace(&second.certificate, &second.key).unwrap();
    assert_eq!(shake(&second).await.unwrap(), b"h2");
    stop.cancel();
    serving.await.unwrap().unwrap();
}

/// An authority for certificates of clients.
struct ClientAuthority(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

impl ClientAuthority {
    fn new() -> Self {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        Self(rcgen::CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// A client that trusts the server's authorities and has a certificate with this common name.
    fn client(&self, name: &str, authorities: &str) -> ClientConfig {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots(authorities));
        config.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
    }
}

/// Only certificates of the authority are let in, and of these only the named ones.
#[tokio::test]
async fn clients_without_the_right_certificate_are_refused() {
    let (server, authority, other) = (held(), ClientAuthority::new(), ClientAuthority::new());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    std::fs::write(&file, authority.0.pem()).unwrap();
    for (names, allowed) in [
        (vec![], ["apiserver", "tenant"].as_slice()),
        (vec!["apiserver".to_owned()], &["apiserver"]),
    ] {
        let clients =
            Clients::of_authority(&file, &names, ClientCertificate::Required).await.unwrap();
        let identity = Identity::new(&server.certificate, &server.key, clients).unwrap();
        let bound = Bound::with_identity(loopback(), identity, Limits::requests(1 << 20)).unwrap();
        let (address, stop) = (bound.address(), CancellationToken::new());
        let router = Router::new().route("/", get(async || "answered"));
        let serving = tokio::spawn(bound.serve(router, stop.clone()));
        let answered = async |config: ClientConfig| {
            tokio::task::spawn_blocking(move || answer(address, config)).await.unwrap()
        };
        for name in ["apiserver", "tenant"] {
            let answer = answered(authority.client(name, &server.authorities)).await;
            assert_eq!(answer.is_ok(), allowed.contains(&name), "{name}: {answer:?}");
        }
        assert!(answered(other.client("apiserver", &server.authorities)).await.is_err());
        let roots = roots(&server.authorities);
        let without = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        assert!(answered(without).await.is_err(), "a client without a certificate");
        stop.cancel();
        serving.await.unwrap().unwrap();
    }
    std::fs::write(&file, "no authority").unwrap();
    let refused = Clients::of_authority(&file, &[], ClientCertificate::Required).await.unwrap_err();
    assert!(refused.to_string().contains("has no authority"), "{refused}");
}

/// A client with any other certificate is as one without.
#[tokio::test]
async fn clients_with_the_preferred_certificate_are_known() {
    let (server, authority, other) = (held(), ClientAuthority::new(), ClientAuthority::new());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    std::fs::write(&file, authority.0.pem()).unwrap();
    let names = ["apiserver".to_owned()];
    let preferred = ClientCertificate::Preferred;
    let clients = Clients::of_authority(&file, &names, preferred).await.unwrap();
    let identity = Identity::new(&server.certificate, &server.key, clients).unwrap();
    let bound = Bound::with_identity(loopback(), identity, Limits::requests(1 << 20)).unwrap();
    let (address, stop) = (bound.address(), CancellationToken::new());
    let router = Router::new().route("/", get(async |caller: Caller| format!("{caller:?}")));
    let serving = tokio::spawn(bound.serve(router, stop.clone()));
    let roots = roots(&server.authorities);
    for (config, expected) in [
        (authority.client("apiserver", &server.authorities), "Known"),
        (authority.client("tenant", &server.authorities), "Unknown"),
        (other.client("apiserver", &server.authorities), "Unknown"),
        (ClientConfig::builder().with_root_certificates(roots).with_no_client_auth(), "Unknown"),
    ] {
        let answer = tokio::task::spawn_blocking(move || answer(address, config)).await.unwrap();
        let answer = answer.unwrap();
        assert!(answer.ends_with(&format!("\r\n\r\n{expected}")), "{answer}");
    }
    stop.cancel();
    serving.await.unwrap().unwrap();
}

/// What a client gets from `/`. With TLS 1.3 the server refuses a certificate after the handshake.
fn answer(address: SocketAddr, config: ClientConfig) -> std::io::Result<String> {
    let name = ServerName::try_from(NAME).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address)?);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

async fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut socket = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn a_request_in_flight_is_answered_after_the_stop() {
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (inside, until) = (Arc::clone(&entered), Arc::clone(&leave));
    let slow = move || async move {
        inside.notify_one();
        until.notified().await;
        "answered"
    };
    let bound = Bound::plain(loopback()).unwrap();
    let (address, stop) = (bound.address(), CancellationToken::new());
    let serving = tokio::spawn(bound.serve(Router::new().route("/slow", get(slow)), stop.clone()));
    let answer = tokio::spawn(ask(address, "/slow"));
    entered.notified().await;
    stop.cancel();
    leave.notify_one();
    assert!(answer.await.unwrap().unwrap().ends_with("answered"));
    serving.await.unwrap().unwrap();
    assert!(ask(address, "/slow").await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn readyz_lists_what_is_missing() {
    let readiness = Readiness::default();
    let waiting = readiness.wait_for("certificate");
    let router = operations::router(readiness, prometheus_client::registry::Registry::default());
    let bound = Bound::plain(loopback()).unwrap();
    let (address, stop) = (bound.address(), CancellationToken::new());
    let serving = tokio::spawn(bound.serve(router, stop.clone()));
    assert!(ask(address, "/healthz").await.unwrap().starts_with("HTTP/1.1 200 "));
    let not_ready = ask(address, "/readyz").await.unwrap();
    assert!(not_ready.starts_with("HTTP/1.1 503 "), "{not_ready}");
    assert!(not_ready.contains("waiting for certificate"), "{not_ready}");
    drop(waiting);
    assert!(ask(address, "/readyz").await.unwrap().starts_with("HTTP/1.1 200 "));
    assert!(ask(address, "/metrics").await.unwrap().contains("# EOF"));
    stop.cancel();
    serving.await.unwrap().unwrap();
}

/// The address is still held by the instance that this one replaces.
#[tokio::test]
async fn a_taken_address_is_served_once_it_is_free() {
    let first = Bound::plain(loopback()).unwrap();
    let (address, stop) = (first.address(), CancellationToken::new());
    let awaited = Bound::plain_or_later(address).unwrap();
    assert!(matches!(awaited, Awaited::Taken(taken) if taken == address), "{awaited:?}");
    let router =
        operations::router(Readiness::default(), prometheus_client::registry::Registry::default());
    let serving = tokio::spawn(awaited.serve(router, stop.clone()));
    drop(first);
    let answered = async {
        loop {
            if let Ok(answer) = ask(address, "/healthz").await {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let answer = tokio::time::timeout(std::time::Duration::from_secs(10), answered).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stop.cancel();
    serving.await.unwrap().unwrap();
}

/// A server with few places and little room for bodies, whose handler answers with the length of
/// the body.
fn limited() -> (SocketAddr, CancellationToken) {
    let bound = Bound::plain(loopback()).unwrap();
    let bodies = BodyLimits { each: 1 << 20, together: 2 << 20, handled: 1 << 20 };
    let answers = AnswerLimits { together: 1 << 20, of_connection: 1 << 20 };
    let bound = bound.with_limits(Limits { connections: 8, bodies, answers });
    let (address, stop) = (bound.address(), CancellationToken::new());
    let length = |body: axum::body::Bytes| async move { body.len().to_string() };
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/length", axum::routing::post(length));
    tokio::spawn(bound.serve(router, stop.clone()));
    (address, stop)
}

/// Starts a request with a body, and sends the first bytes of it.
async fn begin(address: SocketAddr, length: usize, sent: usize) -> tokio::net::TcpStream {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!("POST /length HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&vec![b'a'; sent]).await.unwrap();
    socket
}

#[tokio::test]
async fn idle_connections_and_half_requests_keep_nobody_out() {
    let (address, stop) = limited();
    let mut held = Vec::new();
    for number in 0..200 {
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        if number % 2 == 0 {
            socket.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
        }
        held.push(socket);
        if number % 20 == 0 {
            assert!(ask(address, "/healthz").await.unwrap().ends_with("ok\n"));
        }
    }
    let mut first = held.remove(0);
    let mut rest = Vec::new();
    let read = first.read_to_end(&mut rest);
    let read = tokio::time::timeout(std::time::Duration::from_secs(10), read).await.unwrap();
    assert!(read.is_err() || rest.is_empty(), "closed without an answer");
    stop.cancel();
}

#[tokio::test]
async fn slow_bodies_are_given_up_when_there_are_too_many() {
    let (address, stop) = limited();
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(begin(address, 1 << 20, (1 << 20) - 1).await);
    }
    let mut last = begin(address, 4, 4).await;
    let mut answer = [0; 64];
    let read = last.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut answers = String::new();
    slow.remove(0).read_to_string(&mut answers).await.unwrap();
    assert!(answers.starts_with("HTTP/1.1 503"), "the oldest is given up: {answers}");
    let mut large = begin(address, (1 << 20) + 1, 1 << 20).await;
    let _ = large.write_all(b"a").await;
    let mut refused = [0; 64];
    let read = large.read(&mut refused).await.unwrap();
    assert!(String::from_utf8_lossy(&refused[..read]).starts_with("HTTP/1.1 413"));
    stop.cancel();
}
