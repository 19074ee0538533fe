//! Tests answers as clients see them that do not read: raw frames, real connections.

#![allow(clippy::unwrap_in_result, reason = "a test may panic")]

use super::*;
use crate::authority::CertificateBundle;
use crate::bodies::BodyLimits;
use crate::connections::Connections;
use crate::http::{Bound, Limits};
use crate::tls::Identity;
use crate::tls::clients::Clients;
use axum::Router;
use axum::routing::get;
use futures::FutureExt as _;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use tokio_util::sync::CancellationToken;

const NAME: &str = "admission.dranet-system.svc";
const LARGE: usize = 100 << 10;
const LIMITS: AnswerLimits = AnswerLimits { together: 1 << 20, of_connection: 256 << 10 };
const SOON: Duration = Duration::from_secs(10);

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A server whose answers of `/large` have 100 KiB.
struct Server {
    address: SocketAddr,
    authorities: String,
    answers: Answers,
    stop: CancellationToken,
}

impl Server {
    fn start(is_secure: bool) -> Self {
        let now = k8s_openapi::jiff::Timestamp::now();
        let held = CertificateBundle::default().renewed(&[NAME.to_owned()], now).unwrap().unwrap();
        let bodies = BodyLimits { each: 1 << 10, together: 64 << 20, handled: 1 << 10 };
        let limits = Limits { connections: 64, bodies, answers: LIMITS };
        let loopback = ([127, 0, 0, 1], 0).into();
        let bound = if is_secure {
            let identity = Identity::new(&held.certificate, &held.key, Clients::default()).unwrap();
            Bound::with_identity(loopback, identity, limits).unwrap()
        } else {
            Bound::plain(loopback).unwrap().with_limits(limits)
        };
        let (address, stop, answers) =
            (bound.address(), CancellationToken::new(), Answers::new(LIMITS));
        let router = Router::new().route("/large", get(async || "a".repeat(LARGE)));
        tokio::spawn(bound.serve_and_count(router, stop.clone(), answers.clone()));
        Self { address, authorities: held.authorities, answers, stop }
    }

    fn connect(&self, protocol: &str) -> io::Result<Tls> {
        let mut roots = RootCertStore::empty();
        for authority in pem::parse_many(&self.authorities).unwrap() {
            roots.add(authority.into_contents().into()).unwrap();
        }
        let mut config =
            ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![protocol.into()];
        let name = ServerName::try_from(NAME).unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(self.address)?;
        socket.set_read_timeout(Some(SOON))?;
        Ok(StreamOwned::new(connection, socket))
    }

    /// Asks for large answers with HTTP/2 and takes nothing of them.
    fn ask_and_take_nothing(&self, streams: u32) -> io::Result<Tls> {
        let mut tls = self.connect("h2")?;
        tls.write_all(&opening(0))?;
        for stream in 0..streams {
            tls.write_all(&request(2 * stream + 1))?;
        }
        tls.flush()?;
        Ok(tls)
    }

    /// What a client gets that reads at once.
    fn ask(&self) -> io::Result<usize> {
        let mut tls = self.connect("http/1.1")?;
        tls.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        tls.read_to_end(&mut answer)?;
        Ok(answer.len())
    }

    fn unread(&self) -> usize {
        self.answers.lock().bytes
    }

    async fn until_unread(&self, is_enough: impl Fn(usize) -> bool) {
        let reached = async {
            while !is_enough(self.unread()) {
                tokio::task::yield_now().await;
            }
        };
        let unread = || self.unread();
        tokio::time::timeout(SOON, reached).await.unwrap_or_else(|_| panic!("{}", unread()));
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The preface, and settings with this initial window of streams.
fn opening(window: u32) -> Vec<u8> {
    let mut settings = vec![0, 4];
    settings.extend(window.to_be_bytes());
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &settings)].concat()
}

/// `GET https://a/large`, the whole request.
fn request(stream: u32) -> Vec<u8> {
    let mut head = vec![0x82, 0x87, 0x04, 6];
    head.extend(b"/large");
    head.extend([0x01, 1, b'a']);
    frame(1, 0x5, stream, &head)
}

fn grant(stream: u32, bytes: u32) -> Vec<u8> {
    frame(8, 0, stream, &bytes.to_be_bytes())
}

