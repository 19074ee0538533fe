//! The addresses of a prefix: common arithmetic for ranges, pools, subnets and broadcasts.

use super::IpPrefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl IpPrefix {
    /// The first and the last address of its network, as numbers.
    ///
    /// ```
    /// # use cluster_model::network_config::IpPrefix;
    /// let prefix: IpPrefix = "192.168.1.7/24".parse()?;
    /// let (first, last) = prefix.bounds();
    /// assert_eq!(prefix.numbered(first), "192.168.1.0".parse().ok());
    /// assert_eq!(prefix.numbered(last), "192.168.1.255".parse().ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bounds(&self) -> (u128, u128) {
        let width: u8 = if self.address.is_ipv4() { 32 } else { 128 };
        let free = u32::from(width - self.prefix_len.min(width));
        let ones = u128::MAX.checked_shr(128 - free).unwrap_or_default();
        let first = number(self.address) & !ones;
        (first, first | ones)
    }

    /// The first and the last host address, as numbers. Excludes IPv4's network and broadcast
    /// addresses and IPv6's subnet-router anycast address.
    pub fn hosts(&self) -> (u128, u128) {
        let (first, last) = self.bounds();
        match (self.address.is_ipv4(), last - first) {
            (_, 0) | (true, 1) => (first, last),
            (true, _) => (first + 1, last - 1),
            (false, _) => (first + 1, last),
        }
    }

    /// Returns true if its network contains this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (first, last) = self.bounds();
        self.address.is_ipv4() == address.is_ipv4() && (first..=last).contains(&number(address))
    }

    /// The address of its family with this number, if there is one.
    pub fn numbered(&self, number: u128) -> Option<IpAddr> {
        address(number, self.address.is_ipv4())
    }
}

/// An address as a number.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address of this number and family, if there is one.
pub fn address(number: u128, is_v4: bool) -> Option<IpAddr> {
    if is_v4 {
        return u32::try_from(number).ok().map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    }
    Some(IpAddr::V6(Ipv6Addr::from_bits(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_their_hosts() {
        for (prefix, bounds, hosts) in [
            ("10.1.2.3/24", ["10.1.2.0", "10.1.2.255"], ["10.1.2.1", "10.1.2.254"]),
            ("10.1.2.3/0", ["0.0.0.0", "255.255.255.255"], ["0.0.0.1", "255.255.255.254"]),
            ("10.1.2.3/31", ["10.1.2.2", "10.1.2.3"], ["10.1.2.2", "10.1.2.3"]),
            ("10.1.2.3/32", ["10.1.2.3", "10.1.2.3"], ["10.1.2.3", "10.1.2.3"]),
            ("fd00::7/126", ["fd00::4", "fd00::7"], ["fd00::5", "fd00::7"]),
            ("fd00::7/127", ["fd00::6", "fd00::7"], ["fd00::7", "fd00::7"]),
            ("fd00::7/128", ["fd00::7", "fd00::7"], ["fd00::7", "fd00::7"]),
            (
                "fd00::7/0",
                ["::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
                ["::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
            ),
        ] {
            let prefix: IpPrefix = prefix.parse().unwrap();
            let numbers = |texts: [&str; 2]| {
                let [first, last] = texts.map(|text| number(text.parse().unwrap()));
                (first, last)
            };
            assert_eq!(prefix.bounds(), numbers(bounds), "{prefix}");
            assert_eq!(prefix.hosts(), numbers(hosts), "{prefix}");
            for inside in bounds {
                assert!(prefix.contains(inside.parse().unwrap()), "{prefix}");
                let inside: IpAddr = inside.parse().unwrap();
                assert_eq!(prefix.numbered(number(inside)), Some(inside), "{prefix}");
            }
        }
        let prefix: IpPrefix = "10.1.2.3/24".parse().unwrap();
        for outside in ["10.1.1.255", "10.1.3.0", "::10.1.2.3", "fd00::7"] {
            assert!(!prefix.contains(outside.parse().unwrap()), "{outside}");
        }
        assert_eq!(prefix.numbered(1 << 32), None);
    }
}
