//! Free TCP ports of the loopback interface, for programs that must be told
//! theirs.
//!
//! They are taken below the kernel's range for outgoing connections (32768 and
//! up, `ip_local_port_range`): a port found by binding port 0 lies in that
//! range, and a connection of another test may take it before the program does.

use std::{
    net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Context;

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

/// The address of this machine that others would see. Kubernetes takes none of
/// the loopback interface for an endpoint of a Service.
///
/// Connecting a datagram socket sends nothing; it asks for the route.
pub fn address() -> anyhow::Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // Of TEST-NET-3, RFC 5737: nobody's, so it goes by the default route.
    socket.connect((Ipv4Addr::new(203, 0, 113, 1), 9)).context(NO_ADDRESS)?;
    match socket.local_addr()?.ip() {
        IpAddr::V4(address) if !address.is_loopback() => Ok(address),
        _ => anyhow::bail!(NO_ADDRESS),
    }
}

const NO_ADDRESS: &str = "this machine has no IPv4 address but loopback's, and an endpoint of a \
                          Service needs one";

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
