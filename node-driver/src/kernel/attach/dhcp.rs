//! Gets an address by DHCP (RFC 2131) for an interface in a pod. The crate mozim
//! implements the protocol; this module applies the lease.
//!
//! The address has the lease's lifetime: if nobody renews it, the kernel removes it when
//! another host may get it. The driver renews it ([`keeper`]) and releases it. Routes of
//! option 121 (RFC 3442) are set. The default route stays that of the pod's own network,
//! except in a routing domain (VRF), which has none. Routes that would take traffic of that network are in a
//! table of the interface's own.

pub mod keeper;

use crate::kernel::attach::AttachError;
use crate::kernel::attach::addresses::add_address;
use crate::kernel::attach::identity::name_of;
use crate::kernel::attach::link::by_index;
use crate::kernel::attach::own_network;
use crate::kernel::attach::own_table::{self, take_over};
use crate::kernel::attach::routes::add_route;
use crate::kernel::attach::rules::add_rules;
use crate::model::host_link::{HostAddress, HostRoute, TABLE_MAIN};
use crate::model::plan::PlannedLink;
use cluster_model::network_config::{IpPrefix, LinkName, RuleConfig, VrfConfig};
use mozim::{DhcpError, DhcpV4Client, DhcpV4Config, DhcpV4Lease, DhcpV4State};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::{Handle, LinkUnspec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tokio::time::{Instant, interval, timeout_at};

/// Longest time for all interfaces of a claim together; below the hook's limit of 30 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Polling interval for the carrier.
const LOOK: Duration = Duration::from_millis(20);
/// Tables of leases are numbered from here, by the index of the interface: far from those that addresses of a
/// claim select.
const FIRST_TABLE: u32 = 1 << 30;
/// `RTPROT_DHCP`.
const PROTOCOL_DHCP: u8 = 16;

/// The leases of a claim's interfaces, by their names in the pod.
pub type Leases = BTreeMap<LinkName, Lease>;

/// A DHCP lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The address and its network.
    pub prefix: IpPrefix,
    /// The server that gave it.
    pub server: Ipv4Addr,
    /// Its lifetime, in seconds.
    pub seconds: u32,
    /// After how many seconds it is renewed at the same server (T1).
    pub renew: u32,
    /// After how many seconds it is renewed at any server (T2).
    pub rebind: u32,
    /// The network's MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Routes: destination and router.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<(IpPrefix, Ipv4Addr)>,
}

/// DHCP gave no address.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The link has no carrier.
    #[error(
        "interface `{link}` has no carrier after {} s, and `interface.dhcp` needs one; is its cable or switch port down?",
        PATIENCE.as_secs()
    )]
    NoCarrier {
        /// The interface.
        link: LinkName,
    },
    /// No server answered in time.
    #[error(
        "interface `{link}`: no DHCP server has given an address within {} s; set `interface.addresses`, or check the server",
        PATIENCE.as_secs()
    )]
    NoAnswer {
        /// The interface.
        link: LinkName,
    },
    /// The server gave an address that no interface can have.
    #[error(
        "interface `{link}`: the DHCP server {server} gave address `{address}`, which no interface can have in a network; correct the server, or set `interface.addresses`"
    )]
    Address {
        /// The interface.
        link: LinkName,
        /// The address.
        address: IpAddr,
        /// The server.
        server: Ipv4Addr,
    },
    /// The request failed.
    #[error("interface `{link}`: failed to ask for an address by DHCP")]
    Protocol {
        /// The interface.
        link: LinkName,
        /// The cause.
        source: DhcpError,
    },
}

impl Lease {
    /// Copies the used fields of a lease.
    fn new(lease: &DhcpV4Lease) -> Self {
        let mask = lease.subnet_mask.to_bits();
        // Without a mask no other host on the link is known.
        let length = if mask == 0 { 32 } else { mask.leading_ones() };
        Self {
            prefix: prefix(lease.yiaddr, length),
            server: lease.srv_id,
            seconds: lease.lease_time_sec,
            renew: lease.t1_sec,
            rebind: lease.t2_sec,
            mtu: lease.mtu,
            routes: routes(lease),
        }
    }

    /// Refuses an address that no interface can have in a network.
    fn checked(self, link: &LinkName) -> Result<Self, LeaseError> {
        if self.prefix.is_of_a_host() {
            return Ok(self);
        }
        let (link, Self { prefix, server, .. }) = (link.clone(), self);
        Err(LeaseError::Address { link, address: prefix.address, server })
    }

    /// Converts the lease for a client that takes it over.
    fn known(&self) -> DhcpV4Lease {
        let mut lease = DhcpV4Lease::default();
        if let IpAddr::V4(address) = self.prefix.address {
            lease.yiaddr = address;
        }
        lease.srv_id = self.server;
        lease.lease_time_sec = self.seconds;
        (lease.t1_sec, lease.t2_sec) = (self.renew, self.rebind);
        lease
    }

    fn address(&self) -> HostAddress {
        HostAddress { seconds: Some(self.seconds), ..HostAddress::new(self.prefix) }
    }
}

fn prefix(address: Ipv4Addr, length: u32) -> IpPrefix {
    IpPrefix { address: IpAddr::V4(address), prefix_len: u8::try_from(length).unwrap_or(32) }
}

/// The routes of a lease. Option 121 overrides option 3 (RFC 3442).
fn routes(lease: &DhcpV4Lease) -> Vec<(IpPrefix, Ipv4Addr)> {
    lease.classless_routes.as_ref().map_or_else(
        || {
            let gateway = lease.gateways.as_ref().and_then(|gateways| gateways.first());
            gateway
                .map(|gateway| (prefix(Ipv4Addr::UNSPECIFIED, 0), *gateway))
                .into_iter()
                .collect()
        },
        |routes| {
            routes
                .iter()
                .map(|route| (prefix(route.destination, route.prefix_length.into()), route.router))
                .collect()
        },
    )
}

