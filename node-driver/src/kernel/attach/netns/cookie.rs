//! `SO_NETNS_COOKIE`: the number that the kernel gives a network namespace once and never again
//! in a boot (`net/core/net_namespace.c`, `net_gen_cookie`; since Linux 5.14).
//!
//! No crate has this socket option, so this module calls `getsockopt(2)` itself.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::thread;

/// `SO_NETNS_COOKIE`.
const NETNS_COOKIE: i32 = 71;

/// The cookie of a namespace; `None` if the kernel is older, or the namespace cannot be entered.
/// A separate thread enters it.
pub(super) fn cookie(namespace: BorrowedFd<'_>) -> Option<u64> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".to_owned());
        let inside = thread.spawn_scoped(scope, move || read(namespace)).ok()?;
        inside.join().ok()?
    })
}

fn read(namespace: BorrowedFd<'_>) -> Option<u64> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network)).ok()?;
    option(&socket(AddressFamily::UNIX, SocketType::DGRAM, None).ok()?)
}

#[expect(unsafe_code, reason = "no crate has this socket option")]
fn option(socket: &OwnedFd) -> Option<u64> {
    let mut cookie = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of::<u64>()).ok()?;
    // SAFETY: both pointers are valid for the call, and `length` is the size of `cookie`.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    (outcome == 0).then_some(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::fs::File;

    #[test]
    fn a_namespace_keeps_its_cookie() {
        let own = File::open("/proc/thread-self/ns/net").unwrap();
        let one = cookie(own.as_fd());
        assert_eq!(one, cookie(own.as_fd()));
        // Entering it needs CAP_SYS_ADMIN.
        assert!(one.is_none_or(|cookie| cookie != 0), "{one:?}");
    }
}
