//! Ethtool netlink (`Documentation/networking/ethtool-netlink.rst`,
//! `include/uapi/linux/ethtool_netlink_generated.h`): features and private flags as lists
//! of named bits. Works in the calling thread's namespace.

use super::{Abilities, Feature};
use crate::kernel::generic::Family;
use crate::kernel::netlink::{attribute, attributes, find, nest};
use cluster_model::network_config::EthtoolConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// `ETHTOOL_GENL_NAME`.
const FAMILY: &str = "ethtool";

/// `ETHTOOL_MSG_…`.
const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;
const PRIVFLAGS_GET: u8 = 13;
const PRIVFLAGS_SET: u8 = 14;

/// `ETHTOOL_A_…_HEADER`, the first attribute of every message.
const MESSAGE_HEADER: u16 = 1;
/// `ETHTOOL_A_HEADER_DEV_NAME`.
const DEVICE_NAME: u16 = 2;
/// `ETHTOOL_A_HEADER_FLAGS`, 32 bits.
const FLAGS: u16 = 3;
/// `ETHTOOL_FLAG_OMIT_REPLY`.
pub(super) const OMIT_REPLY: u32 = 2;
/// `ETHTOOL_A_FEATURES_…`.
const HARDWARE: u16 = 2;
const WANTED: u16 = 3;
const ACTIVE: u16 = 4;
const NO_CHANGE: u16 = 5;
/// `ETHTOOL_A_PRIVFLAGS_FLAGS`.
const PRIVATE_FLAGS: u16 = 2;
/// `ETHTOOL_A_BITSET_BITS`, and `ETHTOOL_A_BITSET_BITS_BIT` in it.
const BITS: u16 = 3;
const BIT: u16 = 1;
/// `ETHTOOL_A_BITSET_NOMASK`: each listed bit is set.
const NO_MASK: u16 = 1;
/// `ETHTOOL_A_BITSET_BIT_…`.
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// `EOPNOTSUPP`: the driver has no private flags.
const NOT_SUPPORTED: i32 = 95;

/// Reads the features and private flags of an interface.
pub(super) fn read(link: &str) -> io::Result<Abilities> {
    let ethtool = Family::open(FAMILY)?;
    let (features, private_flags) = (features(&ethtool, link)?, private_flags(&ethtool, link)?);
    Ok(Abilities { features, private_flags })
}

/// Reads the private flags of an interface.
pub(super) fn private_flags(ethtool: &Family, link: &str) -> io::Result<BTreeMap<String, bool>> {
    let answer = match ethtool.ask(PRIVFLAGS_GET, &[header(link, 0)]) {
        Err(error) if error.raw_os_error() == Some(NOT_SUPPORTED) => return Ok(BTreeMap::new()),
        answer => answer?,
    };
    let flags = find(&answer, PRIVATE_FLAGS).map(bits).into_iter().flatten();
    Ok(flags.map(|(name, on)| (name.to_owned(), on)).collect())
}

/// Reads the features of an interface.
pub(super) fn features(ethtool: &Family, link: &str) -> io::Result<BTreeMap<String, Feature>> {
    let answer = ethtool.ask(FEATURES_GET, &[header(link, 0)])?;
    Ok(features_of(&answer).map(|(name, feature)| (name.to_owned(), feature)).collect())
}

/// The features of an interface that can be changed and are requested to be on.
pub(super) fn requested(ethtool: &Family, link: &str) -> io::Result<BTreeSet<String>> {
    let answer = ethtool.ask(FEATURES_GET, &[header(link, 0)])?;
    let on = features_of(&answer).filter(|(_, feature)| feature.changeable && feature.wanted);
    Ok(on.map(|(name, _)| name.to_owned()).collect())
}

/// Sets the named features and private flags.
pub(super) fn write(link: &str, settings: &EthtoolConfig) -> io::Result<()> {
    let EthtoolConfig { features, private_flags } = settings;
    let all = [(FEATURES_SET, WANTED, features), (PRIVFLAGS_SET, PRIVATE_FLAGS, private_flags)];
    let mut all = all.into_iter().filter(|(_, _, bits)| !bits.is_empty()).peekable();
    if all.peek().is_none() {
        return Ok(());
    }
    let ethtool = Family::open(FAMILY)?;
    all.try_for_each(|(command, kind, bits)| {
        ethtool.send(command, &[header(link, OMIT_REPLY), nest_bits(kind, bits)])
    })
}