/// Requests an address and applies the lease.
pub(super) async fn lease(
    handle: &Handle,
    link: &PlannedLink,
    index: u32,
    deadline: Instant,
) -> Result<Lease, AttachError> {
    let name = &link.name;
    let found = timeout_at(deadline, with_carrier(handle, name, index))
        .await
        .map_err(|_| LeaseError::NoCarrier { link: name.clone() })??;
    let given = timeout_at(deadline, ask(&found))
        .await
        .map_err(|_| LeaseError::NoAnswer { link: name.clone() })?
        .map_err(|source| LeaseError::Protocol { link: name.clone(), source })?;
    let lease = Lease::new(&given).checked(name)?;
    set(handle, link, index, &lease).await?;
    Ok(lease)
}

/// Waits until the interface has a carrier.
async fn with_carrier(
    handle: &Handle,
    name: &LinkName,
    index: u32,
) -> Result<LinkMessage, AttachError> {
    let mut look = interval(LOOK);
    loop {
        look.tick().await;
        let found = by_index(handle, index).await?;
        let found = found.ok_or_else(|| AttachError::Gone { link: name.to_string() })?;
        if found.header.flags.contains(LinkFlags::LowerUp) {
            return Ok(found);
        }
    }
}

fn config(found: &LinkMessage) -> Result<DhcpV4Config, DhcpError> {
    let address = found.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(bytes) => Some(bytes.as_slice()),
        _ => None,
    });
    let mut config = DhcpV4Config::new(name_of(found));
    config.set_iface_index(found.header.index);
    config.set_iface_mac_raw(address.unwrap_or_default())?.use_mac_as_client_id();
    Ok(config)
}

async fn ask(found: &LinkMessage) -> Result<DhcpV4Lease, DhcpError> {
    let mut client = DhcpV4Client::init(config(found)?, None).await?;
    loop {
        if let DhcpV4State::Done(lease) = client.run().await? {
            return Ok(*lease);
        }
    }
}

/// Sets address, MTU and routes of a lease; the configuration takes precedence.
async fn set(
    handle: &Handle,
    link: &PlannedLink,
    index: u32,
    lease: &Lease,
) -> Result<(), AttachError> {
    let name = link.name.as_str();
    if let Some(mtu) = lease.mtu.filter(|_| link.config.interface.mtu.is_none()) {
        let message = LinkUnspec::new_with_index(index).mtu(mtu.into()).build();
        handle.link().set(message).execute().await.map_err(|source| {
            AttachError::netlink(name, format!("set the DHCP server's MTU {mtu}"), source)
        })?;
    }
    add_address(handle, name, index, &lease.address()).await?;
    let given = Given::read(handle, link, index, lease).await?;
    for route in &given.routes {
        add_route(handle, name, index, route).await?;
    }
    add_rules(handle, name, &given.rules).await
}

/// The routes of a lease that the pod gets, and the rule that selects their table.
struct Given {
    routes: Vec<HostRoute>,
    rules: Vec<RuleConfig>,
}

impl Given {
    /// Reads what the pod reaches by its own network.
    async fn read(
        handle: &Handle,
        link: &PlannedLink,
        index: u32,
        lease: &Lease,
    ) -> Result<Self, AttachError> {
        let mut kept = own_network::addresses(handle, &[index]).await?;
        kept.extend(&link.host.servers);
        Ok(Self::new(link, index, lease, &kept))
    }

    /// The server's default route stays away, as do routes that the claim sets. If the others together
    /// would take traffic of the pod's own network, they are in a table that only the lease's address
    /// selects.
    fn new(link: &PlannedLink, index: u32, lease: &Lease, kept: &[IpAddr]) -> Self {
        let domain = link.config.interface.vrf.as_ref().map(VrfConfig::table_id);
        let routes = lease.routes.iter().filter(|(destination, _)| {
            let is_default = destination.prefix_len == 0;
            let is_asked = link.config.routes.iter().any(|route| route.destination == *destination);
            !is_asked && (domain.is_some() || !is_default)
        });
        let is_aside = domain.is_none()
            && take_over(routes.clone().map(|(destination, _)| *destination), kept);
        let own = is_aside.then(|| FIRST_TABLE.saturating_add(index));
        let table = domain.or(own).unwrap_or(TABLE_MAIN);
        let direct = own.map(|table| own_table::direct(lease.prefix, table));
        let direct = direct.map(|route| HostRoute {
            source: route.source,
            table,
            scope: route.scope,
            protocol: PROTOCOL_DHCP,
            ..HostRoute::to(route.destination)
        });
        let routes = routes.map(|(destination, router)| route(*destination, *router, table));
        Self {
            routes: direct.into_iter().chain(routes).collect(),
            rules: own.map(|table| own_table::rule(lease.prefix, table)).into_iter().collect(),
        }
    }
}

/// Converts a route. A router of 0.0.0.0 means that the destination is on the link (RFC
/// 3442).
fn route(destination: IpPrefix, router: Ipv4Addr, table: u32) -> HostRoute {
    let is_direct = router.is_unspecified();
    HostRoute {
        gateway: (!is_direct).then_some(IpAddr::V4(router)),
        table,
        scope: if is_direct { 253 } else { 0 },
        protocol: PROTOCOL_DHCP,
        ..HostRoute::to(destination)
    }
}

#[cfg(test)]
mod tests;
