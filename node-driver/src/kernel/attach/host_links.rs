//! Reads the host's interfaces completely: the input of a pod's plan, and the state to
//! restore on the host later. Follows `rtnetlink(7)`.

use crate::facts::network::dump::{self, dump};
use crate::facts::network::kernel::Dump;
use crate::kernel::attach::ethtool::tuning;
use crate::kernel::attach::identity::{at_home, has_foreign_parent, identity, name_of};
use crate::kernel::attach::link::all;
use crate::kernel::attach::napi::Reader;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::{AttachError, carried, settings};
use crate::model::host_link::{
    HostAddress, HostLink, HostRoute, HostRule, SegmentSizes, TABLE_MAIN,
};
use cluster_model::network_config::{IpPrefix, MacAddress, NeighborConfig};
use netlink_packet_core::Emitable;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteProtocol,
    RouteType, RouteVia,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::tc::{TcAttribute, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use publication::network::{NetworkFacts, is_upper};
use rtnetlink::Handle;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `IFA_F_NODAD`, `IFA_F_HOMEADDRESS`, `IFA_F_NOPREFIXROUTE`, `IFA_F_MCAUTOJOIN`: flags
/// that an administrator sets; the others are kernel state.
const SETTABLE_ADDRESS_FLAGS: u32 = 0x02 | 0x10 | 0x200 | 0x400;
/// `IFA_F_TEMPORARY`: a privacy address, which the kernel replaces over time.
const TEMPORARY: u32 = 0x01;
/// `IFA_F_PERMANENT`.
const PERMANENT: u32 = 0x80;
/// `IFAPROT_KERNEL_LO`, `IFAPROT_KERNEL_RA`, `IFAPROT_KERNEL_LL`.
const KERNEL_ADDRESS_PROTOCOLS: [u8; 3] = [1, 2, 3];
/// `RT_SCOPE_LINK`; for an IPv6 address, `fe80::/10`.
const SCOPE_LINK: u8 = 253;
/// `RT_TABLE_DEFAULT`, `RT_TABLE_MAIN`, `RT_TABLE_LOCAL`: the tables of the kernel's own
/// rules.
const KERNEL_TABLES: [u32; 3] = [253, 254, 255];

/// The kernel's view of the host's namespace at one moment.
#[derive(Debug)]
pub struct HostNetwork {
    dump: Dump,
    rules: Vec<HostRule>,
    neighbors: Vec<NeighbourMessage>,
    disciplines: Vec<TcMessage>,
}

impl HostNetwork {
    /// Reads the host's namespace. `servers` are the API servers, whose route must stay
    /// with the host.
    pub fn read(host: &NetNs, servers: &BTreeSet<IpAddr>) -> Result<Self, AttachError> {
        host.run(async move |handle| {
            let dump = Dump::read(servers).await?;
            let rules = dump.rules.iter().filter_map(host_rule).filter(is_set_for_some).collect();
            let neighbors = neighbors(&handle).await?;
            let disciplines = disciplines(&handle).await?;
            Ok(Self { dump, rules, neighbors, disciplines })
        })
    }

    /// The facts that are published.
    pub fn facts(&self) -> NetworkFacts {
        self.dump.facts()
    }

    /// The interfaces of these names, in the state to restore.
    pub fn links(
        &self,
        host: &NetNs,
        names: &[String],
    ) -> Result<BTreeMap<String, HostLink>, AttachError> {
        host.run(async move |_| {
            let (polling, tuning) = (Reader::open(), tuning::Reader::open());
            let links = self
                .dump
                .links
                .iter()
                .filter(|link| names.iter().any(|name| name == name_of(link)))
                .map(|link| {
                    let mut host = host_link(link, self);
                    host.napi = polling.read(&host.name, link.header.index);
                    host.tuning = tuning.read(&host.name);
                    (host.name.clone(), host)
                });
            Ok(links.collect())
        })
    }
}

/// Whether the host's namespace has each of these interfaces, under whatever name.
pub fn are_home(host: &NetNs, links: &[&HostLink]) -> Result<Vec<bool>, AttachError> {
    host.run(async |handle| {
        let found = all(&handle).await?;
        Ok(links.iter().map(|link| at_home(&found, link).is_some()).collect())
    })
}

/// Reads one interface. Must run on a thread in the host's namespace.
fn host_link(link: &LinkMessage, network: &HostNetwork) -> HostLink {
    let HostNetwork { dump, rules, neighbors, disciplines } = network;
    let index = link.header.index;
    let routes: Vec<_> = dump.routes.iter().filter_map(|route| host_route(route, index)).collect();
    let mut host = HostLink {
        name: name_of(link).to_owned(),
        parent: None,
        lower: lower(link, &dump.links).map(|lower| name_of(lower).to_owned()),
        hardware_addr: None,
        mtu: 0,
        up: link.header.flags.contains(LinkFlags::Up),
        sizes: SegmentSizes::default(),
        addresses: dump.addresses.iter().filter_map(|it| host_address(it, index)).collect(),
        rules: rules
            .iter()
            .filter(|rule| routes.iter().any(|route| route.table == rule.table))
            .cloned()
            .collect(),
        routes,
        neighbors: neighbors.iter().filter_map(|it| permanent(it, index)).collect(),
        identity: Some(identity(link)),
        settings: settings::read(link),
        router: dump.routes.iter().find_map(|route| ipv6_router(route, index)),
        ethtool: None,
        carried: Some(carried::read(link)),
        napi: None,
        tuning: None,
        disciplines: disciplines.iter().filter_map(|it| configured(it, index)).collect(),
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

/// The interface below it in its namespace, without which it reaches nothing.
fn lower<'l>(link: &LinkMessage, all: &'l [LinkMessage]) -> Option<&'l LinkMessage> {
    identity(link).kind.filter(|kind| is_upper(kind))?;
    let index = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Link(index) if !has_foreign_parent(link) => Some(*index),
        _ => None,
    })?;
    all.iter().find(|lower| lower.header.index == index && index != link.header.index)
}

