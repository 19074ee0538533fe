//! Finds and changes single interfaces by rtnetlink. Follows `rtnetlink(7)`.

use crate::facts::network::dump::{dump, dump_each};
use crate::kernel::attach::AttachError;
use crate::kernel::attach::netns::NetNs;
use crate::model::host_link::{HostAddress, HostRoute, SegmentSizes};
use cluster_model::network_config::{IpPrefix, MacAddress, NeighborConfig};
use futures::TryStreamExt;
use netlink_packet_core::{DecodeError, Parseable};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, CacheInfo,
};
use netlink_packet_route::link::{LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::NeighbourState;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use rustix::fd::{AsFd, AsRawFd};
use std::fmt;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of `struct rtmsg`.
const ROUTE_HEADER: usize = 12;
/// The alternative names of a pod's interfaces that are kept, of up to 127 bytes each.
const NAMES_MAX: usize = 4_096;
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

/// The interface of this index.
pub(super) async fn by_index(
    handle: &Handle,
    index: u32,
) -> Result<Option<LinkMessage>, AttachError> {
    let found = handle.link().get().match_index(index).execute().try_next().await;
    match found {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == NO_DEVICE => {
            Ok(None)
        }
        other => other.map_err(|source| AttachError::netlink("any", "look it up", source)),
    }
}

/// All interfaces of a namespace.
pub(super) async fn all(handle: &Handle) -> Result<Vec<LinkMessage>, AttachError> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let found = dump(handle, request)
        .await
        .map_err(|source| AttachError::netlink("any", "look it up", source))?
        .into_iter();
    Ok(found
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        })
        .collect())
}

/// All interfaces of a pod's namespace, with only those properties by which an interface is found:
/// a pod can create thousands of interfaces, with hundreds of alternative names each.
pub(super) async fn inside(handle: &Handle) -> Result<Vec<LinkMessage>, AttachError> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let names = AtomicUsize::new(0);
    dump_each(handle, request, |message| found_by(message, &names))
        .await
        .map_err(|source| AttachError::netlink("any", "look it up", source))
}

/// Counts alternative names. Those beyond [`NAMES_MAX`] are left out: where one conflicts, the kernel
/// refuses the name later.
fn found_by(message: RouteNetlinkMessage, names: &AtomicUsize) -> Option<LinkMessage> {
    let RouteNetlinkMessage::NewLink(mut link) = message else { return None };
    // Copied, since a large vector that shrinks in place leaves a gap that nothing fills.
    let mut kept = Vec::new();
    let attributes = mem::take(&mut link.attributes).into_iter();
    kept.extend(attributes.filter_map(|attribute| identifying(attribute, names)));
    kept.shrink_to_fit();
    link.attributes = kept;
    Some(link)
}

fn identifying(attribute: LinkAttribute, names: &AtomicUsize) -> Option<LinkAttribute> {
    match attribute {
        LinkAttribute::PropList(properties) => {
            let before = names.fetch_add(properties.len(), Ordering::Relaxed);
            let has_room = before + properties.len() <= NAMES_MAX;
            has_room.then_some(LinkAttribute::PropList(properties))
        }
        LinkAttribute::LinkInfo(infos) => {
            let mut kind = infos.into_iter().filter(|info| matches!(info, LinkInfo::Kind(_)));
            kind.next().map(|kind| LinkAttribute::LinkInfo(vec![kind]))
        }
        LinkAttribute::IfName(_)
        | LinkAttribute::IfAlias(_)
        | LinkAttribute::Link(_)
        | LinkAttribute::LinkNetNsId(_)
        | LinkAttribute::Address(_)
        | LinkAttribute::ParentDevName(_)
        | LinkAttribute::PermAddress(_)
        | LinkAttribute::PhysPortName(_) => Some(attribute),
        _ => None,
    }
}

/// Adds an address, unless it is already there.
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

