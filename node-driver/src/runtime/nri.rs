//! Attaches interfaces as an NRI plugin, the alternative to the
//! [hook](crate::runtime::hook). containerd and CRI-O tell their plugins about
//! each sandbox that starts or stops, and wait for the answer.
//!
//! Implements the published protocol: [frames on one socket](trunk) contain ttrpc
//! [messages](message), which contain protobuf ([`wire`]). A [session] parses bytes
//! without a socket; [`serve`] owns the socket, and reconnects when the runtime was
//! restarted.
//!
//! NRI lets a pod start even if a plugin is down or late. So the CDI spec mounts a link
//! that is dangling until the interfaces are in the sandbox: a container without them
//! does not start, and the kubelet tries again
//! ([`Paths::ready`](node_files::paths::Paths)). Containers with a user namespace need mounts
//! with mapped user IDs, but the kernel cannot map those of a network namespace. The plugin
//! removes the mount from these containers when it answers the runtime, after the interfaces are
//! in the sandbox. Without its answer the mount stays, and the container does not start.
//! The same holds for containers of claims that several pods can have, whose link would be there for
//! each of these pods.

pub mod message;
mod plugin;
pub mod session;
pub mod trunk;
pub mod wire;

use crate::claims::preparer::Preparer;
use crate::prepare::local::LocalPreparer;
use crate::runtime::nri::plugin::SandboxPlugin;
use crate::runtime::nri::session::{Incoming, Session};
use process::chain::Chain;
use serve::readiness::{Readiness, Wait};
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

/// Pause between attempts to connect.
const PAUSE: Duration = Duration::from_millis(500);
/// Read buffer size, in bytes.
const READ: usize = 64 << 10;

/// The peer violated the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A frame is longer than any message.
    #[error("a frame of {length} bytes is longer than any message")]
    LongFrame {
        /// Its length, as its header says.
        length: usize,
    },
    /// A message exceeds ttrpc's limit.
    #[error(
        "a message of {length} bytes is longer than the {} that ttrpc allows",
        message::DATA_MAX
    )]
    LongMessage {
        /// Its length, as its header says.
        length: usize,
    },
    /// An unknown message type.
    #[error("unknown message type {number}")]
    Kind {
        /// The type.
        number: u8,
    },
    /// A call on a stream number that callers do not use.
    #[error("a call has the even stream number {stream}")]
    Stream {
        /// The stream.
        stream: u32,
    },
    /// A response without a request.
    #[error("a message on stream {stream} answers no request")]
    Unasked {
        /// The stream.
        stream: u32,
    },
    /// The payload is not valid protobuf.
    #[error("malformed message")]
    Payload(#[from] prost::DecodeError),
}

/// A session ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    /// Nobody listens on the socket.
    #[error("failed to connect to `{}`; is NRI enabled in the container runtime?", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The connection failed.
    #[error("lost the connection")]
    Lost(#[source] io::Error),
    /// The runtime closed the connection: it stops, or an answer was late.
    #[error("the container runtime closed the connection")]
    Closed,
    /// The runtime refused the plugin.
    #[error("the container runtime refused the plugin: {0}")]
    Refused(String),
    /// The runtime violated the protocol.
    #[error("the container runtime violated the protocol")]
    Protocol(#[from] ProtocolError),
}

/// What readiness waits for until the container runtime has registered the plugin.
pub(crate) const REGISTRATION: &str = "the registration with the container runtime's NRI";

/// Whether the container runtime has registered the plugin, for readiness and metrics.
pub(crate) struct Registered {
    readiness: Readiness,
    wait: Option<Wait>,
}

impl Registered {
    pub(crate) fn new(readiness: Readiness, wait: Option<Wait>) -> Self {
        Self { readiness, wait }
    }

    fn set(&mut self, is_registered: bool, node: &LocalPreparer) {
        node.metrics.nri.set(is_registered.into());
        if is_registered {
            self.wait = None;
        } else if self.wait.is_none() {
            self.wait = Some(self.readiness.wait_for(REGISTRATION));
        }
    }
}

/// Serves the container runtime across its restarts, until told to stop.
pub(crate) async fn serve(
    socket: PathBuf,
    node: Arc<LocalPreparer>,
    preparer: Preparer,
    mut registered: Registered,
    stop: CancellationToken,
) {
    let mut said = String::new();
    loop {
        let plugin = SandboxPlugin::new(Arc::clone(&node), preparer.clone());
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = session(&socket, plugin, || registered.set(true, &node)) => ended,
        };
        registered.set(false, &node);
        let Err(error) = ended;
        let text = Chain(&error).to_string();
        // Log each reason once, not twice per second.
        if text != said {
            tracing::warn!(
                error = text,
                "NRI unavailable; pods with interfaces wait until it is back"
            );
            said = text;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// One connection, from start to end.
async fn session(
    socket: &Path,
    mut plugin: SandboxPlugin,
    mut registered: impl FnMut(),
) -> Result<Infallible, SessionError> {
    let stream = UnixStream::connect(socket).await;
    let mut stream =
        stream.map_err(|source| SessionError::Connect { path: socket.to_owned(), source })?;
    let registration = Session::registration(plugin.name());
    stream.write_all(&registration).await.map_err(SessionError::Lost)?;
    let mut session = Session::default();
    let mut buffer = vec![0; READ];
    loop {
        let count = stream.read(&mut buffer).await.map_err(SessionError::Lost)?;
        if count == 0 {
            return Err(SessionError::Closed);
        }
        for incoming in session.receive(&buffer[..count])? {
            match incoming {
                Incoming::Registered => {
                    tracing::info!("Registered as an NRI plugin");
                    registered();
                }
                Incoming::Refused(reason) => return Err(SessionError::Refused(reason)),
                Incoming::Call(call) => {
                    let answer = plugin.answer(&call).await;
                    let answer = Session::answer(&call, answer);
                    stream.write_all(&answer).await.map_err(SessionError::Lost)?;
                    plugin.settle().await;
                }
            }
        }
    }
}
