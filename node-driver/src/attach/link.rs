//! One interface by route netlink: finding it, and the messages that change it.
//! Follows `rtnetlink(7)`.

use crate::attach::AttachError;
use crate::prepare::host_link::{HostAddress, HostRoute};
use cluster_model::network_config::IpPrefix;
use futures::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, CacheInfo,
};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::route::RouteMessage;
use rtnetlink::{Handle, RouteMessageBuilder};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;

/// `ENODEV`.
const NO_DEVICE: i32 = 19;
/// `ESRCH`.
const NO_ROUTE: i32 = 3;

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
    let wrap = |source| AttachError::netlink(parent, "look it up", source);
    let mut links = handle.link().get().execute();
    while let Some(link) = links.try_next().await.map_err(wrap)? {
        if link.attributes.iter().any(is_parent) {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// All interfaces of a namespace, by name.
pub(super) async fn all(handle: &Handle) -> Result<BTreeMap<String, LinkMessage>, AttachError> {
    let wrap = |source| AttachError::netlink("any", "look it up", source);
    let links: Vec<LinkMessage> =
        handle.link().get().execute().try_collect().await.map_err(wrap)?;
    Ok(links.into_iter().map(|link| (name_of(&link).to_owned(), link)).collect())
}

/// Its name.
pub(super) fn name_of(link: &LinkMessage) -> &str {
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    });
    name.unwrap_or_default()
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
