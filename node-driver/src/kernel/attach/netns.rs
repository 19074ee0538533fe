//! Network namespaces. Only this module enters them.
//!
//! A namespace belongs to a thread. Each entry therefore gets a separate thread with its own
//! runtime, which ends with the work, so that no worker of a shared runtime is ever in a
//! foreign namespace (`setns(2)`).

mod cookie;

use crate::kernel::attach::AttachError;
use crate::kernel::route_socket;
use process::chain::Chain;
use rtnetlink::Handle;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::fstat;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};

/// A network namespace, kept alive by this value.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
    cookie: OnceLock<Option<u64>>,
}

/// Identity of a namespace: device and inode of its `nsfs` file, and its cookie. The kernel gives
/// the inode of a namespace that ended to the next one, but never its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NetNsId {
    device: u64,
    inode: u64,
    /// Absent on kernels before 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cookie: Option<u64>,
}

impl NetNsId {
    /// Whether both identify one namespace. An unknown cookie decides nothing.
    pub fn is(&self, other: &Self) -> bool {
        let differ = self.cookie.zip(other.cookie).is_some_and(|(one, other)| one != other);
        self.is_at(other) && !differ
    }

    /// Whether both have one `nsfs` file, which a namespace that ended leaves to another.
    fn is_at(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl NetNs {
    /// The namespace behind a file: `/proc/<pid>/ns/net`, `/run/netns/<name>`.
    pub fn open(path: &Path) -> Result<Self, AttachError> {
        let file = File::open(path);
        file.map(|file| Self::from_fd(file.into())).map_err(|source| {
            AttachError::system(format!("open network namespace `{}`", path.display()), source)
        })
    }

    /// The namespace of the calling thread.
    pub fn current() -> Result<Self, AttachError> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Wraps a descriptor that was received over a socket.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd, cookie: OnceLock::new() }
    }

    /// Its identity.
    pub fn id(&self) -> Result<NetNsId, AttachError> {
        let cookie = *self.cookie.get_or_init(|| cookie::cookie(self.fd.as_fd()));
        Ok(NetNsId { cookie, ..self.place()? })
    }

    /// Whether both are one namespace. Both exist, so their files tell.
    pub fn is_same(&self, other: &Self) -> Result<bool, AttachError> {
        Ok(self.place()?.is_at(&other.place()?))
    }

    /// Whether it is this namespace. Enters it only if its file is that of the other.
    pub fn is(&self, id: &NetNsId) -> bool {
        self.place().is_ok_and(|place| place.is_at(id)) && self.id().is_ok_and(|own| own.is(id))
    }

    fn place(&self) -> Result<NetNsId, AttachError> {
        let status = fstat(&self.fd)
            .map_err(|errno| AttachError::system("identify a network namespace", errno.into()))?;
        Ok(NetNsId { device: status.st_dev, inode: status.st_ino, cookie: None })
    }

    /// Runs long-lived work in it on a separate thread.
    pub fn inhabit<F>(&self, work: F) -> Result<JoinHandle<()>, AttachError>
    where
        F: AsyncFnOnce(Handle) + Send + 'static,
    {
        let fd = self.fd.try_clone().map_err(not_started)?;
        thread::Builder::new()
            .name("netns".to_owned())
            .spawn(move || {
                let done = enter_and_run(fd.as_fd(), async move |handle| {
                    work(handle).await;
                    Ok(())
                });
                if let Err(error) = done {
                    tracing::warn!(error = %Chain(&error), "Work in a network namespace failed");
                }
            })
            .map_err(not_started)
    }

    /// Runs work in it, with a route netlink socket that belongs to it.
    pub fn run<T, F>(&self, work: F) -> Result<T, AttachError>
    where
        T: Send,
        F: AsyncFnOnce(Handle) -> Result<T, AttachError> + Send,
    {
        let fd = self.fd.as_fd();
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("netns".to_owned());
            let inside =
                thread.spawn_scoped(scope, move || enter_and_run(fd, work)).map_err(not_started)?;
            inside.join().unwrap_or_else(|_| {
                let source = io::Error::other("the thread panicked");
                Err(AttachError::system("work in a network namespace", source))
            })
        })
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn not_started(source: io::Error) -> AttachError {
    AttachError::system("start a thread", source)
}

fn enter_and_run<T, F>(fd: BorrowedFd<'_>, work: F) -> Result<T, AttachError>
where
    F: AsyncFnOnce(Handle) -> Result<T, AttachError>,
{
    move_into_link_name_space(fd, Some(LinkNameSpaceType::Network)).map_err(|errno| {
        let verb = "enter a network namespace (needs CAP_SYS_ADMIN)";
        AttachError::system(verb, errno.into())
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| AttachError::system("start a runtime", source))?;
    runtime.block_on(async {
        let (connection, handle) = route_socket::open::<false>()
            .map_err(|source| AttachError::system("open a netlink socket", source))?;
        let connection = tokio::spawn(connection);
        let outcome = work(handle).await;
        connection.abort();
        outcome
    })
}
