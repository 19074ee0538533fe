//! Configures an interface in a pod: properties, addresses, routes and the rest, in the
//! order that the kernel requires. Every step first checks whether it is already done,
//! because a hook may have been killed in the middle.

use crate::kernel::attach::addresses::{add_address, has_lease};
use crate::kernel::attach::dhcp::{Lease, Leases};
use crate::kernel::attach::identity::{in_pod, name_of};
use crate::kernel::attach::known::{BeforeAttach, Indices};
use crate::kernel::attach::link::{by_index, by_name, inside, properties, set_attributes};
use crate::kernel::attach::neighbors::add_neighbor;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::routes::{add_inherited, add_route};
use crate::kernel::attach::rules::add_rules;
use crate::kernel::attach::same_network::{self, Apart};
use crate::kernel::attach::{
    AttachError, dhcp, ebpf, ethtool, ip_settings, own_network, shaping, sysctl,
};
use crate::model::host_link::{HostAddress, HostRoute, SegmentSizes, TABLE_MAIN};
use crate::model::plan::{Plan, PlannedLink};
use cluster_model::network_config::{IpPrefix, LinkName, NetworkConfig, RouteConfig, VrfConfig};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use rtnetlink::{Handle, LinkUnspec, LinkVrf};
use std::collections::BTreeSet;
use std::path::Path;
use tokio::time::Instant;

/// `IFA_F_NODAD`: use the address at once. The claim guarantees that no other device has
/// it.
const NO_DAD: u32 = 0x02;
/// `RT_SCOPE_LINK`.
const SCOPE_LINK: u8 = 253;

/// Inputs for DHCP.
#[derive(Clone, Copy)]
struct Asked<'a> {
    /// The leases from earlier runs.
    known: &'a Leases,
    /// Until when servers may answer.
    deadline: Instant,
    /// Directory with the kernel's network settings, writable.
    sysctl: &'a Path,
}

/// Configures those of the claim's interfaces, which are already in the pod, that are `due`. What a pod has
/// changed on the others is left alone.
///
/// Returns the leases that DHCP servers have given now; `known` has those given before.
/// `links` identifies the interfaces in the pod: one that the pod has renamed keeps its
/// name.
pub(super) fn configure(
    plan: &Plan,
    BeforeAttach { leases: known, links, sysctl, .. }: BeforeAttach<'_>,
    due: &BTreeSet<&LinkName>,
    pod: &NetNs,
) -> Result<Leases, AttachError> {
    if due.is_empty() {
        return Ok(Leases::new());
    }
    let asked = Asked { known, deadline: Instant::now() + dhcp::PATIENCE, sysctl };
    pod.run(async |handle| {
        let inside = inside(&handle).await?;
        let own: Vec<u32> = links.values().copied().collect();
        let kept = own_network::addresses(&handle, &own).await?;
        let mut leases = Leases::new();
        let before = same_network::apart(plan, known, &kept);
        for (link, apart) in plan.links().zip(&before).filter(|(link, _)| due.contains(&link.name))
        {
            let found = find(&handle, &inside, link, links).await?;
            let found = found.ok_or_else(|| AttachError::Gone { link: link.name.to_string() })?;
            let lease = configure_link(&handle, link, apart, &found, asked).await?;
            leases.extend(lease.map(|lease| (link.name.clone(), lease)));
        }
        if !leases.is_empty() {
            let all = known.clone().into_iter().chain(leases.clone()).collect();
            let now = same_network::apart(plan, &all, &kept);
            separate_leased(&handle, plan, [&before, &now], (links, sysctl)).await?;
        }
        Ok(leases)
    })
}

