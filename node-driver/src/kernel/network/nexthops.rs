//! Nexthop objects (`ip nexthop`), by which routing daemons write routes. A route then names only the
//! object if the kernel's setting `nexthop_compat_mode` is 0
//! (`Documentation/networking/ip-sysctl.rst`), and its interface is in the object. Follows
//! `include/uapi/linux/nexthop.h`; no crate reads these messages.

use crate::kernel::netlink::{attributes, exchange, find, open};
use netlink_packet_core::NLM_F_DUMP;
use netlink_sys::protocols::NETLINK_ROUTE;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteVia,
};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `RTM_GETNEXTHOP`, and the length of `struct nhmsg`.
const GET: u16 = 106;
const HEADER: usize = 8;

/// `NHA_…`.
const NUMBER: u16 = 1;
const GROUP: u16 = 2;
const INTERFACE: u16 = 5;
const GATEWAY: u16 = 6;

/// Length of `struct nexthop_grp`, which begins with a number and a weight.
const MEMBER: usize = 8;

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Nexthop {
    interface: Option<u32>,
    gateway: Option<IpAddr>,
    /// Numbers and weights of the objects of a group.
    group: Vec<(u32, u8)>,
}

/// The objects of a namespace, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nexthops(BTreeMap<u32, Nexthop>);

/// Writes the interfaces and gateways of objects into the routes that name only the object. Must run on
/// a thread of the namespace.
pub(super) fn resolve(routes: &mut [RouteMessage]) -> io::Result<()> {
    if !routes.iter().any(|route| number_of(route).is_some()) {
        return Ok(());
    }
    let nexthops = Nexthops::read()?;
    for route in routes {
        nexthops.write_into(route);
    }
    Ok(())
}

/// The object of a route that has no interface of its own.
fn number_of(route: &RouteMessage) -> Option<u32> {
    if route.attributes.iter().any(names_interface) {
        return None;
    }
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::NhId(number) => Some(*number),
        _ => None,
    })
}

/// Whether it names an interface, or several.
pub(in crate::kernel) fn names_interface(attribute: &RouteAttribute) -> bool {
    matches!(attribute, RouteAttribute::Oif(_) | RouteAttribute::MultiPath(_))
}

impl Nexthops {
    fn read() -> io::Result<Self> {
        let socket = open(NETLINK_ROUTE)?;
        let replies = exchange(&socket, GET, NLM_F_DUMP, &[0; HEADER])?;
        Ok(Self(replies.iter().filter_map(|reply| nexthop(reply)).collect()))
    }

    fn write_into(&self, route: &mut RouteMessage) {
        let Some(nexthop) = number_of(route).and_then(|number| self.0.get(&number)) else { return };
        let family = route.header.address_family;
        if nexthop.group.is_empty() {
            route.attributes.extend(nexthop.interface.map(RouteAttribute::Oif));
            route.attributes.extend(nexthop.gateway.and_then(|it| gateway(it, family)));
            return;
        }
        let hops = nexthop.group.iter();
        let hops = hops.filter_map(|(number, weight)| self.hop(*number, *weight, family));
        route.attributes.push(RouteAttribute::MultiPath(hops.collect()));
    }

    /// A member of a group.
    fn hop(&self, number: u32, weight: u8, family: AddressFamily) -> Option<RouteNextHop> {
        let member = self.0.get(&number)?;
        let mut hop = RouteNextHop::default();
        hop.hops = weight;
        hop.interface_index = member.interface?;
        hop.attributes = member.gateway.and_then(|it| gateway(it, family)).into_iter().collect();
        Some(hop)
    }
}

/// The gateway of a route of a family.
fn gateway(address: IpAddr, family: AddressFamily) -> Option<RouteAttribute> {
    match (address, family) {
        (IpAddr::V4(address), AddressFamily::Inet) => {
            Some(RouteAttribute::Gateway(RouteAddress::Inet(address)))
        }
        (IpAddr::V6(address), AddressFamily::Inet6) => {
            Some(RouteAttribute::Gateway(RouteAddress::Inet6(address)))
        }
        (IpAddr::V6(address), AddressFamily::Inet) => {
            Some(RouteAttribute::Via(RouteVia::Inet6(address)))
        }
        _ => None,
    }
}

/// Number and content of an object.
fn nexthop(reply: &[u8]) -> Option<(u32, Nexthop)> {
    let payload = reply.get(HEADER..)?;
    let mut nexthop = Nexthop::default();
    for (kind, value) in attributes(payload) {
        match kind {
            INTERFACE => nexthop.interface = number(value),
            GATEWAY => nexthop.gateway = address(value),
            GROUP => nexthop.group = value.chunks_exact(MEMBER).filter_map(member).collect(),
            _ => {}
        }
    }
    Some((number(find(payload, NUMBER)?)?, nexthop))
}

fn member(entry: &[u8]) -> Option<(u32, u8)> {
    Some((number(entry.get(..4)?)?, *entry.get(4)?))
}

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(|bytes| Ipv4Addr::from(bytes).into());
    v4.or_else(|_| <[u8; 16]>::try_from(value).map(|bytes| Ipv6Addr::from(bytes).into())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::netlink::attribute;

    #[test]
    fn objects_and_groups_become_explicit_next_hops() {
        let object = |attributes: &[Vec<u8>]| [vec![0; HEADER], attributes.concat()].concat();
        let one = object(&[
            attribute(NUMBER, &7_u32.to_ne_bytes()),
            attribute(INTERFACE, &3_u32.to_ne_bytes()),
            attribute(GATEWAY, &[10, 0, 0, 2]),
        ]);
        let members = [7_u32.to_ne_bytes(), [2, 0, 0, 0]].concat();
        let group = object(&[attribute(NUMBER, &9_u32.to_ne_bytes()), attribute(GROUP, &members)]);
        let nexthops = Nexthops([&one, &group].into_iter().filter_map(|it| nexthop(it)).collect());
        assert_eq!(nexthops.0.len(), 2);
        let resolved = |number: u32| {
            let mut route = RouteMessage::default();
            route.header.address_family = AddressFamily::Inet;
            route.attributes.push(RouteAttribute::NhId(number));
            nexthops.write_into(&mut route);
            route.attributes.split_off(1)
        };
        let gateway = RouteAttribute::Gateway(RouteAddress::Inet(Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!(resolved(7), [RouteAttribute::Oif(3), gateway.clone()]);
        let [RouteAttribute::MultiPath(hops)] = &resolved(9)[..] else { panic!("a group") };
        assert_eq!((hops[0].interface_index, hops[0].hops), (3, 2));
        assert_eq!(hops[0].attributes, [gateway]);
        assert_eq!(resolved(8), [], "an object that is gone");
        for end in 0..group.len() {
            let _ = nexthop(&group[..end]);
        }
    }
}
