//! How the kernel polls a NIC for packets (`Documentation/networking/napi.rst`): settings of an
//! interface and of each of its NAPI instances, which it takes into a pod and back. A pod that may
//! administer its network may set them, and the next user of the NIC must not find them.
//!
//! An interface's settings are files in sysfs ([`sysfs`]); those of an instance exist since Linux
//! 6.13 and are set by netlink ([`netlink`]). A kernel without either has nothing to restore.

mod netlink;
mod sysfs;

use crate::kernel::attach::AttachError;
use crate::model::host_link::{Napi, NapiInstance};
use netlink::Instance;
use std::collections::BTreeMap;
use sysfs::Interfaces;

/// Reads the settings of interfaces in the calling thread's namespace.
#[derive(Debug)]
pub(super) struct Reader {
    interfaces: Option<Interfaces>,
    instances: Option<netlink::Instances>,
}

impl Reader {
    pub(super) fn open() -> Self {
        Self { interfaces: Interfaces::open().ok(), instances: netlink::Instances::open().ok() }
    }

    /// The settings of an interface; `None` if it has none.
    pub(super) fn read(&self, name: &str, index: u32) -> Option<Napi> {
        let interface = self.interfaces.as_ref().map(|it| it.read(name)).unwrap_or_default();
        let found = self.list(index);
        let instances = own(&interface, &found);
        let napi = Napi { interface, instances };
        (napi != Napi::default()).then_some(napi)
    }

    /// The instances of an interface, in the order of its queues. None while it is down.
    fn list(&self, index: u32) -> Vec<Instance> {
        self.instances.as_ref().and_then(|it| it.list(index).ok()).unwrap_or_default()
    }

    /// Restores what differs, on an interface that is as on the host otherwise: instances exist only
    /// while it is up. Returns the result of each write.
    pub(super) fn restore(
        &self,
        name: &str,
        index: u32,
        former: &Napi,
    ) -> Vec<Result<(), AttachError>> {
        let mut outcomes = Vec::new();
        if let Some(interfaces) = &self.interfaces {
            let now = interfaces.read(name);
            let differ = former
                .interface
                .iter()
                .filter(|(file, value)| now.get(*file).is_some_and(|now| now != *value));
            for (file, value) in differ {
                let written = interfaces.write(name, file, *value);
                outcomes.push(written.map_err(|source| {
                    AttachError::system(
                        format!("set `{file}` of interface `{name}` to {value}"),
                        source,
                    )
                }));
            }
        }
        // Each setting of the interface overwrites those of its instances.
        for (instance, settings) in changed(former, &self.list(index)) {
            let Some(instances) = &self.instances else { break };
            let written = instances.write(instance, &settings);
            outcomes.push(written.map_err(|source| {
                AttachError::system(format!("restore how interface `{name}` is polled"), source)
            }));
        }
        outcomes
    }
}

/// The instances whose settings are not those of their interface.
fn own(interface: &BTreeMap<String, u64>, found: &[Instance]) -> Vec<NapiInstance> {
    found
        .iter()
        .enumerate()
        .filter_map(|(queue, instance)| {
            let settings = instance
                .settings
                .iter()
                .filter(|(name, value)| **value != default_of(interface, name));
            let settings: BTreeMap<_, _> =
                settings.map(|(name, value)| (name.clone(), *value)).collect();
            (!settings.is_empty()).then_some(NapiInstance { queue, settings })
        })
        .collect()
}

/// The settings that an instance has if nobody has set them for it.
fn default_of(interface: &BTreeMap<String, u64>, setting: &str) -> u64 {
    let file = netlink::file_of(setting);
    file.and_then(|file| interface.get(file)).copied().unwrap_or_default()
}

/// Number of each instance that differs from what it was, and the settings to restore.
fn changed(former: &Napi, now: &[Instance]) -> Vec<(u32, BTreeMap<String, u64>)> {
    let mut changed = Vec::new();
    for (queue, instance) in now.iter().enumerate() {
        let own = former.instances.iter().find(|it| it.queue == queue);
        let wanted = |name: &String| {
            let own = own.and_then(|it| it.settings.get(name).copied());
            own.unwrap_or_else(|| default_of(&former.interface, name))
        };
        let settings: BTreeMap<_, _> = instance
            .settings
            .iter()
            .map(|(name, value)| (name, *value, wanted(name)))
            .filter(|(_, value, wanted)| value != wanted)
            .map(|(name, _, wanted)| (name.clone(), wanted))
            .collect();
        if !settings.is_empty() {
            changed.push((instance.number, settings));
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
        of.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn instance(number: u32, of: &[(&str, u64)]) -> Instance {
        Instance { number, settings: settings(of) }
    }

    #[test]
    fn only_settings_of_an_instance_of_its_own_are_recorded_and_all_are_restored() {
        let interface = settings(&[("gro_flush_timeout", 1000), ("threaded", 0)]);
        let before = [
            instance(7, &[("gro-flush-timeout", 1000), ("irq-suspend-timeout", 0)]),
            instance(8, &[("gro-flush-timeout", 500), ("irq-suspend-timeout", 0)]),
        ];
        let instances = own(&interface, &before);
        assert_eq!(
            instances,
            [NapiInstance { queue: 1, settings: settings(&[("gro-flush-timeout", 500)]) }]
        );
        let former = Napi { interface, instances };
        assert_eq!(changed(&former, &before), [], "nothing differs");
        // The kernel has numbered them again, and a pod has added a queue.
        let after = [
            instance(17, &[("gro-flush-timeout", 1000), ("irq-suspend-timeout", 9)]),
            instance(18, &[("gro-flush-timeout", 1000), ("irq-suspend-timeout", 0)]),
            instance(19, &[("gro-flush-timeout", 3), ("threaded", 1)]),
        ];
        assert_eq!(
            changed(&former, &after),
            [
                (17, settings(&[("irq-suspend-timeout", 0)])),
                (18, settings(&[("gro-flush-timeout", 500)])),
                (19, settings(&[("gro-flush-timeout", 1000), ("threaded", 0)])),
            ]
        );
        assert_eq!(changed(&former, &[]), [], "the interface is down");
    }
}
