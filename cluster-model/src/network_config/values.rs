//! The value types of a network configuration; each type holds only valid values.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A text is not a value of the expected type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}")]
pub struct ValueError {
    text: String,
    what: &'static str,
}

impl ValueError {
    fn new(text: &str, what: &'static str) -> Self {
        Self { text: text.to_owned(), what }
    }
}

/// An address with prefix length, `192.168.1.7/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpPrefix {
    /// The address, host bits included.
    pub address: IpAddr,
    /// The prefix length in bits.
    pub prefix_len: u8,
}

/// The name of a network interface. Slightly stricter than the kernel's `dev_valid_name`, as
/// upstream DRANET is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName(String);

/// The name of a network interface, or with `%d` a pattern for the names of several: `rail%d`, as for
/// the kernel (`dev_alloc_name`, `net/core/dev.c`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkNamePattern(String);

/// A link-layer address: 6 bytes for Ethernet, or 20 for IPoIB.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(Vec<u8>);

/// A partition key of an InfiniBand network: `0x8001`. The highest bit means full membership; the
/// kernel sets it for every interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey(u16);

/// A GUID of an InfiniBand port: `0e:42:a1:03:00:65:4c:3e`. Neither 0, which means none, nor all
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(u64);

/// The highest bit of a partition key.
const FULL_MEMBER: u16 = 0x8000;

/// `IFNAMSIZ` without the terminating zero.
const LINK_NAME_MAX: usize = 15;

/// Where a pattern has the number.
const NUMBER: &str = "%d";
/// The most digits of a number: no pod has a thousand interfaces.
const DIGITS_MAX: usize = 3;

impl LinkNamePattern {
    /// The pattern for interfaces that cannot have their own names in a pod.
    pub fn fallback() -> Self {
        Self(format!("net{NUMBER}"))
    }

    /// The name, if this is no pattern.
    pub fn single(&self) -> Option<LinkName> {
        (!self.0.contains(NUMBER)).then(|| LinkName(self.0.clone()))
    }

    /// The name with the lowest number, from 0, that is not taken; without a number the name.
    pub fn lowest(&self, is_taken: impl Fn(&LinkName) -> bool) -> LinkName {
        let Some((head, tail)) = self.0.split_once(NUMBER) else { return LinkName(self.0.clone()) };
        let mut number = 0_u32;
        loop {
            let name = LinkName(format!("{head}{number}{tail}"));
            if !is_taken(&name) {
                return name;
            }
            number += 1;
        }
    }
}

impl From<LinkName> for LinkNamePattern {
    fn from(name: LinkName) -> Self {
        Self(name.0)
    }
}

impl LinkName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl MacAddress {
    /// An address from bytes; `None` if links have no addresses of this length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        matches!(bytes.len(), 6 | 20).then(|| Self(bytes.to_vec()))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns true for an address of IP over InfiniBand.
    pub fn is_infiniband(&self) -> bool {
        self.0.len() == 20
    }
}

impl PartitionKey {
    /// The key with the bit for full membership.
    pub fn of_full_member(self) -> u16 {
        self.0 | FULL_MEMBER
    }
}

impl Guid {
    /// A GUID from its number, whose highest byte is written first.
    pub fn new(number: u64) -> Option<Self> {
        (number != 0 && number != u64::MAX).then_some(Self(number))
    }

    /// The number.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl FromStr for Guid {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let what = "a GUID (`0e:42:a1:03:00:65:4c:3e`), which is not 0";
        guid(text).ok_or_else(|| ValueError::new(text, what))
    }
}

fn guid(text: &str) -> Option<Guid> {
    let mut bytes = [0; 8];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let digits = parts.next()?;
        let is_hex = digits.len() == 2 && digits.bytes().all(|it| it.is_ascii_hexdigit());
        *byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    }
    Guid::new(u64::from_be_bytes(bytes)).filter(|_| parts.next().is_none())
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.to_be_bytes().map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

impl FromStr for PartitionKey {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let what = "a partition key (`0x8001`), which is not 0";
        partition_key(text).ok_or_else(|| ValueError::new(text, what))
    }
}

fn partition_key(text: &str) -> Option<PartitionKey> {
    let digits = text.strip_prefix("0x")?;
    let is_hex =
        (1..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let key = u16::from_str_radix(digits, 16).ok()?;
    (is_hex && key & !FULL_MEMBER != 0).then_some(PartitionKey(key))
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl FromStr for IpPrefix {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let what = "an address with a prefix length (`192.168.1.7/24`)";
        ip_prefix(text).ok_or_else(|| ValueError::new(text, what))
    }
}

fn ip_prefix(text: &str) -> Option<IpPrefix> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let is_number = (1..=3).contains(&length.len())
        && length.bytes().all(|byte| byte.is_ascii_digit())
        && (length.len() == 1 || !length.starts_with('0'));
    let prefix_len: u8 = length.parse().ok()?;
    (is_number && prefix_len <= max).then_some(IpPrefix { address, prefix_len })
}

impl FromStr for LinkName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let valid = (1..=LINK_NAME_MAX).contains(&text.len())
            && !matches!(text, "." | "..")
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        let what = "an interface name (1 to 15 letters, digits, `-`, `_`, `.`)";
        if valid { Ok(Self(text.to_owned())) } else { Err(ValueError::new(text, what)) }
    }
}

impl FromStr for LinkNamePattern {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let what = "an interface name (1 to 15 letters, digits, `-`, `_`, `.`), or one of up to 12 with \
                    `%d` for a number";
        let example = match text.split_once(NUMBER) {
            Some((head, tail)) => format!("{head}{}{tail}", "0".repeat(DIGITS_MAX)),
            None => text.to_owned(),
        };
        example.parse::<LinkName>().map_err(|_| ValueError::new(text, what))?;
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for MacAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let what = "a hardware address (`00:11:22:33:44:55`)";
        let bytes = text.split([':', '-']).map(|part| {
            let is_hex = part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
            is_hex.then(|| u8::from_str_radix(part, 16).ok()).flatten()
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        bytes.and_then(|bytes| Self::from_bytes(&bytes)).ok_or_else(|| ValueError::new(text, what))
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for LinkNamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MacAddress({self})")
    }
}

/// Serializes values as their text form.
macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text!(Guid, IpPrefix, LinkName, LinkNamePattern, MacAddress, PartitionKey);
