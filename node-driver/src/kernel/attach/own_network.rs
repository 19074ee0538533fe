//! The pod's own network, by which it reaches the cluster: the interfaces of its default routes.

use crate::kernel::attach::AttachError;
use crate::kernel::dump::dump_each;
use crate::model::host_link::TABLE_MAIN;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use rtnetlink::Handle;
use std::net::IpAddr;

/// The pod's addresses there. `nics` are the interfaces that are not its own network.
pub(super) async fn addresses(handle: &Handle, nics: &[u32]) -> Result<Vec<IpAddr>, AttachError> {
    let request = RouteNetlinkMessage::GetRoute(RouteMessage::default());
    let own = dump_each(handle, request, interface_of_default).await.map_err(not_read)?;
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let addresses = dump_each(handle, request, address).await.map_err(not_read)?;
    let mut of_own = addresses;
    of_own.retain(|(index, _)| own.contains(index) && !nics.contains(index));
    Ok(of_own.into_iter().map(|(_, address)| address).collect())
}

fn not_read(source: rtnetlink::Error) -> AttachError {
    AttachError::netlink("any", "read the pod's own network", source)
}

/// The interface of a default route in the main table.
fn interface_of_default(message: RouteNetlinkMessage) -> Option<u32> {
    let RouteNetlinkMessage::NewRoute(route) = message else { return None };
    let header = &route.header;
    let is_default = header.destination_prefix_length == 0
        && header.kind == RouteType::Unicast
        && u32::from(header.table) == TABLE_MAIN;
    route.attributes.iter().filter(|_| is_default).find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        RouteAttribute::MultiPath(hops) => hops.first().map(|hop| hop.interface_index),
        _ => None,
    })
}

/// An address and its interface.
fn address(message: RouteNetlinkMessage) -> Option<(u32, IpAddr)> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let any = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    let address =
        local.or(any).filter(|it| !matches!(it, IpAddr::V6(it) if it.is_unicast_link_local()));
    Some((message.header.index, address?))
}
