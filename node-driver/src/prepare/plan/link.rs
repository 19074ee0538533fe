//! What becomes of a device's interface: the pod's with a configuration that is whole, or
//! the host's, with a child of it in the pod.

use crate::facts::network::Withheld;
use crate::prepare::claim::{AllocatedClaim, AllocatedDevice};
use crate::prepare::host_link::{HostLink, HostRoute, HostRule, TABLE_MAIN};
use crate::prepare::inventory::NicFacts;
use crate::prepare::plan::cloud::with_policy_routes;
use crate::prepare::plan::{Child, Facts, MARK, Plan, PlanError, PlannedLink};
use cluster_model::network_config::{
    InterfaceConfig, InterfaceKind, LinkName, MacAddress, NeighborConfig, NetworkConfig,
    RouteConfig, RuleConfig,
};
use sha2::{Digest, Sha256};
use std::net::IpAddr;

/// `RT_SCOPE_LINK`.
const SCOPE_LINK: u8 = 253;

/// Decides.
pub(super) fn link(
    claim: &AllocatedClaim,
    device: &AllocatedDevice,
    nic: &NicFacts,
    config: NetworkConfig,
    facts: &Facts<'_>,
) -> Result<Option<PlannedLink>, PlanError> {
    let name = || device.device.clone();
    if device.admin_access {
        return Ok(None);
    }
    let host = nic.netdev.as_ref().and_then(|netdev| facts.links.links.get(netdev));
    // One that is made on it leaves it where it is.
    let is_child = config.interface.kind == Some(InterfaceKind::IpoIb);
    let may_have = facts.policy.move_ib_interfaces || is_child;
    let host = host.filter(|host| may_have || !is_infiniband(host));
    let Some(host) = host else {
        let needs_none = nic.rdma.as_ref().is_some_and(|rdma| rdma.is_infiniband);
        if !needs_none {
            return Err(PlanError::NoLink { device: name() });
        }
        let wrap = |source| PlanError::Config { device: name(), source };
        return config.check_rdma_only().map(|()| None).map_err(wrap);
    };
    let child = child(device, host, &config)?;
    refuse_withheld(device, host, child, facts)?;
    if let Some(asked) = child {
        refuse_beside(device, &config, asked, facts.held)?;
    }
    if claim.pods.len() > 1 {
        return Err(PlanError::ManyPods { device: name(), pods: claim.pods.len() });
    }
    if config.interface.dhcp == Some(true) && is_infiniband(host) {
        return Err(PlanError::DhcpOverInfiniBand { device: name(), link: host.name.clone() });
    }
    refuse_larger_mtu(device, nic, &config)?;
    let pod_name = pod_name(host, &config);
    let (host, config) = match child {
        None => {
            let config = with_policy_routes(host, completed(host, config), facts.cloud_nics);
            with_features(device, host.clone(), config, facts)?
        }
        // What it can do shows when it is there.
        Some(child) => (host.clone(), with_own_address(claim, device, child, config)),
    };
    let mark = child.filter(|child| *child == Child::IpoIb).and_then(|_| mark(claim, device));
    let rate = device.bandwidth.filter(|_| child.is_some());
    Ok(Some(PlannedLink { host, child, mark, rate, name: pod_name, config }))
}

/// A virtual function sends no packet that its physical function does not: drivers take a
/// larger MTU, and the packets are lost.
fn refuse_larger_mtu(
    device: &AllocatedDevice,
    nic: &NicFacts,
    config: &NetworkConfig,
) -> Result<(), PlanError> {
    match (config.interface.mtu, nic.physical_mtu) {
        (Some(mtu), Some(physical)) if mtu > physical => {
            Err(PlanError::LargerMtu { device: device.device.clone(), mtu, physical })
        }
        _ => Ok(()),
    }
}

/// Whether it is IP over InfiniBand: beside the NIC, which needs none. What the host mounts
/// over it stays mounted while it stays with the host.
fn is_infiniband(host: &HostLink) -> bool {
    host.hardware_addr.as_ref().is_some_and(MacAddress::is_infiniband)
}

/// The features by the kernel's names, and how the host has them.
fn with_features(
    device: &AllocatedDevice,
    mut host: HostLink,
    mut config: NetworkConfig,
    facts: &Facts<'_>,
) -> Result<(HostLink, NetworkConfig), PlanError> {
    let abilities = facts.abilities.get(&host.name);
    if let Some((asked, abilities)) = config.ethtool.as_ref().zip(abilities) {
        let wrap = |source| PlanError::Ethtool { device: device.device.clone(), source };
        let resolved = abilities.resolve(&host.name, asked).map_err(wrap)?;
        host.ethtool = Some(abilities.former(&resolved));
        config.ethtool = Some(resolved);
    }
    Ok((host, config))
}

/// The NIC's own interface is for who has all of the NIC.
fn child(
    device: &AllocatedDevice,
    host: &HostLink,
    config: &NetworkConfig,
) -> Result<Option<Child>, PlanError> {
    let is_share = device.share_id.is_some();
    let fits = if is_infiniband(host) { Child::IpoIb } else { Child::MacVlan };
    let asked = match config.interface.kind {
        Some(InterfaceKind::Passthrough) if is_share => {
            return Err(PlanError::SharedLink { device: device.device.clone() });
        }
        Some(InterfaceKind::IpVlan) => Child::IpVlan,
        Some(InterfaceKind::MacVlan) => Child::MacVlan,
        Some(InterfaceKind::IpoIb) => Child::IpoIb,
        None if is_share => fits,
        None | Some(InterfaceKind::Passthrough) => return Ok(None),
    };
    // The kernel makes those of Ethernet on Ethernet, and the other on InfiniBand.
    if (asked == Child::IpoIb) != (fits == Child::IpoIb) {
        let (device, link) = (device.device.clone(), host.name.clone());
        return Err(PlanError::NoSuchChild { device, link, asked, fits });
    }
    Ok(Some(asked))
}

