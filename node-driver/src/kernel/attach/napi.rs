//! How the kernel polls a NIC for packets (`Documentation/networking/napi.rst`): settings of an
//! interface and of each of its NAPI instances, which it takes into a pod and back. A pod that may
//! administer its network may set them, and the next user of the NIC must not find them.
//!
//! An interface's settings are files in sysfs; those of an instance exist since Linux
//! 6.13 and are set by netlink ([`netlink`]). A kernel without either has nothing to restore.

mod netlink;

use crate::kernel::attach::AttachError;
use crate::kernel::attach::setting::{Found, Home, Restored, Setting, Sources};
use crate::model::host_link::{HostLink, Napi, NapiInstance};
use netlink::Instance;
use std::collections::BTreeMap;
use std::future::ready;

/// The files of an interface: number of polls, nanoseconds, and 1 for a thread.
const FILES: [&str; 3] = ["napi_defer_hard_irqs", "gro_flush_timeout", "threaded"];

/// How an interface and its instances are polled. Instances exist only while it is up.
pub(super) struct Polling;

impl Setting for Polling {
    fn name(&self) -> &'static str {
        "Polling"
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        let interface = found.sources.sysfs().map(|it| it.read(found.name(), &FILES));
        let interface = interface.unwrap_or_default();
        let instances = own(&interface, &list(found.sources, found.index()));
        let napi = Napi { interface, instances };
        host.napi = (napi != Napi::default()).then_some(napi);
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        let Some(former) = &home.former().napi else { return Box::pin(ready(Vec::new())) };
        let mut outcomes = restore_files(home, &former.interface);
        // Each setting of the interface overwrites those of its instances.
        outcomes.extend(restore_instances(home, former));
        Box::pin(ready(outcomes))
    }
}

/// The instances of an interface, in the order of its queues. None while it is down.
fn list(sources: &Sources, index: u32) -> Vec<Instance> {
    sources.netdev().and_then(|it| netlink::list(it, index).ok()).unwrap_or_default()
}

fn restore_files(home: &Home<'_>, former: &BTreeMap<String, u64>) -> Vec<Result<(), AttachError>> {
    let Some(sysfs) = home.sources.sysfs() else { return Vec::new() };
    let (name, now) = (home.name(), sysfs.read(home.name(), &FILES));
    former
        .iter()
        .filter(|(file, value)| now.get(*file).is_some_and(|now| now != *value))
        .map(|(file, value)| {
            sysfs.write(name, file, *value).map_err(|source| {
                let verb = format!("set `{file}` of interface `{name}` to {value}");
                AttachError::system(verb, source)
            })
        })
        .collect()
}

fn restore_instances(home: &Home<'_>, former: &Napi) -> Vec<Result<(), AttachError>> {
    let Some(netdev) = home.sources.netdev() else { return Vec::new() };
    changed(former, &list(home.sources, home.index()))
        .into_iter()
        .map(|(instance, settings)| {
            netlink::write(netdev, instance, &settings).map_err(|source| {
                let verb = format!("restore how interface `{}` is polled", home.name());
                AttachError::system(verb, source)
            })
        })
        .collect()
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
        let settings = instance.settings.iter().filter_map(|(name, value)| {
            let wanted = own.and_then(|it| it.settings.get(name).copied());
            let wanted = wanted.unwrap_or_else(|| default_of(&former.interface, name));
            (*value != wanted).then(|| (name.clone(), wanted))
        });
        let settings: BTreeMap<_, _> = settings.collect();
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
