//! Unix sockets that appear atomically: bound under a temporary name, then renamed, so
//! that the kubelet never finds one that nobody listens on.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;

/// Longest path of a socket: `sun_path` without its terminating zero.
const PATH_MAX: usize = 107;

/// A socket could not be created.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The path is longer than the kernel accepts.
    #[error("socket path `{}` is {} bytes long, the kernel's limit is {PATH_MAX}; use a shorter --kubelet-dir or --run-dir", path.display(), path.as_os_str().len())]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("failed to listen on `{}`", path.display())]
    Listen {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// `<stem>.sock`, or `<stem>-<instance>.sock`.
pub(crate) fn name(stem: &str, instance: Option<&str>) -> String {
    instance.map_or_else(|| format!("{stem}.sock"), |instance| format!("{stem}-{instance}.sock"))
}

/// A socket that listens but is not visible yet.
pub(crate) struct Socket {
    listener: UnixListener,
    temporary: PathBuf,
    path: PathBuf,
}

/// A socket at its final path, removed when dropped.
pub(crate) struct PublishedSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: Option<u64>,
}

/// Removes the socket when the server ends, if it is still the same one.
pub(crate) struct Removal {
    path: PathBuf,
    inode: Option<u64>,
}

impl Socket {
    /// Listens under a temporary name in `folder`, which is created if missing.
    pub(crate) fn bind(folder: &Path, name: &str) -> Result<Self, SocketError> {
        let path = folder.join(name);
        // The kubelet ignores names that begin with a dot.
        let temporary = folder.join(format!(".{}", short(name)));
        for path in [&path, &temporary] {
            if path.as_os_str().len() > PATH_MAX {
                return Err(SocketError::TooLong { path: path.clone() });
            }
        }
        let listener = listen(folder, &temporary)
            .map_err(|source| SocketError::Listen { path: path.clone(), source })?;
        Ok(Self { listener, temporary, path })
    }

    /// The final path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves it to its final path, replacing a stale socket.
    pub(crate) fn publish(self) -> Result<PublishedSocket, SocketError> {
        let Self { listener, temporary, path } = self;
        if let Err(source) = fs::rename(&temporary, &path) {
            return Err(SocketError::Listen { path, source });
        }
        let inode = inode(&path);
        Ok(PublishedSocket { listener, path, inode })
    }
}

impl PublishedSocket {
    /// The connections, and the guard that removes the socket.
    pub(crate) fn into_incoming(self) -> (UnixListenerStream, Removal) {
        let Self { listener, path, inode } = self;
        (UnixListenerStream::new(listener), Removal { path, inode })
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        // Another instance may have placed its own socket there meanwhile.
        if self.inode.is_some() && inode(&self.path) == self.inode {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes sockets in `folder` on which nobody listens, left by killed instances. A
/// starting kubelet dials each registration socket that it finds. `is_ours` selects
/// sockets by name.
pub(crate) fn remove_dead(folder: &Path, is_ours: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if is_socket && entry.file_name().to_str().is_some_and(&is_ours) && is_dead(&path) {
            tracing::info!(path = %path.display(), "Removing the socket of an earlier instance");
            let _ = fs::remove_file(&path);
        }
    }
}

fn is_dead(socket: &Path) -> bool {
    let answer = UnixStream::connect(socket);
    answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn listen(folder: &Path, socket: &Path) -> io::Result<UnixListener> {
    fs::create_dir_all(folder)?;
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(socket),
    }
}

/// A name no longer than the final one, so that only the final name can be too long.
fn short(name: &str) -> &str {
    name.split_at_checked(1).map_or(name, |(_, rest)| rest)
}

fn inode(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).ok().map(|metadata| metadata.ino())
}
