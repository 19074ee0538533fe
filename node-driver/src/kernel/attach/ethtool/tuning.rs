//! Settings of an interface's driver that it takes into a pod and back: features, numbers of channels,
//! sizes of rings, and coalescing of interrupts (`ethtool -K`, `-L`, `-G`, `-C`). A pod that may administer its network may
//! set them, and the next user of the NIC must not find them. A driver without them has nothing to
//! restore.

use super::netlink::{self, FAMILY, OMIT_REPLY, header};
use super::{Abilities, set};
use crate::kernel::attach::AttachError;
use crate::kernel::generic::Family;
use crate::kernel::netlink::{attribute, attributes};
use crate::model::host_link::Tuning;
use cluster_model::network_config::EthtoolConfig;
use std::collections::{BTreeMap, BTreeSet};

/// Settings that one message has, each an attribute with a number in it.
struct Group {
    /// What they are, in errors.
    what: &'static str,
    /// `ETHTOOL_MSG_…_GET`, `ETHTOOL_MSG_…_SET`.
    get: u8,
    set: u8,
    /// Attribute, and its name in `Documentation/netlink/specs/ethtool.yaml`.
    fields: &'static [(u16, &'static str)],
}

const CHANNELS: Group = Group {
    what: "numbers of channels",
    get: 17,
    set: 18,
    fields: &[(6, "rx-count"), (7, "tx-count"), (8, "other-count"), (9, "combined-count")],
};

const RINGS: Group = Group {
    what: "sizes of rings",
    get: 15,
    set: 16,
    fields: &[(6, "rx"), (7, "rx-mini"), (8, "rx-jumbo"), (9, "tx")],
};

const COALESCING: Group = Group {
    what: "coalescing of interrupts",
    get: 19,
    set: 20,
    fields: &[
        (2, "rx-usecs"),
        (3, "rx-max-frames"),
        (4, "rx-usecs-irq"),
        (5, "rx-max-frames-irq"),
        (6, "tx-usecs"),
        (7, "tx-max-frames"),
        (8, "tx-usecs-irq"),
        (9, "tx-max-frames-irq"),
        (10, "stats-block-usecs"),
        (11, "use-adaptive-rx"),
        (12, "use-adaptive-tx"),
        (13, "pkt-rate-low"),
        (14, "rx-usecs-low"),
        (15, "rx-max-frames-low"),
        (16, "tx-usecs-low"),
        (17, "tx-max-frames-low"),
        (18, "pkt-rate-high"),
        (19, "rx-usecs-high"),
        (20, "rx-max-frames-high"),
        (21, "tx-usecs-high"),
        (22, "tx-max-frames-high"),
        (23, "rate-sample-interval"),
        (24, "use-cqe-mode-tx"),
        (25, "use-cqe-mode-rx"),
        (26, "tx-aggr-max-bytes"),
        (27, "tx-aggr-max-frames"),
        (28, "tx-aggr-time-usecs"),
    ],
};

/// How the name of a number of 8 bits begins; all others have 32.
const SWITCH: &str = "use-";

/// Reads the settings of interfaces of the calling thread's namespace.
#[derive(Debug)]
pub(in crate::kernel::attach) struct Reader {
    ethtool: Option<Family>,
}

impl Reader {
    pub(in crate::kernel::attach) fn open() -> Self {
        Self { ethtool: Family::open(FAMILY).ok() }
    }

    /// The settings of an interface; `None` if its driver has none.
    pub(in crate::kernel::attach) fn read(&self, name: &str) -> Option<Tuning> {
        let tuning = Tuning {
            features: self.ethtool.as_ref().and_then(|it| netlink::requested(it, name).ok()),
            channels: self.numbers(name, &CHANNELS),
            rings: self.numbers(name, &RINGS),
            coalescing: self.numbers(name, &COALESCING),
        };
        (tuning != Tuning::default()).then_some(tuning)
    }

    /// Restores what differs. Returns the result of each write.
    pub(in crate::kernel::attach) fn restore(
        &self,
        name: &str,
        former: &Tuning,
    ) -> Vec<Result<(), AttachError>> {
        let features = former.features.as_ref().zip(self.abilities(name));
        let features = features.map(|(former, now)| set(name, &now.requests(former)));
        let numbers = [
            (&CHANNELS, &former.channels),
            (&RINGS, &former.rings),
            (&COALESCING, &former.coalescing),
        ];
        let numbers = numbers.map(|(group, former)| self.restore_numbers(name, group, former));
        features.into_iter().chain(numbers).collect()
    }

    fn abilities(&self, name: &str) -> Option<Abilities> {
        let features = netlink::features(self.ethtool.as_ref()?, name).ok()?;
        Some(Abilities { features, private_flags: BTreeMap::new() })
    }

    fn numbers(&self, name: &str, group: &Group) -> BTreeMap<String, u32> {
        let reply = self.ethtool.as_ref().and_then(|it| it.ask(group.get, &[header(name, 0)]).ok());
        reply.map(|reply| group.numbers(&reply)).unwrap_or_default()
    }

