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

    /// Returns true if its address can be that of one host in a network: it is not unspecified,
    /// loopback, multicast, broadcast, or reserved.
    ///
    /// ```
    /// # use cluster_model::network_config::IpPrefix;
    /// let is_of_a_host = |text: &str| text.parse().is_ok_and(|it: IpPrefix| it.is_of_a_host());
    /// assert!(["10.9.0.7/16", "169.254.3.4/16", "fd00::7/64"].into_iter().all(is_of_a_host));
    /// let others = ["0.0.0.0/8", "127.0.0.1/8", "224.0.0.1/4", "255.255.255.255/32", "::1/128"];
    /// assert!(!others.into_iter().any(is_of_a_host));
    /// ```
    pub fn is_of_a_host(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => !matches!(address.octets()[0], 0 | 127 | 224..),
            IpAddr::V6(address) => {
                !(address.is_unspecified() || address.is_loopback() || address.is_multicast())
            }
        }
    }

    /// Returns true if it is so large that its addresses are most of those that a default route
    /// leads to: one of few routes that together replace a default route. Private networks are none.
    ///
    /// ```
    /// # use cluster_model::network_config::IpPrefix;
    /// let is_like_default = |text: &str| text.parse().is_ok_and(|it: IpPrefix| it.is_like_default());
    /// assert!(["0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/2", "2000::/3"].into_iter().all(is_like_default));
    /// assert!(!["10.0.0.0/8", "172.16.0.0/12", "fc00::/7"].into_iter().any(is_like_default));
    /// ```
    pub fn is_like_default(&self) -> bool {
        match self.address {
            IpAddr::V4(_) => self.prefix_len < 8,
            IpAddr::V6(address) => self.prefix_len < 16 && !address.is_unique_local(),
        }
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
