//! Clients that ask and never take the answer.

use std::{
    io::{self, Read as _, Write as _},
    net::{self, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, pki_types::ServerName};
use serde_json::{Value, json};
use tests::{
    ControlPlane,
    installation::{Installation, Webhook, review},
    suite::Test,
    with_scope,
};

use super::connections::{healthy, longest, loopback, measure, within};

/// Connections to the webhook, and requests on each: as many as a server of HTTP/2 commonly allows.
const CONNECTIONS: usize = 33;
const STREAMS: u32 = 190;
/// Connections to the port of metrics, and requests on each.
const SCRAPES: usize = 64;
const PIPELINED: usize = 5_000;
/// Containers of the pod of a review.
const CONTAINERS: usize = 300;
/// The number of connections that send at a time.
const TOGETHER: usize = 4;
/// How long a client waits that may send nothing more.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::attempts![answers_that_nobody_takes_do_not_fill_the_memory];
    all.into_iter().map(Test::alone).collect()
}

async fn answers_that_nobody_takes_do_not_fill_the_memory(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        installation.start_admission().await?;
        let webhook = installation.webhook().await?;
        let operations = loopback(installation.replicas()[0].operations);
        let body: Arc<[u8]> = serde_json::to_vec(&review(scope.namespace(), large()))?.into();
        let all = stream::iter(0..CONNECTIONS).map(|_| {
            let (webhook, body) = (webhook.clone(), Arc::clone(&body));
            tokio::task::spawn_blocking(move || Unread::new(&webhook, &body))
        });
        let unread = all.buffer_unordered(TOGETHER);
        let unread: Vec<anyhow::Result<Unread>> = unread.try_collect().await?;
        let unread = unread.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let scrapes = (0..SCRAPES).map(|_| pipelined(operations)).collect::<io::Result<Vec<_>>>()?;
        let took = measure(&webhook.client()?, scope.namespace()).await?;
        healthy(operations).await?;
        let memory = within(webhook.pid(), 512)?;
        anyhow::ensure!(took < longest(), "{took:?}");
        let sent: u32 = unread.iter().map(|unread| unread.sent).sum();
        drop((unread, scrapes));
        Ok(format!(
            "{sent} requests were sent; 99 of 100 reviews within {took:.0?}, health ok, {memory} MiB"
        ))
    })
    .await
}

/// A pod whose answer is much larger than its review.
fn large() -> Value {
    let container = |number: usize| {
        let gpus = if number < 4 { "1" } else { "0" };
        json!({"name": format!("c{number}"), "image": "x",
               "resources": {"limits": {"nvidia.com/gpu": gpus}}})
    };
    json!({
        "metadata": {"name": "p", "annotations": {"dranet.io/aligned-nics": "per-gpu"}},
        "spec": {"containers": (0..CONTAINERS).map(container).collect::<Vec<_>>()},
    })
}

/// Sends requests and reads nothing, until the connection takes no more.
fn pipelined(address: SocketAddr) -> io::Result<net::TcpStream> {
    let mut socket = net::TcpStream::connect(address)?;
    socket.set_nonblocking(true)?;
    let text = "GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".repeat(PIPELINED);
    // What does not fit is not sent.
    let _ = socket.write_all(text.as_bytes());
    Ok(socket)
}

/// A connection with HTTP/2 that takes nothing of its answers.
struct Unread {
    tls: StreamOwned<ClientConnection, net::TcpStream>,
    /// Bytes that the server still takes.
    window: usize,
    sent: u32,
}

impl Unread {
    /// Sends as many reviews as the server takes.
    fn new(webhook: &Webhook, body: &[u8]) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(webhook.authority.clone().into())?;
        let mut config =
            ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from(webhook.name.clone())?;
        let connection = ClientConnection::new(Arc::new(config), name)?;
        let socket = net::TcpStream::connect(webhook.url.trim_start_matches("https://"))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let tls = StreamOwned::new(connection, socket);
        let mut unread = Self { tls, window: 65_535, sent: 0 };
        // The server may close the connection at any time.
        let _closed = unread.send(body);
        Ok(unread)
    }

    fn send(&mut self, body: &[u8]) -> io::Result<()> {
        self.tls.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        // SETTINGS_INITIAL_WINDOW_SIZE is 0.
        self.frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])?;
        for number in 0..STREAMS {
            self.review(2 * number + 1, body)?;
            self.sent += 1;
        }
        Ok(())
    }

    fn review(&mut self, stream: u32, body: &[u8]) -> io::Result<()> {
        while self.window < body.len() {
            self.read()?;
        }
        self.window -= body.len();
        let mut head = vec![0x83, 0x87, 0x04, 7];
        head.extend(b"/mutate");
        head.extend([0x01, 1, b'a', 0x0f, 0x10, 16]);
        head.extend(b"application/json");
        self.frame(1, 0x4, stream, &head)?;
        let pieces = body.chunks(16 << 10);
        let last = pieces.len() - 1;
        for (number, piece) in pieces.enumerate() {
            self.frame(0, u8::from(number == last), stream, piece)?;
        }
        self.tls.flush()
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?.to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.tls.write_all(&frame)
    }

    /// Reads a frame. Those about the window of the connection count.
    fn read(&mut self) -> io::Result<()> {
        let mut head = [0; 9];
        self.tls.read_exact(&mut head)?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.tls.read_exact(&mut payload)?;
        if let (8, [0, 0, 0, 0], &[a, b, c, d]) = (head[3], &head[5..], payload.as_slice()) {
            self.window += u32::from_be_bytes([a, b, c, d]) as usize;
        }
        Ok(())
    }
}
