//! Network namespaces of pods that have interfaces of this driver, held open until their
//! claims are unprepared.
//!
//! The kubelet stops a pod's sandbox before it unprepares the pod's claims, and a
//! namespace that nobody holds open takes its virtual interfaces with it. So the hook
//! hands the namespace over on a socket (`SCM_RIGHTS`, `unix(7)`). While the driver is
//! not running, nobody holds it: the kernel then moves hardware devices back to the host
//! by itself, and the driver restores them later.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::netns::{NetNs, NetNsId};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest that the hook waits for the driver. It works without the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest UID, as in [`crate::model::claim::is_safe_uid`].
const UID_MAX: usize = 64;
/// The driver's answer if it holds the namespace.
const HELD: &[u8; 1] = b"+";
/// The driver's answer if another running pod has the claim's interfaces.
const IN_USE: &[u8; 1] = b"-";
/// The driver's answer if it has not prepared the claim, or is undoing it.
const UNKNOWN: &[u8; 1] = b"?";

/// The namespaces by claim UID.
#[derive(Debug)]
pub struct Namespaces {
    held: Mutex<BTreeMap<String, Arc<NetNs>>>,
    /// Directory of the host's named namespaces, `/run/netns`.
    named: PathBuf,
}

impl Namespaces {
    /// Starts with no namespaces held.
    pub fn new(named: impl Into<PathBuf>) -> Self {
        Self { held: Mutex::default(), named: named.into() }
    }

    /// Holds a claim's namespace, and returns the one held before.
    pub fn hold(&self, uid: &str, namespace: Arc<NetNs>) -> Option<Arc<NetNs>> {
        self.lock().insert(uid.to_owned(), namespace)
    }

    /// Closes a claim's namespace.
    pub fn release(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// UIDs of the claims whose namespaces are held.
    pub fn claims(&self) -> BTreeSet<String> {
        self.lock().keys().cloned().collect()
    }

    /// The number of namespaces held.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Finds a claim's namespace: the held one if it is the recorded one, otherwise the
    /// recorded one if it still has a name.
    pub fn find(&self, uid: &str, recorded: NetNsId) -> Option<Arc<NetNs>> {
        let held = self.lock().get(uid).cloned();
        held.filter(|namespace| namespace.is(&recorded))
            .or_else(|| self.find_named(recorded).map(Arc::new))
    }

    /// Whether the namespace still has a name. It keeps it until its sandbox is stopped.
    pub fn is_named(&self, recorded: NetNsId) -> bool {
        self.find_named(recorded).is_some()
    }

    fn find_named(&self, recorded: NetNsId) -> Option<NetNs> {
        let entries = fs::read_dir(&self.named).ok()?;
        let mut namespaces = entries.flatten().filter_map(|entry| NetNs::open(&entry.path()).ok());
        namespaces.find(|namespace| namespace.is(&recorded))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<NetNs>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands a namespace to the driver. On an error nobody holds it;
/// [`io::ErrorKind::ResourceBusy`] means that another pod has the claim's interfaces,
/// [`io::ErrorKind::NotFound`] that the driver answers and the claim is not prepared.
pub fn hand_over(socket: &Path, uid: &str, namespace: &NetNs) -> io::Result<()> {
    let mut stream = connect(socket)?;
    let fds = [namespace.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(&stream, &[IoSlice::new(uid.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    let mut answer = [0; HELD.len()];
    stream.read_exact(&mut answer)?;
    match &answer {
        IN_USE => Err(io::ErrorKind::ResourceBusy.into()),
        UNKNOWN => Err(io::ErrorKind::NotFound.into()),
        _ => Ok(()),
    }
}

/// Connects to the driver. An error means that it is not running.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let connected = UnixStream::connect(socket);
    // A socket that does not exist is no answer of the driver.
    let stream = connected.map_err(|_| io::Error::from(io::ErrorKind::NotConnected))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Tells the driver that the interfaces are in the pod. An error means that the driver is
/// not running.
pub fn tell_attached(socket: &Path, uid: &str) -> io::Result<()> {
    let mut stream = connect(socket)?;
    stream.write_all(uid.as_bytes())?;
    let mut answer = [0; HELD.len()];
    stream.read_exact(&mut answer)
}

/// A message from a hook.
#[derive(Debug)]
pub enum Message {
    /// The pod of this claim has this namespace; its interfaces are about to move.
    Namespace(String, NetNs),
    /// The interfaces of this claim have moved.
    Attached(String),
}

/// Receives one message.
pub fn receive(stream: &UnixStream) -> Result<Message, AttachError> {
    stream.set_read_timeout(Some(PATIENCE)).map_err(not_received)?;
    let mut text = [0; UID_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut control, flags)
        .map_err(|errno| not_received(errno.into()))?;
    let fd: Option<OwnedFd> = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let uid = String::from_utf8_lossy(&text[..received.bytes]).into_owned();
    Ok(match fd {
        Some(fd) => Message::Namespace(uid, NetNs::from_fd(fd)),
        None => Message::Attached(uid),
    })
}

fn not_received(source: io::Error) -> AttachError {
    AttachError::system("receive a network namespace", source)
}

/// Answers the hook that another pod has the claim's interfaces.
pub fn refuse(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(IN_USE)
}

/// Answers the hook that the claim is not prepared.
pub fn refuse_unknown(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(UNKNOWN)
}

/// Answers the hook that its message was received.
pub fn acknowledge(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(HELD)
}
