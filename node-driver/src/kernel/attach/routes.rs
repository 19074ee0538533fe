//! Routes of an interface. Follows `rtnetlink(7)`.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::multipath::{self, Current};
use crate::kernel::attach::route_message::parsed;
use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::kernel::network::nexthops::names_interface;
use crate::model::host_link::{HostLink, HostRoute, TABLE_MAIN};
use cluster_model::network_config::IpPrefix;
use netlink_packet_core::{DecodeError, Emitable};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteProtocol,
    RouteType, RouteVia,
};
use rtnetlink::{Handle, RouteMessageBuilder};
use std::fmt::{self, Write};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::slice;

/// `ESRCH`.
const NO_ROUTE: i32 = 3;
/// `RTPROT_DHCP`.
const PROTOCOL_DHCP: u8 = 16;

/// The routes that were configured. An interface that is down has none.
pub(super) struct Routes;

impl Setting for Routes {
    fn name(&self) -> &'static str {
        "Routes"
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        let (routes, index) = (&found.dump.routes, found.index());
        host.routes = routes.iter().filter_map(|it| host_route(it, index)).collect();
        host.router = routes.iter().find_map(|it| ipv6_router(it, index));
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(async {
            let mut outcomes = Vec::new();
            if !home.former().up {
                return outcomes;
            }
            for route in in_order(&home.former().routes) {
                outcomes.push(restore(home, route).await);
            }
            outcomes
        })
    }
}

/// Adds a route of the host again, with the next hops of other interfaces that are on the host.
async fn restore(home: &Home<'_>, route: &HostRoute) -> Result<(), AttachError> {
    let mut message = route_message(home.index(), route)?;
    let former = home.former().identity.index;
    multipath::set_index(&mut message, former, home.index());
    let current = Current::read(home.handle, slice::from_ref(route)).await?;
    current.limit(&mut message, home.index());
    replace(home.handle, home.name(), route, message).await
}

/// Direct routes first, because gateways of the others are reached by them. Routes of the
/// host's DHCP client are left out; they come back with its lease.
fn in_order(routes: &[HostRoute]) -> impl Iterator<Item = &HostRoute> {
    let kept = routes.iter().filter(|route| route.protocol != PROTOCOL_DHCP);
    let (direct, via): (Vec<_>, Vec<_>) = kept.partition(|route| route.is_direct());
    direct.into_iter().chain(via)
}

/// A route that was configured. The kernel's own routes come back with the addresses, and
/// those of a router with its next advertisement.
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
        onlink: header.flags.contains(RouteFlags::Onlink),
        message: hexadecimal(message),
    };
    let mut leads_here = false;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(found) => leads_here |= *found == index,
            RouteAttribute::MultiPath(hops) => {
                let hop = hops.iter().find(|hop| hop.interface_index == index);
                leads_here |= hop.is_some();
                route.onlink |=
                    hop.is_some_and(|hop| hop.flags.contains(RouteNextHopFlags::Onlink));
                let mut gateway = hop.into_iter().flat_map(|hop| &hop.attributes);
                route.gateway = gateway.find_map(gateway_in).or(route.gateway);
            }
            RouteAttribute::Destination(address) => {
                route.destination.address = ip(address).unwrap_or(unspecified);
            }
            RouteAttribute::PrefSource(address) => route.source = ip(address),
            RouteAttribute::Priority(priority) => route.priority = Some(*priority),
            RouteAttribute::Table(table) => route.table = *table,
            other => route.gateway = gateway_in(other).or(route.gateway),
        }
    }
    leads_here.then_some(route)
}

/// The gateway of an IPv6 default route in the main table through this interface.
fn ipv6_router(message: &RouteMessage, index: u32) -> Option<IpAddr> {
    let header = &message.header;
    let is_default = header.address_family == AddressFamily::Inet6
        && header.destination_prefix_length == 0
        && header.kind == RouteType::Unicast
        && u32::from(header.table) == TABLE_MAIN;
    let leads_here = message.attributes.contains(&RouteAttribute::Oif(index));
    message.attributes.iter().filter(|_| is_default && leads_here).find_map(gateway_in)
}

fn gateway_in(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some(IpAddr::V6(*address)),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some(IpAddr::V4(*address)),
        _ => None,
    }
}

/// The whole message in hexadecimal.
fn hexadecimal(message: &RouteMessage) -> Option<String> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    let mut text = String::with_capacity(2 * bytes.len());
    bytes.iter().try_for_each(|byte| write!(text, "{byte:02x}")).ok()?;
    Some(text)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

/// Adds a route, unless it is already there.
pub(super) async fn add_route(
    handle: &Handle,
    name: &str,
    index: u32,
    route: &HostRoute,
) -> Result<(), AttachError> {
    replace(handle, name, route, route_message(index, route)?).await
}

/// Adds a route of a pod that comes from this one of the host, with all that a configuration cannot say of a
/// route: TOS, metrics such as its MTU, encapsulation, preference.
pub(super) async fn add_inherited(
    handle: &Handle,
    name: &str,
    (index, on_host): (u32, u32),
    route: &HostRoute,
    former: &HostRoute,
) -> Result<(), AttachError> {
    let mut message = route_message(index, route)?;
    if let Some(recorded) = former.message.as_deref().and_then(|text| parsed(text).ok()) {
        message.header.tos = recorded.header.tos;
        message.header.source_prefix_length = recorded.header.source_prefix_length;
        let hop = recorded.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::MultiPath(hops) => {
                hops.iter().find(|hop| hop.interface_index == on_host)
            }
            _ => None,
        });
        let all = recorded.attributes.iter().chain(hop.into_iter().flat_map(|hop| &hop.attributes));
        message.attributes.extend(all.filter(|it| is_of_no_field(it)).cloned());
    }
    replace(handle, name, route, message).await
}

/// Whether a configuration has no field for an attribute that a route takes into a pod.
fn is_of_no_field(attribute: &RouteAttribute) -> bool {
    matches!(
        attribute,
        RouteAttribute::Metrics(_)
            | RouteAttribute::Source(_)
            | RouteAttribute::Preference(_)
            | RouteAttribute::EncapType(_)
            | RouteAttribute::Encap(_)
            | RouteAttribute::TtlPropagate(_)
            | RouteAttribute::Realm(_)
    )
}

async fn replace(
    handle: &Handle,
    name: &str,
    route: &HostRoute,
    message: RouteMessage,
) -> Result<(), AttachError> {
    handle.route().add(message).replace().execute().await.map_err(|source| {
        AttachError::netlink(name, format!("add route to `{}`", route.destination), source)
    })
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
    multipath::prepare(&mut message);
    // The nexthop object went with the interface, and the kernel takes one or the other.
    if message.attributes.iter().any(names_interface) {
        message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::NhId(_)));
    }
    if message.attributes.iter().any(is_interface) {
        message.attributes.retain(|attribute| !is_interface(attribute));
        message.attributes.push(RouteAttribute::Oif(index));
    }
    Ok(message)
}

fn is_interface(attribute: &RouteAttribute) -> bool {
    matches!(attribute, RouteAttribute::Oif(_))
}

fn invalid(route: &HostRoute, error: &dyn fmt::Display) -> AttachError {
    let source = io::Error::other(error.to_string());
    AttachError::system(format!("build the route to `{}`", route.destination), source)
}