    fn restore_numbers(
        &self,
        name: &str,
        group: &Group,
        former: &BTreeMap<String, u32>,
    ) -> Result<(), AttachError> {
        // The driver has none.
        if former.is_empty() {
            return Ok(());
        }
        let now = self.numbers(name, group);
        let changed = group.changed(former, &now);
        let Some(ethtool) = self.ethtool.as_ref().filter(|_| !changed.is_empty()) else {
            return Ok(());
        };
        let parts: Vec<_> = [header(name, OMIT_REPLY)].into_iter().chain(changed).collect();
        ethtool.send(group.set, &parts).map_err(|source| {
            AttachError::system(format!("restore the {} of interface `{name}`", group.what), source)
        })
    }
}

impl Group {
    /// The settings in an answer, by name.
    fn numbers(&self, reply: &[u8]) -> BTreeMap<String, u32> {
        attributes(reply)
            .filter_map(|(kind, value)| {
                let (_, name) = self.fields.iter().find(|(known, _)| *known == kind)?;
                Some(((*name).to_owned(), number(value)?))
            })
            .collect()
    }

    /// The attributes that restore what differs.
    fn changed(&self, former: &BTreeMap<String, u32>, now: &BTreeMap<String, u32>) -> Vec<Vec<u8>> {
        self.fields
            .iter()
            .filter_map(|(kind, name)| {
                let (value, now) = (former.get(*name)?, now.get(*name)?);
                (value != now).then(|| encoded(*kind, name, *value))
            })
            .collect()
    }
}

/// A number of 8 or 32 bits.
fn number(value: &[u8]) -> Option<u32> {
    match value {
        [byte] => Some((*byte).into()),
        _ => value.try_into().ok().map(u32::from_ne_bytes),
    }
}

fn encoded(kind: u16, name: &str, value: u32) -> Vec<u8> {
    if name.starts_with(SWITCH) {
        return attribute(kind, &[u8::from(value != 0)]);
    }
    attribute(kind, &value.to_ne_bytes())
}

impl Abilities {
    /// What differs from these features being on, and no other that can be changed.
    fn requests(&self, former: &BTreeSet<String>) -> EthtoolConfig {
        let differing = self
            .features
            .iter()
            .filter(|(name, it)| it.changeable && it.wanted != former.contains(*name));
        let features = differing.map(|(name, it)| (name.clone(), !it.wanted)).collect();
        EthtoolConfig { features, ..EthtoolConfig::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Feature;
    use super::*;

    fn values(of: &[(&str, u32)]) -> BTreeMap<String, u32> {
        of.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn only_numbers_that_differ_are_restored() {
        let reply = [
            attribute(2, &50_u32.to_ne_bytes()),
            attribute(11, &[1]),
            attribute(29, &[0; 8]),
            attribute(6, &8_u32.to_ne_bytes()),
        ];
        let now = COALESCING.numbers(&reply.concat());
        assert_eq!(now, values(&[("rx-usecs", 50), ("tx-usecs", 8), ("use-adaptive-rx", 1)]));
        let former = values(&[("rx-usecs", 50), ("tx-usecs", 9), ("use-adaptive-rx", 0)]);
        let expected = [attribute(6, &9_u32.to_ne_bytes()), attribute(11, &[0])];
        assert_eq!(COALESCING.changed(&former, &now), expected);
        assert!(COALESCING.changed(&former, &former).is_empty());
        assert!(
            CHANNELS.changed(&former, &now).is_empty(),
            "another interface has taken its place"
        );
    }

    #[test]
    fn features_that_a_pod_switched_are_switched_back() {
        let feature = |wanted, changeable| Feature { wanted, active: wanted, changeable };
        let features = [
            ("rx-gro", feature(true, true)),
            ("tx-nocache-copy", feature(true, true)),
            ("rx-lro", feature(false, true)),
            ("highdma", feature(true, false)),
        ];
        let features = features.map(|(name, feature)| (name.to_owned(), feature)).into();
        let now = Abilities { features, private_flags: BTreeMap::new() };
        let same = ["rx-gro", "tx-nocache-copy"].map(str::to_owned).into();
        assert!(now.requests(&same).features.is_empty());
        let former = ["rx-gro", "rx-lro"].map(str::to_owned).into();
        let wanted = [("rx-lro", true), ("tx-nocache-copy", false)];
        let wanted = wanted.map(|(name, on)| (name.to_owned(), on)).into();
        assert_eq!(now.requests(&former).features, wanted);
    }

    #[test]
    fn malformed_answers_never_panic() {
        let whole = [attribute(2, &50_u32.to_ne_bytes()), attribute(11, &[1])].concat();
        for end in 0..whole.len() {
            let _ = COALESCING.numbers(&whole[..end]);
        }
        for byte in 0..whole.len() {
            let mut other = whole.clone();
            other[byte] ^= 0xff;
            let _ = COALESCING.numbers(&other);
        }
    }
}
