//! Addresses of an interface. Follows `rtnetlink(7)`.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::model::host_link::{HostAddress, HostLink};
use cluster_model::network_config::IpPrefix;
use futures::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressProtocol, CacheInfo,
};
use rtnetlink::Handle;
use std::net::{IpAddr, Ipv4Addr};

/// `IFA_F_NODAD`, `IFA_F_HOMEADDRESS`, `IFA_F_MANAGETEMPADDR`, `IFA_F_NOPREFIXROUTE`,
/// `IFA_F_MCAUTOJOIN`: flags that an administrator sets; the others are kernel state.
const SETTABLE_ADDRESS_FLAGS: u32 = 0x02 | 0x10 | 0x100 | 0x200 | 0x400;
/// `IFA_F_DEPRECATED`.
const DEPRECATED: u32 = 0x20;
/// `IFA_F_SECONDARY`; of IPv6 `IFA_F_TEMPORARY`: a privacy address, which the kernel replaces over time.
const SECONDARY: u32 = 0x01;
/// `IFA_F_PERMANENT`.
const PERMANENT: u32 = 0x80;
/// `INFINITY_LIFE_TIME`.
const FOREVER: u32 = u32::MAX;
/// `IFAPROT_KERNEL_LO`, `IFAPROT_KERNEL_RA`, `IFAPROT_KERNEL_LL`.
const KERNEL_ADDRESS_PROTOCOLS: [u8; 3] = [1, 2, 3];
/// `RT_SCOPE_LINK`; for an IPv6 address, `fe80::/10`.
const SCOPE_LINK: u8 = 253;

/// The addresses that were configured without a lifetime. A DHCP client of the host requests its own again.
pub(super) struct Addresses;

impl Setting for Addresses {
    fn name(&self) -> &'static str {
        "Addresses"
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        let addresses = found.dump.addresses.iter();
        let listed: Vec<_> = addresses.filter_map(|it| listed(it, found.index())).collect();
        let sysfs = found.sources.sysfs().filter(|_| listed.len() > 1);
        let gids = sysfs.map(|sysfs| sysfs.gids(found.name())).unwrap_or_default();
        host.addresses = in_order(listed, &gids);
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(async {
            let mut outcomes = Vec::new();
            for address in home.former().addresses.iter().filter(|it| it.seconds.is_none()) {
                let added = add_address(home.handle, home.name(), home.index(), address);
                outcomes.push(added.await);
            }
            outcomes
        })
    }
}

/// An address as the kernel lists it.
struct Listed {
    address: HostAddress,
    /// When it was added, in hundredths of a second.
    time: u32,
    /// Whether it is one of IPv4 in a network of which the interface had one before.
    is_secondary: bool,
}

/// The addresses in the order in which they must be added, so that they get the same places in the port's GID
/// table. That is the order of `gids`; without RDMA, that in which they were added. The kernel lists the
/// last one of IPv6 first (`ipv6_link_dev_addr`), and those of IPv4 by primary and secondary.
fn in_order(listed: Vec<Listed>, gids: &[IpAddr]) -> Vec<HostAddress> {
    let (mut listed, ipv4): (Vec<_>, Vec<_>) =
        listed.into_iter().partition(|it| it.address.prefix.address.is_ipv6());
    listed.reverse();
    listed.extend(ipv4);
    let due: Vec<_> = listed.iter().map(|it| it.due(&listed, gids)).collect();
    let mut all: Vec<_> = due.into_iter().zip(listed).collect();
    all.sort_by_key(|(due, _)| *due);
    all.into_iter().map(|(_, it)| it.address).collect()
}

impl Listed {
    /// A sort key. A secondary address comes after its primary one, in whose place it would be otherwise.
    fn due(&self, all: &[Self], gids: &[IpAddr]) -> (usize, u32) {
        let own = self.address.prefix;
        let primary = all.iter().find(|it| {
            let prefix = it.address.prefix;
            let is_same = prefix.prefix_len == own.prefix_len && prefix.contains(own.address);
            self.is_secondary && !it.is_secondary && is_same
        });
        self.place(gids).max(primary.map_or((0, 0), |primary| primary.place(gids)))
    }

