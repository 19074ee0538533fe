//! Routes with several next hops. When an interface of one leaves, the kernel deletes such a route of IPv4
//! whole (`fib_sync_down_dev` in `net/ipv4/fib_semantics.c`), and other traffic loses its way.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::route_message::{is_attribute_of_request, parsed};
use crate::kernel::dump::dump_each;
use crate::model::host_link::{HostLink, HostRoute};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteNextHop, RouteNextHopFlags,
};
use rtnetlink::Handle;
use std::collections::BTreeMap;

/// The current routes of a namespace that have these next hops.
#[derive(Debug, Default)]
pub(super) struct Current(Vec<RouteMessage>);

impl Current {
    /// Reads them if one of the recorded routes has several next hops.
    pub(super) async fn read(handle: &Handle, recorded: &[HostRoute]) -> Result<Self, AttachError> {
        if !recorded.iter().any(has_several) {
            return Ok(Self::default());
        }
        let request = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let found = dump_each(handle, request, |message| match message {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        });
        let found = found.await;
        found.map(Self).map_err(|source| AttachError::netlink("any", "read the routes", source))
    }

    /// Leaves the next hops in a route that lead through the interface `own`, or that the route has now:
    /// the others are in pods, and come back with their interfaces.
    pub(super) fn limit(&self, message: &mut RouteMessage, own: u32) {
        let now = self.0.iter().filter(|route| key(route) == key(message));
        let now: Vec<u32> = now.flat_map(interfaces).collect();
        if let Some(hops) = hops_mut(message) {
            hops.retain(|hop| hop.interface_index == own || now.contains(&hop.interface_index));
        }
    }
}

/// Takes an interface that is about to leave out of the routes that have other next hops too.
pub(super) async fn spare_others(
    handle: &Handle,
    link: &HostLink,
    index: u32,
) -> Result<(), AttachError> {
    let Current(routes) = Current::read(handle, &link.routes).await?;
    for mut route in routes {
        // The kernel itself keeps the others of a group of nexthop objects, and of IPv6.
        let is_explicit = !route.attributes.iter().any(|it| matches!(it, RouteAttribute::NhId(_)));
        let Some(hops) = hops_mut(&mut route).filter(|_| is_explicit) else { continue };
        let before = hops.len();
        hops.retain(|hop| hop.interface_index != index);
        if hops.is_empty() || hops.len() == before {
            continue;
        }
        prepare(&mut route);
        let replaced = handle.route().add(route).replace().execute().await;
        replaced.map_err(|source| {
            AttachError::netlink(&link.name, "keep the other next hops of its routes", source)
        })?;
    }
    Ok(())
}

/// Completes the routes of an interface by those of interfaces that are in pods: while these are there, the
/// host's routes lack their next hops.
pub fn complete(link: &mut HostLink, others: &[&HostLink]) {
    let own = link.identity.index;
    for route in &mut link.routes {
        let Some(now) = message_of(route) else { continue };
        let wider = others.iter().flat_map(|other| &other.routes).find(|it| {
            message_of(it).is_some_and(|wide| {
                let hops: Vec<u32> = interfaces(&wide).collect();
                key(&wide) == key(&now)
                    && hops.contains(&own)
                    && hops.len() > interfaces(&now).count()
            })
        });
        if let Some(wider) = wider {
            route.message.clone_from(&wider.message);
        }
    }
}

/// Makes a message of the kernel a request.
pub(super) fn prepare(message: &mut RouteMessage) {
    // The other flags are state from when the route was read.
    message.header.flags &= RouteFlags::Onlink | RouteFlags::Pervasive;
    message.attributes.retain(is_attribute_of_request);
    for hop in hops_mut(message).into_iter().flatten() {
        hop.flags &= RouteNextHopFlags::Onlink | RouteNextHopFlags::Pervasive;
    }
}

/// Gives the next hop through an interface its index of now.
pub(super) fn set_index(message: &mut RouteMessage, was: u32, is: u32) {
    for hop in hops_mut(message).into_iter().flatten() {
        if hop.interface_index == was {
            hop.interface_index = is;
        }
    }
}

fn has_several(route: &HostRoute) -> bool {
    message_of(route).is_some_and(|message| interfaces(&message).count() > 1)
}

fn message_of(route: &HostRoute) -> Option<RouteMessage> {
    parsed(route.message.as_deref()?).ok()
}

fn hops_mut(message: &mut RouteMessage) -> Option<&mut Vec<RouteNextHop>> {
    message.attributes.iter_mut().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    })
}

/// The interfaces of its next hops.
fn interfaces(message: &RouteMessage) -> impl Iterator<Item = u32> {
    message.attributes.iter().flat_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    })
}

/// What makes it another route than others: family, destination, TOS, table and priority.
fn key(message: &RouteMessage) -> (u8, u8, u8, BTreeMap<&'static str, String>) {
    let header = &message.header;
    let attributes = message.attributes.iter().filter_map(|attribute| match attribute {
        RouteAttribute::Destination(to) => Some(("to", format!("{to:?}"))),
        RouteAttribute::Priority(priority) => Some(("priority", priority.to_string())),
        RouteAttribute::Table(table) => Some(("table", table.to_string())),
        _ => None,
    });
    let length = header.destination_prefix_length;
    (header.address_family.into(), length, header.tos, attributes.collect())
}
