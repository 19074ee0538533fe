//! Interfaces into pods as an NRI plugin, the other way beside the
//! [hook](crate::kernel::attach::hook): containerd and CRI-O tell their plugins of each
//! sandbox that runs and stops, and wait for the answer.
//!
//! Made by hand from the published protocol: [frames on one socket](trunk), in them
//! ttrpc [messages](message), in them protobuf ([`wire`]). Bytes are taken apart by a
//! [session] that knows no socket; [`serve`] has the socket, and connects again when
//! the runtime was restarted.
//!
//! NRI lets a pod pass whose plugin is away or late. So the CDI spec mounts a name that
//! leads nowhere until the interfaces are in the sandbox: such a container does not
//! start, and the kubelet tries again ([`Paths::ready`](crate::prepare::paths::Paths)).

pub mod message;
mod plugin;
pub mod session;
pub mod trunk;
pub mod wire;

use crate::prepare::node::Node;
use crate::prepare::preparer::Preparer;
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

/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(500);
/// What is read at once.
const READ: usize = 64 << 10;

/// Bytes that are not what the protocol says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A frame that no message fills.
    #[error("a frame of {length} bytes is longer than any message")]
    LongFrame {
        /// Its length, as its header says.
        length: usize,
    },
    /// A message beyond the limit.
    #[error(
        "a message of {length} bytes is longer than the {} that ttrpc allows",
        message::DATA_MAX
    )]
    LongMessage {
        /// Its length, as its header says.
        length: usize,
    },
    /// No type of message.
    #[error("there are no messages of type {number}")]
    Kind {
        /// The type.
        number: u8,
    },
    /// A call on a stream that no caller begins.
    #[error("a call has the even number {stream}")]
    Stream {
        /// The stream.
        stream: u32,
    },
    /// A message that nothing led to.
    #[error("a message on stream {stream} answers nothing that was asked")]
    Unasked {
        /// The stream.
        stream: u32,
    },
    /// Data that are no protobuf.
    #[error("malformed message")]
    Payload(#[from] prost::DecodeError),
}

/// A session ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    /// Nobody listens.
    #[error("failed to connect to `{}`; is NRI enabled in the container runtime?", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke.
    #[error("lost the connection")]
    Lost(#[source] io::Error),
    /// The runtime ended it: it stops, or an answer came late.
    #[error("the container runtime closed the connection")]
    Closed,
    /// It does not want the plugin.
    #[error("the container runtime refused the plugin: {0}")]
    Refused(String),
    /// It speaks otherwise.
    #[error("the container runtime does not keep to the protocol")]
    Protocol(#[from] ProtocolError),
}

/// What readiness waits for while the container runtime has not registered the plugin.
pub(crate) const REGISTRATION: &str = "the registration with the container runtime's NRI";

/// Whether the container runtime has the plugin, as readiness and the metrics say.
pub(crate) struct Registered {
    readiness: Readiness,
    wait: Option<Wait>,
}

impl Registered {
    pub(crate) fn new(readiness: Readiness, wait: Option<Wait>) -> Self {
        Self { readiness, wait }
    }

    fn set(&mut self, is_registered: bool, node: &Node) {
        node.metrics.nri.set(is_registered.into());
        if is_registered {
            self.wait = None;
        } else if self.wait.is_none() {
            self.wait = Some(self.readiness.wait_for(REGISTRATION));
        }
    }
}

/// Serves the container runtime until told to stop, over all its restarts.
pub(crate) async fn serve(
    socket: PathBuf,
    node: Arc<Node>,
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
        // Once, and not twice a second.
        if text != said {
            tracing::warn!(error = text, "No NRI; pods with interfaces wait until it is back");
            said = text;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// From the connection to its end.
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