/// As long as a name may be, of the claim's UID and the device's name.
fn mark(claim: &AllocatedClaim, device: &AllocatedDevice) -> Option<LinkName> {
    let digest = digest(claim, device);
    let digits = digest.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    format!("{MARK}{}", digits.get(..9)?).parse().ok()
}

fn digest(claim: &AllocatedClaim, device: &AllocatedDevice) -> [u8; 32] {
    Sha256::digest(format!("{}/{}", claim.claim.uid, device.device)).into()
}

/// What the host lives by stays with it. A child may be on its uplink, and on no member of
/// another interface, whose traffic is that one's.
fn refuse_withheld(
    device: &AllocatedDevice,
    host: &HostLink,
    child: Option<Child>,
    facts: &Facts<'_>,
) -> Result<(), PlanError> {
    let (device, link) = (device.device.clone(), host.name.clone());
    match facts.links.withheld.get(&host.name) {
        Some(Withheld::Member(master)) => {
            Err(PlanError::Member { device, link, master: master.clone() })
        }
        Some(Withheld::Uplink) if child.is_none() => Err(PlanError::Uplink { device, link }),
        _ => Ok(()),
    }
}

/// Children of one NIC live side by side: of one kind, with addresses of their own.
fn refuse_beside(
    device: &AllocatedDevice,
    config: &NetworkConfig,
    asked: Child,
    held: &[&Plan],
) -> Result<(), PlanError> {
    let children = held.iter().flat_map(|plan| {
        let same = plan.devices.iter().filter(|other| other.device == device.device);
        let links = same.filter_map(|other| other.link.as_ref());
        links.filter_map(move |link| Some((&plan.claim, link.child?, link)))
    });
    for (holder, theirs, link) in children {
        let (device, holder) = (device.device.clone(), holder.clone());
        if theirs != asked {
            return Err(PlanError::OtherChild { device, holder, theirs, asked });
        }
        let theirs: Vec<IpAddr> =
            link.config.interface.addresses.iter().map(|prefix| prefix.address).collect();
        let mut own = config.interface.addresses.iter().map(|prefix| prefix.address);
        if let Some(address) = own.find(|address| theirs.contains(address)) {
            return Err(PlanError::SameAddress { device, address, holder });
        }
    }
    Ok(())
}

/// A macvlan has the same hardware address in each sandbox of its pod, and it is known
/// before: made of the claim's UID and the device's name, locally administered.
fn with_own_address(
    claim: &AllocatedClaim,
    device: &AllocatedDevice,
    child: Child,
    config: NetworkConfig,
) -> NetworkConfig {
    if child != Child::MacVlan || config.interface.hardware_addr.is_some() {
        return config;
    }
    let digest = digest(claim, device);
    let bytes = [0x02, digest[0], digest[1], digest[2], digest[3], digest[4]];
    let hardware_addr = MacAddress::from_bytes(&bytes);
    NetworkConfig { interface: InterfaceConfig { hardware_addr, ..config.interface }, ..config }
}

/// The name that is asked for, else the host's, as the kernel allows more than
/// a configuration may say.
fn pod_name(host: &HostLink, config: &NetworkConfig) -> LinkName {
    let asked = config.interface.name.clone();
    asked.or_else(|| host.name.parse().ok()).unwrap_or_else(LinkName::fallback)
}

/// Without addresses of its own the interface keeps the host's, and the routes, rules and
/// neighbours that go with them; those that are asked for come after.
fn completed(host: &HostLink, config: NetworkConfig) -> NetworkConfig {
    if !config.interface.addresses.is_empty() || config.interface.dhcp == Some(true) {
        return config;
    }
    let is_in_domain = config.interface.vrf.is_some();
    let addresses = host.addresses.iter().filter(|address| address.is_global());
    // The pod's own network has a default route; a routing domain has none.
    let kept = host.routes.iter().filter(|route| is_in_domain || !route.is_default());
    let inherited = kept.map(|route| inherited_route(route, is_in_domain));
    let asks_for = |route: &RouteConfig| {
        config.routes.iter().any(|asked| {
            asked.destination == route.destination && asked.table_id() == route.table_id()
        })
    };
    let routes = inherited.filter(|route| !asks_for(route)).chain(config.routes.clone()).collect();
    // Of a routing domain the kernel has a rule of its own.
    let rules = host.rules.iter().filter(|_| !is_in_domain).map(inherited_rule);
    let rules = rules.chain(config.rules.clone()).collect();
    let asked = |neighbor: &&NeighborConfig| {
        config.neighbors.iter().all(|asked| asked.destination != neighbor.destination)
    };
    let neighbors = host.neighbors.iter().filter(asked).chain(&config.neighbors).cloned().collect();
    let addresses = addresses.map(|address| address.prefix).collect();
    let interface = InterfaceConfig { addresses, ..config.interface };
    NetworkConfig { interface, routes, rules, neighbors, ..config }
}

/// The main table is that of the interface's routing domain, where it has one.
fn inherited_route(route: &HostRoute, is_in_domain: bool) -> RouteConfig {
    RouteConfig {
        destination: route.destination,
        gateway: route.gateway,
        source: route.source,
        scope: if route.gateway.is_some() { 0 } else { SCOPE_LINK },
        table: if is_in_domain && route.table == TABLE_MAIN { 0 } else { route.table },
    }
}

fn inherited_rule(rule: &HostRule) -> RuleConfig {
    let HostRule { priority, source, destination, table } = rule.clone();
    RuleConfig { priority, source, destination, table }
}