/// Adds a route, unless it is already there.
pub(super) async fn add_route(
    handle: &Handle,
    name: &str,
    index: u32,
    route: &HostRoute,
    metrics: Vec<RouteAttribute>,
) -> Result<(), AttachError> {
    let mut message = route_message(index, route)?;
    message.attributes.extend(metrics);
    handle.route().add(message).replace().execute().await.map_err(|source| {
        AttachError::netlink(name, format!("add route to `{}`", route.destination), source)
    })
}

/// The metrics of a recorded route, such as its MTU (`RTA_METRICS`).
pub(super) fn metrics_of(route: &HostRoute) -> Vec<RouteAttribute> {
    let message = route.message.as_deref().and_then(|text| parsed(text).ok());
    let attributes = message.map(|message| message.attributes).unwrap_or_default();
    attributes.into_iter().filter(|it| matches!(it, RouteAttribute::Metrics(_))).collect()
}

/// Removes a route, if it is there.
pub(super) async fn del_route(
    handle: &Handle,
    name: &str,
    index: u32,
    route: &HostRoute,
) -> Result<(), AttachError> {
    match handle.route().del(route_message(index, route)?).execute().await {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == NO_ROUTE => Ok(()),
        other => other.map_err(|source| {
            let verb = format!("remove the route to `{}`", route.destination);
            AttachError::netlink(name, verb, source)
        }),
    }
}

fn route_message(index: u32, route: &HostRoute) -> Result<RouteMessage, AttachError> {
    if let Some(text) = &route.message {
        return recorded(index, text).map_err(|error| invalid(route, &error));
    }
    let mut message = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(route.destination.address, route.destination.prefix_len)
        .map_err(|error| invalid(route, &error))?
        .output_interface(index)
        .table_id(route.table)
        .scope(route.scope.into())
        .protocol(route.protocol.into());
    let via = route.gateway.filter(|it| it.is_ipv6() && route.destination.address.is_ipv4());
    if let Some(gateway) = route.gateway.filter(|_| via.is_none()) {
        message = message.gateway(gateway).map_err(|error| invalid(route, &error))?;
    }
    if let Some(source) = route.source {
        message = message.pref_source(source).map_err(|error| invalid(route, &error))?;
    }
    if let Some(priority) = route.priority {
        message = message.priority(priority);
    }
    let mut message = message.build();
    if let Some(IpAddr::V6(gateway)) = via {
        message.attributes.push(RouteAttribute::Via(RouteVia::Inet6(gateway)));
    }
    message.header.flags.set(RouteFlags::Onlink, route.onlink);
    Ok(message)
}

/// Converts the kernel's recorded message into a request for the interface with this
/// index.
fn recorded(index: u32, text: &str) -> Result<RouteMessage, DecodeError> {
    let mut message = parsed(text)?;
    // The other flags are state from when the route was read.
    message.header.flags &= RouteFlags::Onlink | RouteFlags::Pervasive;
    message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::CacheInfo(_)));
    let is_only = |attribute: &RouteAttribute| matches!(attribute, RouteAttribute::Oif(_));
    let is_explicit =
        |it: &RouteAttribute| is_only(it) || matches!(it, RouteAttribute::MultiPath(_));
    // The nexthop object went with the interface, and the kernel takes one or the other.
    if message.attributes.iter().any(is_explicit) {
        message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::NhId(_)));
    }
    if message.attributes.iter().any(is_only) {
        message.attributes.retain(|attribute| !is_only(attribute));
        message.attributes.push(RouteAttribute::Oif(index));
    }
    for attribute in &mut message.attributes {
        if let RouteAttribute::MultiPath(hops) = attribute {
            for hop in hops {
                hop.flags &= RouteNextHopFlags::Onlink | RouteNextHopFlags::Pervasive;
            }
        }
    }
    Ok(message)
}

fn parsed(text: &str) -> Result<RouteMessage, DecodeError> {
    let digits: Vec<u8> = text.bytes().collect();
    let bytes: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).ok())
        .collect();
    let bytes = bytes.filter(|bytes| bytes.len() >= ROUTE_HEADER);
    let bytes = bytes.ok_or_else(|| DecodeError::from("not a route message"))?;
    RouteMessage::parse(bytes.as_slice())
}

