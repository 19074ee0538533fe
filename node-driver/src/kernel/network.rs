//! Reads a network namespace by rtnetlink: its interfaces, and what the host uses them for. Follows
//! `include/uapi/linux/{if_link,rtnetlink}.h`.
//!
//! Each read has its own socket and a time limit, so that a lost reply never blocks a later
//! read.

mod by_source;
pub(super) mod nexthops;

use crate::kernel::dump::{self, Requests, dump_each};
use crate::kernel::route_socket;
use futures::TryStreamExt;
use publication::network::{Cidr, DefaultRoute, Encapsulation, Interface, NetworkFacts};
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
    State,
};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType};
use rtnetlink::packet_route::rule::RuleMessage;
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Handle, RouteMessageBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::time::timeout;

/// `RT_TABLE_MAIN`.
const MAIN_TABLE: u32 = 254;

/// Longest wait for the route to one API server.
const ROUTE_PATIENCE: Duration = Duration::from_secs(2);

/// The interfaces could not be read.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The socket could not be opened.
    #[error("failed to open a netlink socket")]
    Open {
        /// Why.
        source: io::Error,
    },
    /// The kernel did not answer, or refused.
    #[error("failed to list {what}")]
    List {
        /// `interfaces`, `addresses`, `routes`, `routing rules`.
        what: &'static str,
        /// Why.
        source: Box<rtnetlink::Error>,
    },
    /// The same for the nexthop objects of routes.
    #[error("failed to list nexthops")]
    Nexthops {
        /// Why.
        source: io::Error,
    },
}

/// The kernel's answers about one network namespace.
#[derive(Debug)]
pub(crate) struct Dump {
    pub(crate) links: Vec<LinkMessage>,
    pub(crate) addresses: Vec<AddressMessage>,
    pub(crate) routes: Vec<RouteMessage>,
    pub(crate) rules: Vec<RuleMessage>,
    to_server: BTreeSet<u32>,
}

impl Dump {
    /// Requests everything about the thread's namespace, including the routes to these
    /// addresses of the API server.
    pub(crate) async fn read(servers: &BTreeSet<IpAddr>) -> Result<Self, NetworkError> {
        Self::request(&opened(Requests::open::<false>())?, servers).await
    }

    /// The same with default routes only, which is all that facts need.
    pub(crate) async fn read_defaults(servers: &BTreeSet<IpAddr>) -> Result<Self, NetworkError> {
        Self::request(&opened(Requests::open::<true>())?, servers).await
    }

    async fn request(
        requests: &Requests,
        servers: &BTreeSet<IpAddr>,
    ) -> Result<Self, NetworkError> {
        let handle = requests.handle();
        let links = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let links = dump_each(handle, links, link).await.map_err(not_listed("interfaces"))?;
        let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let addresses =
            dump_each(handle, addresses, address).await.map_err(not_listed("addresses"))?;
        let mut routes = Vec::new();
        for message in [
            RouteMessageBuilder::<Ipv4Addr>::new().build(),
            RouteMessageBuilder::<Ipv6Addr>::new().build(),
        ] {
            let of_family = dump_each(handle, RouteNetlinkMessage::GetRoute(message), route).await;
            routes.extend(of_family.map_err(not_listed("routes"))?);
        }
        // A kernel without these objects has no route that names one.
        nexthops::resolve(&mut routes).map_err(|source| NetworkError::Nexthops { source })?;
        let rules = dump::rules(handle).await.map_err(not_listed("routing rules"))?;
        let to_server = to_server(handle, servers).await;
        Ok(Self { links, addresses, routes, rules, to_server })
    }

    /// Of a kernel that a test plays.
    #[cfg(test)]
    pub(crate) fn of_links(links: Vec<LinkMessage>) -> Self {
        let (addresses, routes, rules) = (Vec::new(), Vec::new(), Vec::new());
        Self { links, addresses, routes, rules, to_server: BTreeSet::new() }
    }

    /// Converts the dump into facts.
    pub(crate) fn facts(&self) -> NetworkFacts {
        let Self { links, addresses, routes, rules, to_server } = self;
        NetworkFacts { to_server: to_server.clone(), ..facts(links, addresses, (routes, rules)) }
    }
}

fn opened(requests: io::Result<Requests>) -> Result<Requests, NetworkError> {
    requests.map_err(|source| NetworkError::Open { source })
}

