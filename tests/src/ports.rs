//! Free TCP ports of the loopback interface, for programs that must be given theirs.
//!
//! They are below the kernel's range for outgoing connections (32768 and up,
//! `ip_local_port_range`). A port found by binding port 0 is in that range, and a connection of
//! another test may take it before the program does.

use std::{
    net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Context;

const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// The position of this process in the range.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Returns a port on which nothing listens now.
///
/// Each process starts at another position in the range, and does not return to a port before it
/// has used all others.
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

/// The address of this machine as others see it. Kubernetes does not accept a loopback address as
/// the endpoint of a Service.
///
/// Connecting a datagram socket sends nothing; it only looks up the route.
pub fn address() -> anyhow::Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // An address in TEST-NET-3 (RFC 5737), which is unassigned and therefore uses the default
    // route.
    socket.connect((Ipv4Addr::new(203, 0, 113, 1), 9)).context(NO_ADDRESS)?;
    match socket.local_addr()?.ip() {
        IpAddr::V4(address) if !address.is_loopback() => Ok(address),
        _ => anyhow::bail!(NO_ADDRESS),
    }
}

const NO_ADDRESS: &str = "this machine has only loopback IPv4 addresses, but an endpoint of a \
                          Service needs another one";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_skipped() {
        let first = free().unwrap();
        let _held = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
        for _ in 0..COUNT {
            assert_ne!(free().unwrap(), first);
        }
    }
}
