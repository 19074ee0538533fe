//! One interface by route netlink: reading it whole, and the messages that
//! change it. Follows `rtnetlink(7)`.

use crate::attach::AttachError;
use crate::attach::netns::NetNs;
use crate::prepare::host_link::{HostAddress, HostLink, HostRoute, SegmentSizes};
use cluster_model::network_config::{IpPrefix, MacAddress};
use futures::{StreamExt, TryStreamExt};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, CacheInfo,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteType,
};
use rtnetlink::{Handle, RouteMessageBuilder};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `IFA_F_NODAD`, `IFA_F_HOMEADDRESS`, `IFA_F_NOPREFIXROUTE`, `IFA_F_MCAUTOJOIN`:
/// what a person sets; the others are the kernel's state.
const SETTABLE_ADDRESS_FLAGS: u32 = 0x02 | 0x10 | 0x200 | 0x400;
/// `IFA_F_PERMANENT`.
const PERMANENT: u32 = 0x80;
/// `IFAPROT_KERNEL_LO`, `IFAPROT_KERNEL_RA`, `IFAPROT_KERNEL_LL`.
const KERNEL_ADDRESS_PROTOCOLS: [u8; 3] = [1, 2, 3];
/// `RT_SCOPE_LINK` of an IPv6 address is `fe80::/10`.
const SCOPE_LINK: u8 = 253;
/// `ENODEV`.
const NO_DEVICE: i32 = 19;
/// `ESRCH`.
const NO_ROUTE: i32 = 3;

/// The interfaces of this namespace with these names, as the host shall have
/// them again.
pub fn read_host_links(
    host: &NetNs,
    names: Vec<String>,
) -> Result<BTreeMap<String, HostLink>, AttachError> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    host.run(async move |handle| {
        let routes = routes(&handle).await?;
        let mut links = BTreeMap::new();
        for name in names {
            if let Some(link) = by_name(&handle, &name).await? {
                links.insert(name, host_link(&handle, &link, &routes).await?);
            }
        }
        Ok(links)
    })
}

/// The interface of this name.
pub(super) async fn by_name(
    handle: &Handle,
    name: &str,
) -> Result<Option<LinkMessage>, AttachError> {
    let found = handle.link().get().match_name(name.to_owned()).execute().try_next().await;
    match found {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == NO_DEVICE => {
            Ok(None)
        }
        other => other.map_err(|source| AttachError::netlink(name, "look it up", source)),
    }
}

/// The interface of this device (`0101:00:00.0`), under whatever name.
pub(super) async fn by_parent(
    handle: &Handle,
    parent: &str,
) -> Result<Option<LinkMessage>, AttachError> {
    let is_parent = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::ParentDevName(name) if name == parent);
    let mut links = handle.link().get().execute();
    while let Some(link) = links.next().await {
        let link = link.map_err(|source| AttachError::netlink(parent, "look it up", source))?;
        if link.attributes.iter().any(is_parent) {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// Its name.
pub(super) fn name_of(link: &LinkMessage) -> &str {
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    });
    name.unwrap_or_default()
}

async fn host_link(
    handle: &Handle,
    link: &LinkMessage,
    routes: &[RouteMessage],
) -> Result<HostLink, AttachError> {
    let index = link.header.index;
    let mut host = HostLink {
        name: name_of(link).to_owned(),
        parent: None,
        hardware_addr: None,
        mtu: 0,
        up: link.header.flags.contains(LinkFlags::Up),
        sizes: SegmentSizes::default(),
        addresses: addresses(handle, &host_name(link), index).await?,
        routes: routes.iter().filter_map(|route| host_route(route, index)).collect(),
        ethtool: None,
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::ParentDevName(name) => host.parent = Some(name.clone()),
            LinkAttribute::Address(bytes) => host.hardware_addr = MacAddress::from_bytes(bytes),
            LinkAttribute::Mtu(mtu) => host.mtu = *mtu,
            LinkAttribute::GsoMaxSize(size) => host.sizes.gso = Some(*size),
            LinkAttribute::GroMaxSize(size) => host.sizes.gro = Some(*size),
            LinkAttribute::GsoIpv4MaxSize(size) => host.sizes.gso_ipv4 = Some(*size),
            LinkAttribute::GroIpv4MaxSize(size) => host.sizes.gro_ipv4 = Some(*size),
            _ => {}
        }
    }
    Ok(host)
}