fn not_listed(what: &'static str) -> impl FnOnce(rtnetlink::Error) -> NetworkError {
    move |error| NetworkError::List { what, source: Box::new(error) }
}

fn link(message: RouteNetlinkMessage) -> Option<LinkMessage> {
    if let RouteNetlinkMessage::NewLink(link) = message { Some(link) } else { None }
}

fn address(message: RouteNetlinkMessage) -> Option<AddressMessage> {
    if let RouteNetlinkMessage::NewAddress(address) = message { Some(address) } else { None }
}

fn route(message: RouteNetlinkMessage) -> Option<RouteMessage> {
    if let RouteNetlinkMessage::NewRoute(route) = message { Some(route) } else { None }
}

/// Interfaces through which the kernel would send to the API server now (`RTM_GETROUTE`
/// with an address). Unreachable addresses add none.
async fn to_server(handle: &Handle, servers: &BTreeSet<IpAddr>) -> BTreeSet<u32> {
    let mut interfaces = BTreeSet::new();
    for server in servers {
        let Some(question) = question(*server) else { continue };
        let answer = handle.route().get(question).execute().try_collect::<Vec<_>>();
        match timeout(ROUTE_PATIENCE, answer).await {
            Ok(Ok(routes)) => interfaces.extend(routes.iter().flat_map(interfaces_of)),
            Ok(Err(error)) => tracing::debug!(%server, %error, "No route to the API server"),
            Err(_) => tracing::warn!(%server, "No answer to the request for a route"),
        }
    }
    interfaces
}

/// What is parsed of messages that the kernel sent: texts of interfaces are UTF-8, and routes of a
/// list with a destination are left out.
pub fn received(bytes: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    route_socket::put_received::<true>(&mut bytes.to_vec(), &mut kept);
    kept
}

/// Parses a recorded stream of rtnetlink messages. Stops at the first malformed message;
/// skips messages without facts.
pub fn facts_in(bytes: &[u8]) -> NetworkFacts {
    let bytes = received(bytes);
    let mut bytes = bytes.as_slice();
    let (mut links, mut addresses) = (Vec::new(), Vec::new());
    let (mut routes, mut rules) = (Vec::new(), Vec::new());
    while let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) {
        let length = (message.header.length as usize).next_multiple_of(4);
        match message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => links.push(link),
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(address)) => {
                addresses.push(address);
            }
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
                routes.push(route);
            }
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRule(rule)) => rules.push(rule),
            _ => {}
        }
        bytes = bytes.get(length.max(1)..).unwrap_or_default();
    }
    facts(&links, &addresses, (&routes, &rules))
}

fn facts(
    links: &[LinkMessage],
    addresses: &[AddressMessage],
    (routes, rules): (&[RouteMessage], &[RuleMessage]),
) -> NetworkFacts {
    let mut interfaces: Vec<_> = links.iter().filter_map(interface).collect();
    let mut by_index = addresses_by_index(addresses);
    for interface in &mut interfaces {
        interface.addresses = by_index.remove(&interface.index).unwrap_or_default();
        interface.addresses.sort();
    }
    interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    let mut default_routes: Vec<_> =
        routes.iter().filter(|route| is_default(route)).flat_map(default_route).collect();
    default_routes.sort();
    let own = interfaces.iter().flat_map(|interface| &interface.addresses);
    let own: Vec<IpAddr> = own.map(|cidr| cidr.address).collect();
    let of_others = by_source::of_others(routes, rules, &own);
    NetworkFacts { interfaces, default_routes, of_others, ..NetworkFacts::default() }
}

fn addresses_by_index(messages: &[AddressMessage]) -> BTreeMap<u32, Vec<Cidr>> {
    let mut by_index: BTreeMap<u32, Vec<Cidr>> = BTreeMap::new();
    for message in messages {
        // For a point-to-point interface, `Address` is the other end.
        let local = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        let address = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        if let Some(address) = local.or(address) {
            let cidr = Cidr { address, prefix: message.header.prefix_len };
            by_index.entry(message.header.index).or_default().push(cidr);
        }
    }
    by_index
}