/// Reads a frame: its kind, its flags and the length of its payload.
fn read_frame(tls: &mut Tls) -> io::Result<(u8, u8, usize)> {
    let mut head = [0; 9];
    tls.read_exact(&mut head)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    tls.read_exact(&mut vec![0; length])?;
    Ok((head[3], head[4], length))
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_takes_are_limited_and_keep_nobody_out() {
    let server = Server::start(true);
    let mut most = 0;
    let mut held = Vec::new();
    for number in 0..40 {
        // Requests above the limit of streams are refused.
        held.push(server.ask_and_take_nothing(64));
        most = most.max(server.unread());
        if number % 10 == 9 {
            let got = tokio::task::block_in_place(|| server.ask()).unwrap();
            assert!(got > LARGE, "{got}");
        }
        most = most.max(server.unread());
    }
    assert!(most > LIMITS.together / 2, "{most} bytes were enough to try it");
    assert!(most <= 2 * LIMITS.together + LARGE + OVERHEAD, "{most}");
    drop(held);
    server.until_unread(|bytes| bytes == 0).await;
    server.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_one_connection_wait_for_each_other() {
    let server = Server::start(true);
    let _taking_nothing = server.ask_and_take_nothing(32).unwrap();
    server.until_unread(|bytes| bytes > LIMITS.of_connection).await;
    let other = server.ask_and_take_nothing(1).unwrap();
    let before = server.unread();
    assert!(before < 3 * LIMITS.of_connection, "{before}");
    server.until_unread(|bytes| bytes >= before + LARGE).await;
    drop(other);
    server.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_nobody_reads_is_limited() {
    let server = Server::start(false);
    let mut held = Vec::new();
    let mut most = 0;
    for _ in 0..40 {
        let mut socket = TcpStream::connect(server.address).unwrap();
        // Some of it fits into buffers, and the connection may be closed meanwhile.
        socket.set_nonblocking(true).unwrap();
        let _ = socket.write_all("GET /large HTTP/1.1\r\nhost: a\r\n\r\n".repeat(500).as_bytes());
        held.push(socket);
        most = most.max(server.unread());
        tokio::task::yield_now().await;
    }
    server.until_unread(|bytes| bytes > 0).await;
    let answer = tokio::task::block_in_place(|| {
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).map(|_| answer.len())
    });
    assert!(answer.unwrap() > LARGE);
    most = most.max(server.unread());
    assert!(most <= 2 * LIMITS.together + LARGE + OVERHEAD, "{most}");
    drop(held);
    server.until_unread(|bytes| bytes == 0).await;
    server.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_little_at_a_time_gets_the_whole_answer() {
    let server = Server::start(true);
    let got = tokio::task::block_in_place(|| {
        let mut tls = server.connect("h2")?;
        tls.write_all(&opening(0))?;
        tls.write_all(&request(1))?;
        let (mut got, mut ended) = (0, false);
        while !ended {
            let (kind, flags, length) = read_frame(&mut tls)?;
            // The headers of the answer, and its data.
            if kind <= 1 {
                got += if kind == 0 { length } else { 0 };
                ended = flags & 1 == 1;
                tls.write_all(&[grant(1, 1000), grant(0, 1000)].concat())?;
            }
        }
        io::Result::Ok(got)
    });
    assert_eq!(got.unwrap(), LARGE);
    server.until_unread(|bytes| bytes == 0).await;
    server.stop.cancel();
}

#[tokio::test]
async fn a_connection_that_takes_nothing_is_closed() {
    let (connections, answers) = (Connections::new(8, false), Answers::new(LIMITS));
    let [idle, slow] = std::array::from_fn(|_| connections.admit().unwrap());
    let answer = || "a".repeat(LARGE).into_response();
    let _unread = answers.hold(answer(), &idle).await;
    let mut body = answers.hold(answer(), &slow).await.into_body();
    answers.close_unread(Instant::now());
    assert!(!idle.is_closed());
    let later = Instant::now() + UNREAD;
    while Instant::now() + UNREAD <= later {
        tokio::task::yield_now().await;
    }
    body.frame().await.unwrap().unwrap();
    answers.close_unread(later);
    assert!(idle.is_closed() && !slow.is_closed(), "this one makes progress");
    assert_eq!(answers.lock().bytes, LARGE + OVERHEAD);
    drop(body);
    assert_eq!(answers.lock().bytes, 0);
}

#[tokio::test]
async fn the_transport_keeps_an_answer_as_long_as_a_piece_of_it() {
    let (connections, answers) = (Connections::new(8, false), Answers::new(LIMITS));
    let connection = connections.admit().unwrap();
    let mut body = answers.hold("a".repeat(LARGE).into_response(), &connection).await.into_body();
    let piece = body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(answers.lock().bytes, LARGE + OVERHEAD);
    drop(piece);
    assert_eq!(answers.lock().bytes, 0);
}

/// Known clients go last, whoever waits longest.
#[tokio::test]
async fn there_is_room_as_soon_as_the_oldest_answer_of_others_is_old_enough() {
    let (connections, answers) = (Connections::new(8, true), Answers::new(LIMITS));
    let [known, first, second] = std::array::from_fn(|_| connections.admit().unwrap());
    known.set_known();
    let answer = || "a".repeat(LIMITS.together / 2).into_response();
    let _known = answers.hold(answer(), &known).await;
    assert_eq!(answers.room().now_or_never(), Some(()));
    let _first = answers.hold(answer(), &first).await;
    assert_eq!(answers.room().now_or_never(), None, "it is too young");
    tokio::time::timeout(SOON, answers.room()).await.unwrap();
    assert!(first.is_closed() && !known.is_closed());
    let more = answers.hold(answer(), &known).await;
    tokio::time::timeout(2 * GRACE, answers.room()).await.unwrap_err();
    assert!(!known.is_closed());
    drop(more);
    // Refusals do not wait for room; they take it from the oldest.
    for _ in 0..3 {
        drop(answers.hold(answer(), &second).await);
    }
    let held = [answers.hold(answer(), &second).await, answers.hold(answer(), &second).await];
    assert!(!second.is_closed());
    let _more = answers.hold(answer(), &connections.admit().unwrap()).await;
    assert!(second.is_closed() && !known.is_closed());
    drop(held);
}

/// What happens on some connections.
#[derive(Clone, Copy, Debug)]
enum Step {
    Answer {
        connection: usize,
        bytes: usize,
    },
    /// The transport takes a piece of an answer.
    Take {
        answer: usize,
    },
    /// The oldest piece is written.
    Write {
        answer: usize,
    },
    /// The stream ends, whatever is left.
    End {
        answer: usize,
    },
    Overdue,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3_usize, 0..LIMITS.together)
            .prop_map(|(connection, bytes)| Step::Answer { connection, bytes }),
        any::<usize>().prop_map(|answer| Step::Take { answer }),
        any::<usize>().prop_map(|answer| Step::Write { answer }),
        any::<usize>().prop_map(|answer| Step::End { answer }),
        Just(Step::Overdue),
    ]
}

/// An answer, and the pieces of it that the transport has.
struct Sent {
    connection: Connection,
    bytes: usize,
    body: Option<Body>,
    pieces: Vec<Frame<Bytes>>,
}

impl Sent {
    fn new(answers: &Answers, connection: &Connection, bytes: usize) -> Self {
        let answer = answers.hold("a".repeat(bytes).into_response(), connection);
        let body = answer.now_or_never().unwrap().into_body();
        Self { connection: connection.clone(), bytes, body: Some(body), pieces: Vec::new() }
    }

    fn take(&mut self) {
        let frame = self.body.as_mut().and_then(|body| body.frame().now_or_never().unwrap());
        self.pieces.extend(frame.map(Result::unwrap));
    }

    fn write(&mut self) {
        if !self.pieces.is_empty() {
            self.pieces.remove(0);
        }
    }

    /// What it counts for.
    fn counted(&self) -> usize {
        let is_held = self.bytes > 0 && (self.body.is_some() || !self.pieces.is_empty());
        if is_held && !self.connection.is_closed() { self.bytes + OVERHEAD } else { 0 }
    }
}

proptest! {
    /// Whatever clients do, the answers that are in memory are counted, and limited.
    #[test]
    fn any_order_of_steps_counts_what_is_in_memory(
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        check(&steps);
    }
}

fn check(steps: &[Step]) {
    let (connections, answers) = (Connections::new(8, false), Answers::new(LIMITS));
    let mut open: [_; 3] = std::array::from_fn(|_| connections.admit().unwrap());
    let mut sent: Vec<Sent> = Vec::new();
    for step in steps {
        let count = sent.len().max(1);
        match *step {
            Step::Answer { connection, bytes } => {
                if open[connection].is_closed() {
                    open[connection] = connections.admit().unwrap();
                }
                sent.push(Sent::new(&answers, &open[connection], bytes));
            }
            Step::Take { answer } => sent.get_mut(answer % count).into_iter().for_each(Sent::take),
            Step::Write { answer } => {
                sent.get_mut(answer % count).into_iter().for_each(Sent::write);
            }
            Step::End { answer } => {
                if let Some(sent) = sent.get_mut(answer % count) {
                    sent.body = None;
                }
            }
            Step::Overdue => answers.close_unread(Instant::now() + 2 * UNREAD),
        }
        let counted = answers.lock().bytes;
        assert_eq!(counted, sent.iter().map(Sent::counted).sum::<usize>(), "{step:?}");
        assert!(counted <= 3 * LIMITS.together + OVERHEAD, "{counted}");
    }
    drop(sent);
    assert_eq!(answers.lock().bytes, 0);
}
