//! Permanent neighbours of an interface. Follows `rtnetlink(7)`.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::model::host_link::HostLink;
use cluster_model::network_config::{MacAddress, NeighborConfig};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use rtnetlink::Handle;
use std::net::IpAddr;

/// The neighbours that an administrator has set.
pub(super) struct Neighbors;

impl Setting for Neighbors {
    fn name(&self) -> &'static str {
        "Permanent neighbours"
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        let neighbors = found.neighbors.iter();
        host.neighbors = neighbors.filter_map(|it| permanent(it, found.index())).collect();
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(async {
            let mut outcomes = Vec::new();
            for neighbor in &home.former().neighbors {
                let added = add_neighbor(home.handle, home.name(), home.index(), neighbor);
                outcomes.push(added.await);
            }
            outcomes
        })
    }
}

/// A permanent neighbour of this interface that was configured.
fn permanent(message: &NeighbourMessage, index: u32) -> Option<NeighborConfig> {
    let header = &message.header;
    if header.ifindex != index || header.state != NeighbourState::Permanent {
        return None;
    }
    let (mut destination, mut hardware_addr) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
                destination = Some(IpAddr::V4(*address));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
                destination = Some(IpAddr::V6(*address));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                hardware_addr = MacAddress::from_bytes(bytes);
            }
            _ => {}
        }
    }
    Some(NeighborConfig { destination: destination?, hardware_addr: hardware_addr? })
}

/// Adds a permanent neighbour, or replaces it.
pub(super) async fn add_neighbor(
    handle: &Handle,
    name: &str,
    index: u32,
    neighbor: &NeighborConfig,
) -> Result<(), AttachError> {
    let NeighborConfig { destination, hardware_addr } = neighbor;
    handle
        .neighbours()
        .add(index, *destination)
        .link_layer_address(hardware_addr.bytes())
        .state(NeighbourState::Permanent)
        .replace()
        .execute()
        .await
        .map_err(|source| {
            AttachError::netlink(name, format!("add neighbour `{destination}`"), source)
        })
}
