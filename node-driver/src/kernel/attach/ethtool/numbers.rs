//! Numbers of an interface's driver that it takes into a pod and back: channels, rings, and coalescing of
//! interrupts (`ethtool -L`, `-G`, `-C`). A pod that may administer its network may set them, and the next
//! user of the NIC must not find them.

use super::netlink::{OMIT_REPLY, header};
use crate::kernel::attach::AttachError;
use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::kernel::generic::Family;
use crate::kernel::netlink::{attribute, attributes};
use crate::model::host_link::{HostLink, Tuning};
use std::collections::BTreeMap;
use std::future::ready;

/// Settings that one message has, each an attribute with a number in it.
pub(in crate::kernel::attach) struct Group {
    name: &'static str,
    /// What they are, in errors.
    what: &'static str,
    /// Where the state has them.
    of: fn(&mut Tuning) -> &mut BTreeMap<String, u32>,
    /// `ETHTOOL_MSG_…_GET`, `ETHTOOL_MSG_…_SET`.
    get: u8,
    set: u8,
    /// Attribute, and its name in `Documentation/netlink/specs/ethtool.yaml`.
    fields: &'static [(u16, &'static str)],
}

pub(in crate::kernel::attach) const CHANNELS: Group = Group {
    name: "Channels",
    what: "numbers of channels",
    of: |tuning| &mut tuning.channels,
    get: 17,
    set: 18,
    fields: &[(6, "rx-count"), (7, "tx-count"), (8, "other-count"), (9, "combined-count")],
};

pub(in crate::kernel::attach) const RINGS: Group = Group {
    name: "Rings",
    what: "sizes of rings",
    of: |tuning| &mut tuning.rings,
    get: 15,
    set: 16,
    fields: &[(6, "rx"), (7, "rx-mini"), (8, "rx-jumbo"), (9, "tx")],
};

pub(in crate::kernel::attach) const COALESCING: Group = Group {
    name: "Coalescing of interrupts",
    what: "coalescing of interrupts",
    of: |tuning| &mut tuning.coalescing,
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

impl Setting for Group {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        let numbers = found.sources.ethtool().and_then(|it| self.ask(it, found.name()));
        if let Some(numbers) = numbers.filter(|numbers| !numbers.is_empty()) {
            *(self.of)(host.tuning.get_or_insert_default()) = numbers;
        }
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(ready(self.write(home).into_iter().collect()))
    }
}

impl Group {
    /// Writes what differs from the former state; `None` if nothing does, or the driver has none.
    fn write(&self, home: &Home<'_>) -> Option<Result<(), AttachError>> {
        let mut former = home.former().tuning.clone()?;
        let former = (self.of)(&mut former);
        if former.is_empty() {
            return None;
        }
        let ethtool = home.sources.ethtool()?;
        let changed = self.changed(former, &self.ask(ethtool, home.name())?);
        if changed.is_empty() {
            return None;
        }
        let parts: Vec<_> = [header(home.name(), OMIT_REPLY)].into_iter().chain(changed).collect();
        Some(ethtool.send(self.set, &parts).map_err(|source| {
            let verb = format!("restore the {} of interface `{}`", self.what, home.name());
            AttachError::system(verb, source)
        }))
    }

    /// The settings of an interface, by name; `None` if its driver has none.
    fn ask(&self, ethtool: &Family, name: &str) -> Option<BTreeMap<String, u32>> {
        let reply = ethtool.ask(self.get, &[header(name, 0)]).ok()?;
        Some(self.numbers(&reply))
    }

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

#[cfg(test)]
mod tests {
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