/// Separates interfaces whose network another one has by a lease that was given now.
async fn separate_leased(
    handle: &Handle,
    plan: &Plan,
    [before, now]: [&[Apart]; 2],
    (links, sysctl): (&Indices, &Path),
) -> Result<(), AttachError> {
    let inside = inside(handle).await?;
    for (link, (before, now)) in plan.links().zip(before.iter().zip(now)) {
        if before == now {
            continue;
        }
        let Some(found) = find(handle, &inside, link, links).await? else { continue };
        let (name, NetworkConfig { routes, rules, .. }) = (name_of(&found), &now.config);
        ip_settings::set(handle, name, &found, &now.settings, sysctl).await?;
        add_routes(handle, link, found.header.index, routes).await?;
        add_rules(handle, name, rules).await?;
    }
    Ok(())
}

/// Finds an interface in the pod, with all of its properties.
async fn find(
    handle: &Handle,
    inside: &[LinkMessage],
    link: &PlannedLink,
    indices: &Indices,
) -> Result<Option<LinkMessage>, AttachError> {
    match in_pod(inside, link, indices) {
        Some(found) => by_index(handle, found.header.index).await,
        None => Ok(None),
    }
}

/// Configures one interface. Returns a lease that was given now, not a known one.
async fn configure_link(
    handle: &Handle,
    link: &PlannedLink,
    Apart { config, settings }: &Apart,
    found: &LinkMessage,
    asked: Asked<'_>,
) -> Result<Option<Lease>, AttachError> {
    let (name, index) = (name_of(found), found.header.index);
    let config = &possible(link, config, name, asked.sysctl)?;
    let NetworkConfig { interface, routes, rules, neighbors, ethtool, .. } = config;
    if interface.disable_ebpf_programs == Some(true) {
        ebpf::detach_all(handle, name, found).await?;
    }
    set_properties(handle, link, found).await?;
    ethtool.as_ref().map_or(Ok(()), |asked| ethtool::apply(name, asked))?;
    ip_settings::set(handle, name, found, settings, asked.sysctl).await?;
    sysctl::apply(name, interface)?;
    if let Some(vrf) = &interface.vrf {
        join_vrf(handle, name, index, vrf).await?;
        sysctl::accept_in_domains()?;
    }
    for prefix in &interface.addresses {
        add_address(handle, name, index, &pod_address(link, *prefix)).await?;
    }
    if let Some(rate) = link.rate {
        shaping::limit(handle, name, index, rate).await?;
    }
    if !found.header.flags.contains(LinkFlags::Up) {
        let up = LinkUnspec::new_with_index(index).up().build();
        handle
            .link()
            .set(up)
            .execute()
            .await
            .map_err(|source| AttachError::netlink(name, "set it up", source))?;
    }
    let lease = obtain(handle, link, index, asked).await?;
    add_routes(handle, link, index, routes).await?;
    add_rules(handle, name, rules).await?;
    for neighbor in neighbors {
        add_neighbor(handle, name, index, neighbor).await?;
    }
    Ok(lease)
}

/// The configuration as far as the pod's network can have it. Without IPv6 there, what the
/// interface inherits from the host is left out, and what the claim asks for is an error.
fn possible(
    link: &PlannedLink,
    config: &NetworkConfig,
    name: &str,
    sysctl: &Path,
) -> Result<NetworkConfig, AttachError> {
    let addresses = &config.interface.addresses;
    let mut of_ipv6 = addresses.iter().filter(|prefix| prefix.address.is_ipv6()).peekable();
    if of_ipv6.peek().is_none() || ip_settings::enable_ipv6(name, sysctl) {
        return Ok(config.clone());
    }
    if let Some(asked) = of_ipv6.find(|prefix| link.host.address(**prefix).is_none()) {
        return Err(AttachError::NoIpv6 { link: name.to_owned(), address: *asked });
    }
    tracing::warn!(name, "The pod's network has no IPv6; the host's IPv6 addresses are left out");
    let mut config = config.clone();
    config.interface.addresses.retain(|prefix| prefix.address.is_ipv4());
    config.routes.retain(|route| route.destination.address.is_ipv4());
    config.rules.retain(|rule| {
        rule.source.or(rule.destination).is_none_or(|prefix| prefix.address.is_ipv4())
    });
    config.neighbors.retain(|neighbor| neighbor.destination.is_ipv4());
    Ok(config)
}

