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
/// `IFA_F_TEMPORARY`: a privacy address, which the kernel replaces over time.
const TEMPORARY: u32 = 0x01;
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
        let addresses = addresses.filter_map(|it| host_address(it, found.index()));
        host.addresses = in_order(addresses.collect());
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

/// The addresses in the order in which they were added, which is that of the port's GID table. The kernel
/// lists the last one of IPv6 first (`ipv6_link_dev_addr`), and those of IPv4 by primary and secondary.
fn in_order(mut dated: Vec<(u32, HostAddress)>) -> Vec<HostAddress> {
    let (mut ipv6, ipv4): (Vec<_>, Vec<_>) =
        dated.drain(..).partition(|(_, address)| address.prefix.address.is_ipv6());
    ipv6.reverse();
    dated.extend(ipv6);
    dated.extend(ipv4);
    dated.sort_by_key(|(time, _)| *time);
    dated.into_iter().map(|(_, address)| address).collect()
}

/// An address of this interface that was configured, permanently or with a lifetime, and the time at which it
/// was added, in hundredths of a second.
fn host_address(message: &AddressMessage, index: u32) -> Option<(u32, HostAddress)> {
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
    if by_kernel || link_local_v6 || flags & TEMPORARY != 0 && own.is_ipv6() {
        return None;
    }
    host.peer = address.filter(|address| *address != own);
    host.flags = flags & SETTABLE_ADDRESS_FLAGS;
    host.seconds = (flags & PERMANENT == 0).then_some(cache.ifa_valid);
    // Of a permanent address of IPv4, the kernel tells only that its time is over.
    let preferred = if flags & DEPRECATED != 0 { 0 } else { cache.ifa_preferred };
    host.preferred = Some(preferred).filter(|it| *it != FOREVER && host.seconds.is_none());
    Some((cache.cstamp, host))
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