fn host_name(link: &LinkMessage) -> String {
    name_of(link).to_owned()
}

async fn addresses(
    handle: &Handle,
    name: &str,
    index: u32,
) -> Result<Vec<HostAddress>, AttachError> {
    let messages: Vec<AddressMessage> = handle
        .address()
        .get()
        .set_link_index_filter(index)
        .execute()
        .try_collect()
        .await
        .map_err(|source| AttachError::netlink(name, "read its addresses", source))?;
    Ok(messages.iter().filter_map(host_address).collect())
}

fn host_address(message: &AddressMessage) -> Option<HostAddress> {
    let (mut address, mut local, mut broadcast, mut label) = (None, None, None, None);
    let mut flags = u32::from(message.header.flags.bits());
    let mut by_kernel = false;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Broadcast(ip) => broadcast = Some(*ip),
            AddressAttribute::Label(text) => label = Some(text.clone()),
            AddressAttribute::Flags(all) => flags = all.bits(),
            AddressAttribute::Protocol(protocol) => {
                by_kernel = KERNEL_ADDRESS_PROTOCOLS.contains(&u8::from(*protocol));
            }
            _ => {}
        }
    }
    let own = local.or(address)?;
    let scope = u8::from(message.header.scope);
    let link_local_v6 = own.is_ipv6() && scope == SCOPE_LINK;
    if by_kernel || link_local_v6 || flags & PERMANENT == 0 {
        return None;
    }
    Some(HostAddress {
        prefix: IpPrefix { address: own, prefix_len: message.header.prefix_len },
        scope,
        peer: address.filter(|address| *address != own),
        broadcast,
        label,
        flags: flags & SETTABLE_ADDRESS_FLAGS,
        seconds: None,
    })
}

async fn routes(handle: &Handle) -> Result<Vec<RouteMessage>, AttachError> {
    let mut all = Vec::new();
    for request in [
        RouteMessageBuilder::<Ipv4Addr>::new().build(),
        RouteMessageBuilder::<Ipv6Addr>::new().build(),
    ] {
        let found: Result<Vec<RouteMessage>, _> =
            handle.route().get(request).execute().try_collect().await;
        let wrap = |source| AttachError::netlink("any", "read the routes", source);
        all.extend(found.map_err(wrap)?);
    }
    Ok(all)
}

/// A route that somebody set: the kernel's own come back with the addresses,
/// a router's with its next advertisement.
fn host_route(message: &RouteMessage, index: u32) -> Option<HostRoute> {
    let header = &message.header;
    let automatic = matches!(
        header.protocol,
        RouteProtocol::Kernel | RouteProtocol::Ra | RouteProtocol::IcmpRedirect
    );
    if automatic || header.kind != RouteType::Unicast {
        return None;
    }
    let unspecified = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let destination =
        IpPrefix { address: unspecified, prefix_len: header.destination_prefix_length };
    let mut route = HostRoute {
        destination,
        gateway: None,
        source: None,
        priority: None,
        table: header.table.into(),
        scope: header.scope.into(),
        protocol: header.protocol.into(),
    };
    let mut oif = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(found) => oif = Some(*found),
            RouteAttribute::Destination(address) => {
                route.destination.address = ip(address).unwrap_or(unspecified);
            }
            RouteAttribute::Gateway(address) => route.gateway = ip(address),
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Priority(priority) => route.priority = Some(*priority),
            RouteAttribute::Table(table) => route.table = *table,
            _ => {}
        }
    }
    (oif == Some(index)).then_some(route)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

