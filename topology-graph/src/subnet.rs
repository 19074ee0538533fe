//! InfiniBand subnets.

use std::{fmt, net::Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Prefix of an InfiniBand subnet: the first half of the GIDs of its ports, which its
/// subnet manager gives them (InfiniBand Architecture Specification 1, §4.1.1).
/// Written as sixteen hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SubnetPrefix(u64);

/// The prefix of a subnet whose manager was told none (`IB_DEFAULT_GID_PREFIX`).
const DEFAULT: u64 = 0xfe80_0000_0000_0000;

/// Not sixteen hexadecimal digits.
#[derive(Debug, thiserror::Error)]
#[error("invalid subnet prefix `{0}`: expected 16 hexadecimal digits")]
pub struct ParseSubnetPrefixError(String);

impl SubnetPrefix {
    /// The prefix of a port whose first GID this is, as sysfs writes it. `None` where it
    /// tells nothing: the default prefix, which unconnected subnets share, and a GID of
    /// zeros, which nobody set.
    pub fn of_gid(gid: &str) -> Option<Self> {
        let bits = gid.parse::<Ipv6Addr>().ok()?.to_bits();
        let prefix = u64::try_from(bits >> 64).ok()?;
        (prefix != 0 && prefix != DEFAULT).then_some(Self(prefix))
    }
}

impl fmt::Display for SubnetPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<SubnetPrefix> for String {
    fn from(prefix: SubnetPrefix) -> Self {
        prefix.to_string()
    }
}

impl TryFrom<String> for SubnetPrefix {
    type Error = ParseSubnetPrefixError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(&text, 16) {
            Ok(prefix) if is_hex => Ok(Self(prefix)),
            _ => Err(ParseSubnetPrefixError(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_names_the_subnet_unless_it_is_the_default() {
        for (gid, expected) in [
            ("fec0:0000:0000:0001:506b:4b03:00a1:b2c3", Some("fec0000000000001")),
            ("fe80:0000:0000:0000:506b:4b03:00a1:b2c3", None),
            ("0000:0000:0000:0000:0000:0000:0000:0000", None),
            ("0000:0000:0000:0000:0000:ffff:0a00:0001", None),
            ("none", None),
        ] {
            let prefix = SubnetPrefix::of_gid(gid).map(|prefix| prefix.to_string());
            assert_eq!(prefix.as_deref(), expected, "{gid}");
        }
    }

    #[test]
    fn its_text_is_read_back() {
        let prefix = SubnetPrefix::of_gid("fec0::1:0:0:0:1").unwrap();
        assert_eq!(SubnetPrefix::try_from(prefix.to_string()).unwrap(), prefix);
        for bad in ["", "fec0", "+ec0000000000001", "fec00000000000001", "gec0000000000001"] {
            assert!(SubnetPrefix::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