/// The properties that are given, in the order in which they are set.
pub(super) fn properties(
    mtu: Option<u32>,
    address: Option<&MacAddress>,
    sizes: SegmentSizes,
) -> impl Iterator<Item = LinkAttribute> {
    let attributes = [
        mtu.map(LinkAttribute::Mtu),
        address.map(|address| LinkAttribute::Address(address.bytes().to_vec())),
        sizes.gso.map(LinkAttribute::GsoMaxSize),
        sizes.gro.map(LinkAttribute::GroMaxSize),
        sizes.gso_ipv4.map(LinkAttribute::GsoIpv4MaxSize),
        sizes.gro_ipv4.map(LinkAttribute::GroIpv4MaxSize),
    ];
    attributes.into_iter().flatten()
}

/// Builds the message that moves an interface to another namespace with this name and index;
/// the kernel chooses an index that is `None`. A single message, so that the interface never has
/// a third name.
pub(super) fn to_namespace(
    index: u32,
    to: &NetNs,
    name: &str,
    new_index: Option<u32>,
) -> LinkMessage {
    let message = LinkUnspec::new_with_index(index).setns_by_fd(to.as_fd().as_raw_fd());
    let mut message = message.name(name).build();
    let new_index = new_index.and_then(|it| i32::try_from(it).ok());
    message.attributes.extend(new_index.map(LinkAttribute::NewIfIndex));
    message
}

/// Sets the attributes that differ. Equal ones are skipped, because some drivers accept a
/// hardware address only while the interface is down. Returns the result of each that was set.
pub(super) async fn set_attributes(
    handle: &Handle,
    name: &str,
    found: &LinkMessage,
    attributes: impl Iterator<Item = LinkAttribute>,
) -> Vec<Result<(), AttachError>> {
    let mut outcomes = Vec::new();
    let mut has_set_size = false;
    for attribute in attributes {
        if found.attributes.contains(&attribute) && !(has_set_size && is_ipv4_size(&attribute)) {
            continue;
        }
        has_set_size |= is_size(&attribute);
        let verb = format!("set {attribute:?}");
        let message = LinkUnspec::new_with_index(found.header.index);
        let message = message.append_extra_attribute(attribute).build();
        let set = handle.link().set(message).execute().await;
        outcomes.push(set.map_err(|source| AttachError::netlink(name, verb, source)));
    }
    outcomes
}

fn is_size(attribute: &LinkAttribute) -> bool {
    matches!(attribute, LinkAttribute::GsoMaxSize(_) | LinkAttribute::GroMaxSize(_))
}

/// Whether the attribute is a size for IPv4. The kernel changes it together with the
/// general size if that is small (`netif_set_gso_max_size`, `net/core/dev.c`), so a value
/// that was equal before may no longer be.
fn is_ipv4_size(attribute: &LinkAttribute) -> bool {
    matches!(attribute, LinkAttribute::GsoIpv4MaxSize(_) | LinkAttribute::GroIpv4MaxSize(_))
}

/// Adds a permanent neighbour, or replaces it.
pub(super) async fn add_neighbor(
    handle: &Handle,
    name: &str,
    index: u32,
    neighbor: &NeighborConfig,
) -> Result<(), AttachError> {
    let NeighborConfig { destination, hardware_addr } = neighbor;
    let wrap =
        |source| AttachError::netlink(name, format!("add neighbour `{destination}`"), source);
    handle
        .neighbours()
        .add(index, *destination)
        .link_layer_address(hardware_addr.bytes())
        .state(NeighbourState::Permanent)
        .replace()
        .execute()
        .await
        .map_err(wrap)
}

fn invalid(route: &HostRoute, error: &dyn fmt::Display) -> AttachError {
    let source = io::Error::other(error.to_string());
    AttachError::system(format!("build the route to `{}`", route.destination), source)
}
