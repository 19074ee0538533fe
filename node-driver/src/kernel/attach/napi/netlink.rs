//! NAPI instances by generic netlink (`Documentation/netlink/specs/netdev.yaml`,
//! `include/uapi/linux/netdev.h`).

use crate::kernel::generic::Family;
use crate::kernel::netlink::{attribute, attributes, find};
use std::collections::BTreeMap;
use std::io;

/// `NETDEV_CMD_NAPI_GET`, `NETDEV_CMD_NAPI_SET`.
const GET: u8 = 11;
const SET: u8 = 14;

/// `NETDEV_A_NAPI_IFINDEX`, `NETDEV_A_NAPI_ID`.
const INTERFACE: u16 = 1;
const NUMBER: u16 = 2;

/// Attribute (`NETDEV_A_NAPI_…`), its name in `netdev.yaml`, and the interface's file in sysfs from
/// which an instance has it. `irq-suspend-timeout` has none. Times are in nanoseconds.
const SETTINGS: [(u16, &str, Option<&str>); 4] = [
    (5, "defer-hard-irqs", Some("napi_defer_hard_irqs")),
    (6, "gro-flush-timeout", Some("gro_flush_timeout")),
    (7, "irq-suspend-timeout", None),
    (8, "threaded", Some("threaded")),
];

/// One NAPI instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    /// Its number, which the kernel gives anew when an interface is set up.
    pub(super) number: u32,
    /// Its settings, by name.
    pub(super) settings: BTreeMap<String, u64>,
}

/// The file of the interface from which an instance has a setting.
pub(super) fn file_of(setting: &str) -> Option<&'static str> {
    SETTINGS.iter().find(|(_, name, _)| *name == setting).and_then(|(_, _, file)| *file)
}

/// The instances of an interface, in the order in which the kernel numbered them, which is that of the
/// queues. Fails on a kernel before 6.8.
pub(super) fn list(netdev: &Family, index: u32) -> io::Result<Vec<Instance>> {
    let replies = netdev.list(GET, &[attribute(INTERFACE, &index.to_ne_bytes())])?;
    let mut instances: Vec<_> = replies.iter().filter_map(|reply| instance(reply)).collect();
    instances.sort_by_key(|instance| instance.number);
    Ok(instances)
}

/// Sets these settings of an instance.
pub(super) fn write(
    netdev: &Family,
    number: u32,
    settings: &BTreeMap<String, u64>,
) -> io::Result<()> {
    let mut parts = vec![attribute(NUMBER, &number.to_ne_bytes())];
    for (kind, name, _) in SETTINGS {
        parts.extend(settings.get(name).map(|value| number_attribute(kind, *value)));
    }
    netdev.send(SET, &parts)
}

/// The kernel takes a number of 32 bits for each, and one of 64 bits for times (type `uint`).
fn number_attribute(kind: u16, value: u64) -> Vec<u8> {
    match u32::try_from(value) {
        Ok(value) => attribute(kind, &value.to_ne_bytes()),
        Err(_) => attribute(kind, &value.to_ne_bytes()),
    }
}

/// An instance, with those settings that this kernel has.
fn instance(reply: &[u8]) -> Option<Instance> {
    let number = u32::try_from(number(find(reply, NUMBER)?)?).ok()?;
    let mut settings = BTreeMap::new();
    for (kind, value) in attributes(reply) {
        let known = SETTINGS.iter().find(|(known, ..)| *known == kind);
        if let Some(((_, name, _), value)) = known.zip(self::number(value)) {
            settings.insert((*name).to_owned(), value);
        }
    }
    Some(Instance { number, settings })
}

/// A number of 32 or 64 bits.
fn number(value: &[u8]) -> Option<u64> {
    match value.len() {
        4 => value.try_into().ok().map(u32::from_ne_bytes).map(u64::from),
        8 => value.try_into().ok().map(u64::from_ne_bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 writes one.
    fn reply() -> Vec<u8> {
        [
            attribute(NUMBER, &290_u32.to_ne_bytes()),
            attribute(INTERFACE, &3_u32.to_ne_bytes()),
            attribute(8, &1_u32.to_ne_bytes()),
            attribute(4, &9750_u32.to_ne_bytes()),
            attribute(5, &3_u32.to_ne_bytes()),
            attribute(7, &5_000_000_000_u64.to_ne_bytes()),
            attribute(6, &777_u32.to_ne_bytes()),
        ]
        .concat()
    }

    #[test]
    fn an_instance_has_its_settings_by_name() {
        let settings = [
            ("defer-hard-irqs", 3),
            ("gro-flush-timeout", 777),
            ("irq-suspend-timeout", 5_000_000_000),
            ("threaded", 1),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!(instance(&reply()), Some(Instance { number: 290, settings }));
    }

    #[test]
    fn malformed_answers_never_panic() {
        let whole = reply();
        for end in 0..whole.len() {
            let _ = instance(&whole[..end]);
        }
        for byte in 0..whole.len() {
            let mut other = whole.clone();
            other[byte] ^= 0xff;
            let _ = instance(&other);
        }
    }
}