    /// Its place in the GID table, and its time.
    fn place(&self, gids: &[IpAddr]) -> (usize, u32) {
        let place = gids.iter().position(|gid| *gid == self.address.prefix.address);
        (place.unwrap_or(gids.len()), self.time)
    }
}

/// An address of this interface that was configured, permanently or with a lifetime.
fn listed(message: &AddressMessage, index: u32) -> Option<Listed> {
    if message.header.index != index {
        return None;
    }
    let (mut address, mut local) = (None, None);
    let mut flags = u32::from(message.header.flags.bits());
    let (mut by_kernel, mut cache) = (false, CacheInfo::default());
    let mut host = HostAddress::new(IpPrefix {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        prefix_len: message.header.prefix_len,
    });
    (host.scope, host.broadcast) = (u8::from(message.header.scope), None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Broadcast(ip) => host.broadcast = Some(*ip),
            AddressAttribute::Label(text) => host.label = Some(text.clone()),
            AddressAttribute::Flags(all) => flags = all.bits(),
            AddressAttribute::RoutePriority(metric) => host.metric = Some(*metric),
            AddressAttribute::CacheInfo(found) => cache = *found,
            AddressAttribute::Protocol(protocol) => {
                by_kernel = KERNEL_ADDRESS_PROTOCOLS.contains(&u8::from(*protocol));
                host.protocol = Some(u8::from(*protocol));
            }
            _ => {}
        }
    }
    host.prefix.address = local.or(address)?;
    let own = host.prefix.address;
    let link_local_v6 = own.is_ipv6() && host.scope == SCOPE_LINK;
    if by_kernel || link_local_v6 || flags & SECONDARY != 0 && own.is_ipv6() {
        return None;
    }
    host.peer = address.filter(|address| *address != own);
    host.flags = flags & SETTABLE_ADDRESS_FLAGS;
    host.seconds = (flags & PERMANENT == 0).then_some(cache.ifa_valid);
    // Of a permanent address of IPv4, the kernel tells only that its time is over.
    let preferred = if flags & DEPRECATED != 0 { 0 } else { cache.ifa_preferred };
    host.preferred = Some(preferred).filter(|it| *it != FOREVER && host.seconds.is_none());
    Some(Listed { address: host, time: cache.cstamp, is_secondary: flags & SECONDARY != 0 })
}

/// Adds an address, unless it is already there.
pub(super) async fn add_address(
    handle: &Handle,
    name: &str,
    index: u32,
    address: &HostAddress,
) -> Result<(), AttachError> {
    let HostAddress { prefix, scope, peer, broadcast, label, flags, .. } = address;
    let mut request = handle.address().add(index, prefix.address, prefix.prefix_len).replace();
    let message = request.message_mut();
    message.header.scope = (*scope).into();
    message.attributes.retain(|attribute| !matches!(attribute, AddressAttribute::Broadcast(_)));
    message.attributes.extend(broadcast.map(AddressAttribute::Broadcast));
    message.attributes.extend(label.clone().map(AddressAttribute::Label));
    if let Some(peer) = peer {
        message.attributes.retain(|attribute| !matches!(attribute, AddressAttribute::Address(_)));
        message.attributes.push(AddressAttribute::Address(*peer));
    }
    if *flags != 0 {
        message.attributes.push(AddressAttribute::Flags(AddressFlags::from_bits_retain(*flags)));
    }
    message.attributes.extend(address.metric.map(AddressAttribute::RoutePriority));
    let protocol = address.protocol.map(AddressProtocol::from);
    message.attributes.extend(protocol.map(AddressAttribute::Protocol));
    if address.seconds.is_some() || address.preferred.is_some() {
        let mut lifetime = CacheInfo::default();
        lifetime.ifa_valid = address.seconds.unwrap_or(FOREVER);
        lifetime.ifa_preferred = address.preferred.unwrap_or(lifetime.ifa_valid);
        message.attributes.push(AddressAttribute::CacheInfo(lifetime));
    }
    request
        .execute()
        .await
        .map_err(|source| AttachError::netlink(name, format!("add address `{prefix}`"), source))
}