/// An address of this interface that was configured, permanently or with a lifetime.
fn host_address(message: &AddressMessage, index: u32) -> Option<HostAddress> {
    if message.header.index != index {
        return None;
    }
    let (mut address, mut local, mut broadcast, mut label) = (None, None, None, None);
    let mut flags = u32::from(message.header.flags.bits());
    let (mut by_kernel, mut lifetime) = (false, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Broadcast(ip) => broadcast = Some(*ip),
            AddressAttribute::Label(text) => label = Some(text.clone()),
            AddressAttribute::Flags(all) => flags = all.bits(),
            AddressAttribute::CacheInfo(cache) => lifetime = Some(cache.ifa_valid),
            AddressAttribute::Protocol(protocol) => {
                by_kernel = KERNEL_ADDRESS_PROTOCOLS.contains(&u8::from(*protocol));
            }
            _ => {}
        }
    }
    let own = local.or(address)?;
    let scope = u8::from(message.header.scope);
    let link_local_v6 = own.is_ipv6() && scope == SCOPE_LINK;
    if by_kernel || link_local_v6 || flags & TEMPORARY != 0 && own.is_ipv6() {
        return None;
    }
    Some(HostAddress {
        prefix: IpPrefix { address: own, prefix_len: message.header.prefix_len },
        scope,
        peer: address.filter(|address| *address != own),
        broadcast,
        label,
        flags: flags & SETTABLE_ADDRESS_FLAGS,
        seconds: (flags & PERMANENT == 0).then(|| lifetime.unwrap_or_default()),
    })
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

/// Rules of the thread's namespace that a pod's configuration can express.
pub(super) async fn rules(handle: &Handle) -> Result<Vec<HostRule>, AttachError> {
    let found = dump::rules(handle).await;
    let found =
        found.map_err(|source| AttachError::netlink("any", "read the routing rules", source))?;
    Ok(found.iter().filter_map(host_rule).collect())
}

fn host_rule(message: &RuleMessage) -> Option<HostRule> {
    let header = &message.header;
    if header.action != RuleAction::ToTable || header.tos != 0 {
        return None;
    }
    let mut rule =
        HostRule { priority: 0, source: None, destination: None, table: header.table.into() };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(table) => rule.table = *table,
            RuleAttribute::Source(address) => {
                rule.source = Some(IpPrefix { address: *address, prefix_len: header.src_len });
            }
            RuleAttribute::Destination(address) => {
                rule.destination = Some(IpPrefix { address: *address, prefix_len: header.dst_len });
            }
            // Rules that match interfaces, marks or ports cannot be expressed; without
            // the match they would apply elsewhere.
            RuleAttribute::Iifname(_)
            | RuleAttribute::Oifname(_)
            | RuleAttribute::FwMark(_)
            | RuleAttribute::IpProtocol(_)
            | RuleAttribute::SourcePortRange(_)
            | RuleAttribute::DestinationPortRange(_)
            | RuleAttribute::TunId(_)
            | RuleAttribute::UidRange(_) => return None,
            _ => {}
        }
    }
    Some(rule)
}

/// Whether the rule was configured and matches only some packets.
fn is_set_for_some(rule: &HostRule) -> bool {
    let is_for_some = rule.source.is_some() || rule.destination.is_some();
    is_for_some && !KERNEL_TABLES.contains(&rule.table)
}

async fn neighbors(handle: &Handle) -> Result<Vec<NeighbourMessage>, AttachError> {
    let request = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
    let found = dump(handle, request)
        .await
        .map_err(|source| AttachError::netlink("any", "read the neighbours", source))?
        .into_iter();
    Ok(found
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewNeighbour(neighbor) => Some(neighbor),
            _ => None,
        })
        .collect())
}

async fn disciplines(handle: &Handle) -> Result<Vec<TcMessage>, AttachError> {
    let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let found = dump(handle, request)
        .await
        .map_err(|source| AttachError::netlink("any", "read the queueing disciplines", source))?
        .into_iter();
    Ok(found
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewQueueDiscipline(discipline) => Some(discipline),
            _ => None,
        })
        .collect())
}

/// The kind of a queueing discipline of this interface that was configured. Those that the kernel
/// adds by itself have no number (`qdisc_create_dflt` in `net/sched/sch_generic.c`).
fn configured(message: &TcMessage, index: u32) -> Option<String> {
    if message.header.index != index.cast_signed() || message.header.handle.major == 0 {
        return None;
    }
    message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.clone()),
        _ => None,
    })
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
