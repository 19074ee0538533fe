//! Properties that an interface takes along when it changes its namespace: alternative names,
//! alias, queue length, group, eBPF programs, and the modes that an administrator sets. What a pod
//! changed must not stay on the host. An alternative name must be unique in a namespace like a name, so those
//! in conflict are removed before the move (`__dev_change_net_namespace` in `net/core/dev.c`).

use crate::kernel::attach::identity::{alternative_names, name_of};
use crate::kernel::attach::{AttachError, ebpf};
use crate::model::host_link::{Carried, LinkModes};
use cluster_model::network_config::MacAddress;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::{Handle, LinkUnspec};
use std::collections::BTreeSet;
use std::ops::Not;

/// The properties of an interface.
pub(super) fn read(link: &LinkMessage) -> Carried {
    let flags = link.header.flags;
    let mut carried = Carried {
        alternative_names: alternative_names(link).into_iter().map(str::to_owned).collect(),
        promiscuous: flags.contains(LinkFlags::Promisc),
        all_multicast: flags.contains(LinkFlags::Allmulti),
        programs: ebpf::programs(link),
        xdp: ebpf::xdp_programs(link),
        modes: Some(modes(link)),
        ..Carried::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfAlias(text) => carried.alias = Some(text.clone()),
            LinkAttribute::TxQueueLen(length) => carried.queue_length = *length,
            LinkAttribute::Group(group) => carried.group = *group,
            _ => {}
        }
    }
    carried
}

fn modes(link: &LinkMessage) -> LinkModes {
    let flags = link.header.flags;
    let mut modes = LinkModes {
        arp: !flags.contains(LinkFlags::Noarp),
        multicast: flags.contains(LinkFlags::Multicast),
        ..LinkModes::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Mode(mode) => modes.link_mode = (*mode).into(),
            LinkAttribute::Broadcast(bytes) => modes.broadcast = MacAddress::from_bytes(bytes),
            LinkAttribute::GsoMaxSegs(number) => modes.segments = Some(*number),
            _ => {}
        }
    }
    modes
}

/// Removes alternative names of an interface.
pub(super) async fn remove_names(
    handle: &Handle,
    link: &LinkMessage,
    names: &[&str],
) -> Result<(), AttachError> {
    let mut removed = Ok(());
    for name in names {
        let request = handle.link().property_del(link.header.index).alt_ifname(&[name]);
        let outcome = request.execute().await;
        let outcome = outcome.map_err(|it| {
            AttachError::netlink(name_of(link), format!("remove its alternative name `{name}`"), it)
        });
        removed = removed.and(outcome);
    }
    removed
}

/// The alternative names that the host's interface did not have. Unknown in plans of older
/// drivers.
pub(super) fn added_names<'l>(former: Option<&Carried>, link: &'l LinkMessage) -> Vec<&'l str> {
    let Some(former) = former else { return Vec::new() };
    let names = alternative_names(link).into_iter();
    names.filter(|name| !former.alternative_names.contains(*name)).collect()
}

/// Restores the properties that differ. Returns the result of each.
pub(super) async fn restore(
    handle: &Handle,
    name: &str,
    former: &Carried,
    link: &LinkMessage,
) -> Vec<Result<(), AttachError>> {
    let now = read(link);
    let index = link.header.index;
    let mut outcomes = vec![add_names(handle, name, index, former, &now).await];
    for attribute in changed(former, &now) {
        let verb = format!("set {attribute:?}");
        let message = LinkUnspec::new_with_index(index).append_extra_attribute(attribute).build();
        let set = handle.link().set(message).execute().await;
        outcomes.push(set.map_err(|source| AttachError::netlink(name, verb, source)));
    }
    outcomes.push(restore_modes(handle, name, index, [former, &now]).await);
    outcomes.push(no_new_programs(name, former, &now));
    outcomes
}

async fn add_names(
    handle: &Handle,
    name: &str,
    index: u32,
    former: &Carried,
    now: &Carried,
) -> Result<(), AttachError> {
    let lost: BTreeSet<_> = former.alternative_names.difference(&now.alternative_names).collect();
    let mut added = Ok(());
    for lost in lost {
        let request = handle.link().property_add(index).alt_ifname(&[lost]);
        let outcome = request.execute().await;
        let outcome = outcome.map_err(|it| {
            AttachError::netlink(name, format!("add its alternative name `{lost}`"), it)
        });
        added = added.and(outcome);
    }
    added
}

fn changed(former: &Carried, now: &Carried) -> Vec<LinkAttribute> {
    let mut changed = Vec::new();
    if former.alias != now.alias {
        // An empty alias removes it.
        changed.push(LinkAttribute::IfAlias(former.alias.clone().unwrap_or_default()));
    }
    if former.queue_length != now.queue_length {
        changed.push(LinkAttribute::TxQueueLen(former.queue_length));
    }
    if former.group != now.group {
        changed.push(LinkAttribute::Group(former.group));
    }
    if let (Some(former), Some(now)) = (&former.modes, &now.modes) {
        if former.link_mode != now.link_mode {
            changed.push(LinkAttribute::Mode(former.link_mode.into()));
        }
        if former.broadcast != now.broadcast {
            let address = former.broadcast.as_ref();
            changed.extend(address.map(|it| LinkAttribute::Broadcast(it.bytes().to_vec())));
        }
        if former.segments != now.segments {
            changed.extend(former.segments.map(LinkAttribute::GsoMaxSegs));
        }
    }
    changed
}

/// A pod's programs were detached before the interface left it. If the kernel has returned the
/// interface by itself, nobody knows whether a new program is the pod's or the host's own.
fn no_new_programs(name: &str, former: &Carried, now: &Carried) -> Result<(), AttachError> {
    let (Some(former), Some(now)) = (&former.programs, &now.programs) else { return Ok(()) };
    let is_new = !now.is_subset(former);
    if is_new { Err(AttachError::NewPrograms { link: name.to_owned() }) } else { Ok(()) }
}

async fn restore_modes(
    handle: &Handle,
    name: &str,
    index: u32,
    [former, now]: [&Carried; 2],
) -> Result<(), AttachError> {
    let mut message = LinkUnspec::new_with_index(index).build();
    let all = [
        (LinkFlags::Promisc, Some(former.promiscuous), Some(now.promiscuous)),
        (LinkFlags::Allmulti, Some(former.all_multicast), Some(now.all_multicast)),
        (LinkFlags::Noarp, arp(former).map(Not::not), arp(now).map(Not::not)),
        (LinkFlags::Multicast, multicast(former), multicast(now)),
    ];
    for (flag, former, now) in all {
        if let Some(former) = former.filter(|_| former != now) {
            message.header.flags.set(flag, former);
            message.header.change_mask |= flag;
        }
    }
    if message.header.change_mask.is_empty() {
        return Ok(());
    }
    handle
        .link()
        .set(message)
        .execute()
        .await
        .map_err(|source| AttachError::netlink(name, "restore its modes", source))
}

fn arp(carried: &Carried) -> Option<bool> {
    carried.modes.as_ref().map(|modes| modes.arp)
}

fn multicast(carried: &Carried) -> Option<bool> {
    carried.modes.as_ref().map(|modes| modes.multicast)
}
