//! Free TCP ports of the loopback interface, for programs that must be told
//! theirs.
//!
//! They are taken below the kernel's range for outgoing connections (32768 and
//! up, `ip_local_port_range`): a port found by binding port 0 lies in that
//! range, and a connection of another test may take it before the program does.

use std::{
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// How far this process is in the range.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that nothing listens on now.
///
/// Each process begins elsewhere in the range, and never returns to a port
/// before it has gone round.
pub fn free() -> anyhow::Result<u16> {
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let start = process::id().wrapping_mul(31);
        let port = FIRST + start.wrapping_add(step) % COUNT;
        let port = u16::try_from(port)?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no free port from {FIRST} to {}", FIRST + COUNT - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_passed_over() {
        let first = free().unwrap();
        let _held = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
        for _ in 0..COUNT {
            assert_ne!(free().unwrap(), first);
        }
    }
}