/// Removes an IPv4 address, if the interface has it with this prefix.
pub(super) async fn del_address(
    handle: &Handle,
    name: &str,
    index: u32,
    prefix: IpPrefix,
) -> Result<(), AttachError> {
    let local = AddressAttribute::Local(prefix.address);
    let wrap = |source| AttachError::netlink(name, format!("remove address `{prefix}`"), source);
    let mut addresses = handle.address().get().set_link_index_filter(index).execute();
    while let Some(address) = addresses.try_next().await.map_err(wrap)? {
        let is_it = address.header.prefix_len == prefix.prefix_len;
        if is_it && address.attributes.contains(&local) {
            handle.address().del(address).execute().await.map_err(wrap)?;
        }
    }
    Ok(())
}

/// Whether the interface has a configured IPv4 address with a lifetime.
pub(super) async fn has_lease(
    handle: &Handle,
    name: &str,
    index: u32,
) -> Result<bool, AttachError> {
    let addresses = handle.address().get().set_link_index_filter(index).execute();
    addresses
        .try_any(|address| async move {
            let is_v4 = address.header.family == AddressFamily::Inet;
            is_v4 && !address.header.flags.contains(AddressHeaderFlags::Permanent)
        })
        .await
        .map_err(|source| AttachError::netlink(name, "read its addresses", source))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses as the kernel lists them, with the times at which they were added and whether they are
    /// secondary; in the order in which they are added again.
    fn ordered(listed: &[(&str, u32, bool)], gids: &[&str]) -> Vec<String> {
        let listed = listed.iter().map(|(prefix, time, is_secondary)| Listed {
            address: HostAddress::new(prefix.parse().unwrap()),
            time: *time,
            is_secondary: *is_secondary,
        });
        let gids: Vec<IpAddr> = gids.iter().map(|gid| gid.parse().unwrap()).collect();
        let ordered = in_order(listed.collect(), &gids);
        ordered.into_iter().map(|it| it.prefix.address.to_string()).collect()
    }

    #[test]
    fn addresses_are_added_in_the_order_of_the_gid_table() {
        let host = [
            ("10.9.0.10/16", 7, false),
            ("10.8.0.10/16", 7, false),
            ("10.9.0.11/16", 7, true),
            ("fd09::23/64", 7, false),
            ("fd09::22/64", 7, false),
            ("fd09::21/64", 7, false),
        ];
        let six = ["fd09::21", "fd09::22", "fd09::23"];
        let mixed = ["10.9.0.10", "10.9.0.11", "fd09::21", "10.8.0.10", "fd09::22", "fd09::23"];
        assert_eq!(ordered(&host, &mixed), mixed);
        // The kernel has filled it from its lists, when the driver was loaded.
        let lists = ["10.9.0.10", "10.8.0.10", "10.9.0.11", "fd09::23", "fd09::22", "fd09::21"];
        assert_eq!(ordered(&host, &lists), lists);
        // Without RDMA the order of the families has no effect.
        assert_eq!(ordered(&host, &[])[..3], six);
        assert_eq!(ordered(&host, &[])[3..], ["10.9.0.10", "10.8.0.10", "10.9.0.11"]);
        // One that the table does not have, as for an alias of the host's service, is last.
        assert_eq!(ordered(&host, &mixed[1..])[..2], ["fd09::21", "10.8.0.10"]);
    }

    #[test]
    fn a_secondary_address_is_added_after_its_primary_one() {
        // The primary one has the place of one that was removed.
        let host = [("10.9.0.11/16", 1, false), ("10.9.0.10/16", 9, true)];
        for gids in [&["10.9.0.10", "10.9.0.11"][..], &[]] {
            assert_eq!(ordered(&host, gids), ["10.9.0.11", "10.9.0.10"]);
        }
    }
}