pub(super) fn header(link: &str, flags: u32) -> Vec<u8> {
    let name = attribute(DEVICE_NAME, format!("{link}\0").as_bytes());
    nest(MESSAGE_HEADER, &[name, attribute(FLAGS, &flags.to_ne_bytes())])
}

/// A bit set by name; bits that are not named keep their value.
fn nest_bits(kind: u16, bits: &BTreeMap<String, bool>) -> Vec<u8> {
    let bits: Vec<_> = bits
        .iter()
        .map(|(name, on)| {
            let mut parts = vec![attribute(BIT_NAME, format!("{name}\0").as_bytes())];
            parts.extend(on.then(|| attribute(BIT_VALUE, &[])));
            nest(BIT, &parts)
        })
        .collect();
    nest(kind, &[nest(BITS, &bits)])
}

/// The listed bits of a bit set, by name. The kernel's names are ASCII.
fn bits(set: &[u8]) -> BTreeMap<&str, bool> {
    let is_list = find(set, NO_MASK).is_some();
    let all = find(set, BITS).map(attributes).into_iter().flatten();
    all.filter(|(kind, _)| *kind == BIT)
        .filter_map(|(_, bit)| {
            let name = find(bit, BIT_NAME)?;
            let name = str::from_utf8(name.strip_suffix(b"\0").unwrap_or(name)).ok()?;
            Some((name, is_list || find(bit, BIT_VALUE).is_some()))
        })
        .collect()
}

/// The kernel lists all features in the hardware bit set, with a value for whether they
/// can be changed; the other bit sets list only the bits that are set.
fn features_of(answer: &[u8]) -> impl Iterator<Item = (&str, Feature)> {
    let [hardware, wanted, active, fixed] = [HARDWARE, WANTED, ACTIVE, NO_CHANGE]
        .map(|kind| find(answer, kind).map(bits).unwrap_or_default());
    hardware.into_iter().map(move |(name, changeable)| {
        let changeable = changeable && !is_set(&fixed, name);
        let (wanted, active) = (is_set(&wanted, name), is_set(&active, name));
        (name, Feature { wanted, active, changeable })
    })
}

fn is_set(bits: &BTreeMap<&str, bool>, name: &str) -> bool {
    bits.get(name).copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(kind: u16, names: &[&str]) -> Vec<u8> {
        let name = |name: &&str| nest(BIT, &[attribute(BIT_NAME, format!("{name}\0").as_bytes())]);
        let bits: Vec<_> = names.iter().map(name).collect();
        nest(kind, &[attribute(NO_MASK, &[]), nest(BITS, &bits)])
    }

    fn answer() -> Vec<u8> {
        let hardware = [("rx-gro", true), ("highdma", false), ("loopback", true)];
        let hardware = hardware.map(|(name, on)| (name.to_owned(), on)).into();
        [
            nest_bits(HARDWARE, &hardware),
            listed(WANTED, &["rx-gro"]),
            listed(ACTIVE, &["rx-gro", "highdma"]),
            listed(NO_CHANGE, &["loopback"]),
        ]
        .concat()
    }

    #[test]
    fn features_combine_the_four_bit_sets() {
        let feature = |wanted, active, changeable| Feature { wanted, active, changeable };
        let expected = [
            ("rx-gro", feature(true, true, true)),
            ("highdma", feature(false, true, false)),
            ("loopback", feature(false, false, false)),
        ];
        let answer = answer();
        assert_eq!(features_of(&answer).collect::<BTreeMap<_, _>>(), BTreeMap::from(expected));
    }

    #[test]
    fn malformed_answers_never_panic() {
        let whole = answer();
        for end in 0..whole.len() {
            features_of(&whole[..end]).for_each(drop);
        }
        for byte in 0..whole.len() {
            let mut other = whole.clone();
            other[byte] ^= 0xff;
            features_of(&other).for_each(drop);
        }
    }
}