/// The interface of a message; `None` if it has no name.
fn interface(message: &LinkMessage) -> Option<Interface> {
    let encapsulation = match message.header.link_layer_type {
        LinkLayerType::Ether => Encapsulation::Ether,
        LinkLayerType::Infiniband => Encapsulation::InfiniBand,
        LinkLayerType::Loopback => Encapsulation::Loopback,
        _ => Encapsulation::Other,
    };
    let mut interface = Interface {
        index: message.header.index,
        encapsulation,
        is_up: Some(message.header.flags.contains(LinkFlags::Up)),
        ..Interface::default()
    };
    let (mut foreign_lower, mut underlay) = (false, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name.clone_from(name),
            LinkAttribute::Address(bytes) => interface.mac = hardware_address(bytes),
            LinkAttribute::Mtu(mtu) => interface.mtu = Some(*mtu),
            LinkAttribute::OperState(state) => {
                interface.state = oper_state(*state).map(str::to_owned);
            }
            LinkAttribute::IfAlias(alias) => interface.alias = Some(alias.clone()),
            LinkAttribute::Controller(index) => {
                interface.master = Some(*index).filter(|index| *index != 0);
            }
            LinkAttribute::Link(index) => {
                interface.lower = Some(*index).filter(|index| *index != 0);
            }
            LinkAttribute::ParentDevBusName(name) => interface.bus = Some(name.clone()),
            LinkAttribute::ParentDevName(name) => interface.parent = Some(name.clone()),
            LinkAttribute::PhysSwitchId(_) => interface.is_switch_port = true,
            LinkAttribute::LinkNetNsId(_) => foreign_lower = true,
            LinkAttribute::LinkInfo(infos) => {
                interface.kind = kind(infos);
                underlay = vxlan_link(infos);
            }
            _ => {}
        }
    }
    interface.lower = underlay.or(interface.lower);
    if foreign_lower || interface.lower == Some(interface.index) {
        interface.lower = None;
    }
    (!interface.name.is_empty()).then_some(interface)
}

/// The link kind as the kernel spells it, for example `veth`.
pub(crate) fn kind(infos: &[LinkInfo]) -> Option<String> {
    infos.iter().find_map(|info| match info {
        LinkInfo::Kind(InfoKind::Other(kind)) => Some(kind.clone()),
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    })
}

/// The interface below a VXLAN, which the kernel does not tell as that of others.
fn vxlan_link(infos: &[LinkInfo]) -> Option<u32> {
    let data = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vxlan(data)) => Some(data),
        _ => None,
    });
    data?.iter().find_map(|it| if let InfoVxlan::Link(index) = it { Some(*index) } else { None })
}

/// Operational states as `ip link` spells them; upstream publishes these.
fn oper_state(state: State) -> Option<&'static str> {
    match state {
        State::Unknown => Some("unknown"),
        State::NotPresent => Some("not-present"),
        State::Down => Some("down"),
        State::LowerLayerDown => Some("lower-layer-down"),
        State::Testing => Some("testing"),
        State::Dormant => Some("dormant"),
        State::Up => Some("up"),
        _ => None,
    }
}

fn hardware_address(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        let separator = if index == 0 { "" } else { ":" };
        write!(text, "{separator}{byte:02x}").ok()?;
    }
    (!text.is_empty()).then_some(text)
}

/// A request for the route to one address.
fn question(address: IpAddr) -> Option<RouteMessage> {
    let length = if address.is_ipv4() { 32 } else { 128 };
    let builder = RouteMessageBuilder::<IpAddr>::new();
    Some(builder.destination_prefix(address, length).ok()?.build())
}

/// The output interfaces of a route.
fn interfaces_of(route: &RouteMessage) -> Vec<u32> {
    let interfaces = route.attributes.iter().flat_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    });
    interfaces.collect()
}

/// Whether this is a default route of the main table.
fn is_default(route: &RouteMessage) -> bool {
    default_of(route) == Some(MAIN_TABLE)
}

/// The table of which this is a default route.
fn default_of(route: &RouteMessage) -> Option<u32> {
    let table = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    let is_default =
        route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast;
    is_default.then(|| table.unwrap_or_else(|| route.header.table.into()))
}

/// One entry for each output interface of the route.
fn default_route(route: &RouteMessage) -> Vec<DefaultRoute> {
    let ipv6 = route.header.address_family == AddressFamily::Inet6;
    let metric = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    let advertised = route.header.protocol == RouteProtocol::Ra;
    let metric = metric.unwrap_or(0);
    interfaces_of(route)
        .into_iter()
        .map(|interface| DefaultRoute { ipv6, metric, interface, advertised })
        .collect()
}