/// Gets an address by DHCP, if the configuration requests it and the interface has none.
/// An address that is there but unknown was given to a hook that was killed; the server
/// gives it again.
async fn obtain(
    handle: &Handle,
    link: &PlannedLink,
    index: u32,
    Asked { known, deadline, .. }: Asked<'_>,
) -> Result<Option<Lease>, AttachError> {
    let has_it =
        known.contains_key(&link.name) && has_lease(handle, link.name.as_str(), index).await?;
    if link.config.interface.dhcp != Some(true) || has_it {
        return Ok(None);
    }
    dhcp::lease(handle, link, index, deadline).await.map(Some)
}

/// Sets the requested MTU, hardware address and segment sizes. The interface is down in
/// the first run; in later runs it already has them.
async fn set_properties(
    handle: &Handle,
    link: &PlannedLink,
    found: &LinkMessage,
) -> Result<(), AttachError> {
    let interface = &link.config.interface;
    let sizes = SegmentSizes {
        gso: interface.gso_max_size,
        gro: interface.gro_max_size,
        gso_ipv4: interface.gso_ipv4_max_size,
        gro_ipv4: interface.gro_ipv4_max_size,
    };
    let attributes = properties(interface.mtu, interface.hardware_addr.as_ref(), sizes);
    set_attributes(handle, name_of(found), found, attributes).await.into_iter().collect()
}

/// An address of the host with all of its properties, as far as they are not of the host alone.
fn pod_address(link: &PlannedLink, prefix: IpPrefix) -> HostAddress {
    let of_host = link.host.address(prefix).filter(|_| link.child.is_none()).cloned();
    let address = of_host.unwrap_or_else(|| HostAddress::new(prefix));
    let no_dad = if prefix.address.is_ipv6() { NO_DAD } else { 0 };
    // The label begins with the host's name for the interface, and nobody in the pod would renew it.
    HostAddress { flags: address.flags | no_dad, label: None, seconds: None, ..address }
}

/// Adds routes of link scope first, because gateways of the others are reached by them.
async fn add_routes(
    handle: &Handle,
    link: &PlannedLink,
    index: u32,
    routes: &[RouteConfig],
) -> Result<(), AttachError> {
    let table = link.config.interface.vrf.as_ref().map_or(TABLE_MAIN, VrfConfig::table_id);
    let (direct, via): (Vec<_>, Vec<_>) =
        routes.iter().partition(|route| route.scope == SCOPE_LINK);
    for route in direct.into_iter().chain(via) {
        let former = link.host.former(route);
        let route = HostRoute {
            gateway: route.gateway,
            source: route.source,
            priority: former.and_then(|former| former.priority),
            table: if route.table == 0 { table } else { route.table },
            scope: route.scope,
            onlink: former.is_some_and(|former| former.onlink),
            ..HostRoute::to(route.destination)
        };
        let (name, on_host) = (link.name.as_str(), link.host.identity.index);
        match former {
            Some(former) => {
                add_inherited(handle, name, (index, on_host), &route, former).await?;
            }
            None => add_route(handle, name, index, &route).await?,
        }
    }
    Ok(())
}

async fn join_vrf(
    handle: &Handle,
    name: &str,
    index: u32,
    vrf: &VrfConfig,
) -> Result<(), AttachError> {
    let domain = vrf.name.as_str();
    if by_name(handle, domain).await?.is_none() {
        let message = LinkVrf::new(domain, vrf.table_id()).up().build();
        let made = handle.link().add(message).execute().await;
        made.map_err(|source| AttachError::netlink(domain, "create the routing domain", source))?;
    }
    let found = by_name(handle, domain).await?;
    let found = found.ok_or_else(|| AttachError::Gone { link: domain.to_owned() })?;
    let join = LinkUnspec::new_with_index(index).controller(found.header.index).build();
    handle
        .link()
        .set(join)
        .execute()
        .await
        .map_err(|source| AttachError::netlink(name, format!("join `{domain}`"), source))
}
