//! The host's interfaces, whole: what a pod's plan begins with, and what the host has
//! again afterwards. Follows `rtnetlink(7)`.

use crate::attach::AttachError;
use crate::attach::link::{by_name, name_of};
use crate::attach::netns::NetNs;
use crate::prepare::host_link::{HostAddress, HostLink, HostRoute, SegmentSizes};
use cluster_model::network_config::{IpPrefix, MacAddress};
use futures::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteType,
};
use rtnetlink::{Handle, RouteMessageBuilder};
use std::collections::BTreeMap;
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
        let (addresses, routes) = (addresses(&handle).await?, routes(&handle).await?);
        let mut links = BTreeMap::new();
        for name in names {
            if let Some(link) = by_name(&handle, &name).await? {
                links.insert(name, host_link(&link, &addresses, &routes));
            }
        }
        Ok(links)
    })
}

fn host_link(
    link: &LinkMessage,
    addresses: &[AddressMessage],
    routes: &[RouteMessage],
) -> HostLink {
    let index = link.header.index;
    let mut host = HostLink {
        name: name_of(link).to_owned(),
        parent: None,
        hardware_addr: None,
        mtu: 0,
        up: link.header.flags.contains(LinkFlags::Up),
        sizes: SegmentSizes::default(),
        addresses: addresses.iter().filter_map(|address| host_address(address, index)).collect(),
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
    host
}

async fn addresses(handle: &Handle) -> Result<Vec<AddressMessage>, AttachError> {
    let wrap = |source| AttachError::netlink("any", "read the addresses", source);
    handle.address().get().execute().try_collect().await.map_err(wrap)
}

/// An address of this interface that somebody gave it for good.
fn host_address(message: &AddressMessage, index: u32) -> Option<HostAddress> {
    if message.header.index != index {
        return None;
    }
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
