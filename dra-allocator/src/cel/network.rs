//! IP networks and URLs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(super) address: IpAddr,
    pub(super) prefix: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Cidr {
    pub(super) fn masked(&self) -> Self {
        Self { address: mask(self.address, self.prefix), ..*self }
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && mask(address, self.prefix) == mask(self.address, self.prefix)
    }
}

fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(v4) => {
            let kept = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & kept).into()
        }
        IpAddr::V6(v6) => {
            let kept = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & kept).into()
        }
    }
}

/// A URL with an absolute path, or with a scheme and a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(super) scheme: String,
    pub(super) host: String,
    pub(super) path: String,
    pub(super) query: String,
}

impl Url {
    pub(super) fn hostname(&self) -> &str {
        self.host.split_once(':').map_or(&self.host, |(name, _)| name)
    }

    pub(super) fn port(&self) -> &str {
        self.host.split_once(':').map_or("", |(_, port)| port)
    }
}
