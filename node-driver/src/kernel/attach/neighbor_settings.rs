//! How the kernel asks for neighbours on an interface (`/proc/sys/net/ipv4/neigh`, and of IPv6). Follows
//! `rtnetlink(7)` and `net/core/neighbour.c`: one answer has the settings of all interfaces.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::kernel::dump::dump_each;
use crate::model::host_link::{HostLink, NeighborSettings};
use futures::StreamExt;
use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Nla,
};
use netlink_packet_route::neighbour_table::{
    NeighbourTableAttribute, NeighbourTableMessage, NeighbourTableParameter,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Error, Handle};
use std::collections::BTreeMap;

/// `NDTPA_IFINDEX`.
const INTERFACE: u16 = 1;

/// The settings that can be written, `NDTPA_…` (`include/uapi/linux/neighbour.h`): base reachable time,
/// retransmission time, time until it is stale, delay of the first probe, probes by the application, by
/// unicast and by multicast, delays of answers to anycast and as a proxy, queue of a proxy, lock time, bytes
/// of the queue, repeated probes, interval of probes.
const WRITABLE: [u16; 14] = [4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19];

/// The settings of an interface for both families.
pub(super) struct NeighborTables;

impl Setting for NeighborTables {
    fn name(&self) -> &'static str {
        "Neighbour settings"
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        host.neighbor_settings = settings(found.tables, found.index());
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(restore(home))
    }
}

async fn restore(home: &Home<'_>) -> Vec<Result<(), AttachError>> {
    let former = &home.former().neighbor_settings;
    if former.is_empty() {
        return Vec::new();
    }
    let now = match tables(home.handle).await {
        Ok(tables) => settings(&tables, home.index()),
        Err(error) => return vec![Err(error)],
    };
    let mut outcomes = Vec::new();
    for (table, values) in former {
        let now = now.get(table);
        let differ =
            values.iter().filter(|(kind, value)| now.and_then(|now| now.get(kind)) != Some(value));
        let differ: Vec<_> = differ.collect();
        if !differ.is_empty() {
            let written = write(home.handle, table, home.index(), &differ).await;
            outcomes.push(written.map_err(|source| {
                AttachError::netlink(home.name(), "set how it asks for neighbours", source)
            }));
        }
    }
    outcomes
}

/// All tables of a namespace, with the settings of its interfaces.
pub(super) async fn tables(handle: &Handle) -> Result<Vec<NeighbourTableMessage>, AttachError> {
    let request = RouteNetlinkMessage::GetNeighbourTable(NeighbourTableMessage::default());
    let found = dump_each(handle, request, |message| match message {
        RouteNetlinkMessage::NewNeighbourTable(table) => Some(table),
        _ => None,
    });
    let found = found.await;
    found.map_err(|source| AttachError::netlink("any", "read the tables of neighbours", source))
}

/// The settings of an interface, by the names of tables.
fn settings(tables: &[NeighbourTableMessage], index: u32) -> NeighborSettings {
    tables.iter().filter_map(|table| of_table(table, index)).collect()
}

fn of_table(table: &NeighbourTableMessage, index: u32) -> Option<(String, BTreeMap<u16, Vec<u8>>)> {
    let parameters = table.attributes.iter().find_map(|attribute| match attribute {
        NeighbourTableAttribute::Parms(parameters) => Some(parameters),
        _ => None,
    })?;
    let name = table.attributes.iter().find_map(|attribute| match attribute {
        NeighbourTableAttribute::Name(name) => Some(name.clone()),
        _ => None,
    })?;
    if !parameters.contains(&NeighbourTableParameter::Ifindex(index)) {
        return None;
    }
    let writable = parameters.iter().filter(|it| WRITABLE.contains(&it.kind()));
    Some((name, writable.map(|it| (it.kind(), value(it))).collect()))
}

fn value(parameter: &NeighbourTableParameter) -> Vec<u8> {
    let mut value = vec![0; parameter.value_len()];
    parameter.emit_value(&mut value);
    value
}

async fn write(
    handle: &Handle,
    table: &str,
    index: u32,
    values: &[(&u16, &Vec<u8>)],
) -> Result<(), Error> {
    let interface = DefaultNla::new(INTERFACE, index.to_ne_bytes().to_vec());
    let values = values.iter().map(|(kind, value)| DefaultNla::new(**kind, (*value).clone()));
    let parameters = [interface].into_iter().chain(values).map(NeighbourTableParameter::Other);
    let mut message = NeighbourTableMessage::default();
    message.header.family =
        if table == "arp_cache" { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.attributes = vec![
        NeighbourTableAttribute::Name(table.to_owned()),
        NeighbourTableAttribute::Parms(parameters.collect()),
    ];
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::SetNeighbourTable(message));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    let mut answer = handle.clone().request(request)?;
    while let Some(message) = answer.next().await {
        if let NetlinkPayload::Error(error) = message.payload
            && error.code.is_some()
        {
            return Err(Error::NetlinkError(error));
        }
    }
    Ok(())
}