/// Adds an address, or sees that it is there.
pub(super) async fn add_address(
    handle: &Handle,
    name: &str,
    index: u32,
    address: &HostAddress,
) -> Result<(), AttachError> {
    let HostAddress { prefix, scope, peer, broadcast, label, flags, seconds } = address;
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
        use netlink_packet_route::address::AddressFlags;
        message.attributes.push(AddressAttribute::Flags(AddressFlags::from_bits_retain(*flags)));
    }
    if let Some(seconds) = seconds {
        let mut lifetime = CacheInfo::default();
        (lifetime.ifa_valid, lifetime.ifa_preferred) = (*seconds, *seconds);
        message.attributes.push(AddressAttribute::CacheInfo(lifetime));
    }
    let wrap = |source| AttachError::netlink(name, format!("add address `{prefix}`"), source);
    request.execute().await.map_err(wrap)
}

/// Takes an IPv4 address away, where the interface has it with this prefix.
pub(super) async fn del_address(
    handle: &Handle,
    name: &str,
    index: u32,
    prefix: IpPrefix,
) -> Result<(), AttachError> {
    let local = AddressAttribute::Local(prefix.address);
    let wrap = |source| AttachError::netlink(name, format!("take `{prefix}` away"), source);
    let mut addresses = handle.address().get().set_link_index_filter(index).execute();
    while let Some(address) = addresses.try_next().await.map_err(wrap)? {
        let is_it = address.header.prefix_len == prefix.prefix_len;
        if is_it && address.attributes.contains(&local) {
            handle.address().del(address).execute().await.map_err(wrap)?;
        }
    }
    Ok(())
}

/// Whether the interface has an IPv4 address that somebody gave it for a while.
pub(super) async fn has_lease(
    handle: &Handle,
    name: &str,
    index: u32,
) -> Result<bool, AttachError> {
    let wrap = |source| AttachError::netlink(name, "read its addresses", source);
    let addresses = handle.address().get().set_link_index_filter(index).execute();
    let is_leased = |address: AddressMessage| async move {
        let is_v4 = address.header.family == AddressFamily::Inet;
        is_v4 && !address.header.flags.contains(AddressHeaderFlags::Permanent)
    };
    addresses.try_any(is_leased).await.map_err(wrap)
}

/// Adds a route, or sees that it is there.
pub(super) async fn add_route(
    handle: &Handle,
    name: &str,
    index: u32,
    route: &HostRoute,
) -> Result<(), AttachError> {
    let wrap = |source| {
        AttachError::netlink(name, format!("add route to `{}`", route.destination), source)
    };
    handle.route().add(route_message(index, route)?).replace().execute().await.map_err(wrap)
}

/// Takes a route away, where it is there.
pub(super) async fn del_route(
    handle: &Handle,
    name: &str,
    index: u32,
    route: &HostRoute,
) -> Result<(), AttachError> {
    match handle.route().del(route_message(index, route)?).execute().await {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == NO_ROUTE => Ok(()),
        other => other.map_err(|source| {
            let verb = format!("take the route to `{}` away", route.destination);
            AttachError::netlink(name, verb, source)
        }),
    }
}

fn route_message(index: u32, route: &HostRoute) -> Result<RouteMessage, AttachError> {
    let HostRoute { destination, gateway, source, priority, table, scope, protocol } = route;
    let mut message = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(destination.address, destination.prefix_len)
        .map_err(|error| invalid(route, &error))?
        .output_interface(index)
        .table_id(*table)
        .scope((*scope).into())
        .protocol((*protocol).into());
    if let Some(gateway) = gateway {
        message = message.gateway(*gateway).map_err(|error| invalid(route, &error))?;
    }
    if let Some(source) = source {
        message = message.pref_source(*source).map_err(|error| invalid(route, &error))?;
    }
    if let Some(priority) = priority {
        message = message.priority(*priority);
    }
    Ok(message.build())
}

fn invalid(route: &HostRoute, error: &dyn fmt::Display) -> AttachError {
    let source = io::Error::other(error.to_string());
    AttachError::system(format!("build the route to `{}`", route.destination), source)
}
