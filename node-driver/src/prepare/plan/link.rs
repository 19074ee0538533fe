//! Decides what happens to a device's interface: it moves into the pod with a complete
//! configuration, or it stays with the host and the pod gets a child of it.

use super::names::PodNames;
use crate::model::host_link::{HostLink, HostRoute, HostRule, TABLE_MAIN};
use crate::model::plan::{Child, MARK, Plan, PlannedLink};
use crate::prepare::claim::{AllocatedClaim, AllocatedDevice};
use crate::prepare::plan::cloud::with_policy_routes;
use crate::prepare::plan::{Facts, Refusal};
use cluster_model::network_config::{
    InterfaceConfig, InterfaceKind, LinkName, MacAddress, NetworkConfig, RouteConfig, RuleConfig,
};
use publication::network::Withheld;
use publication::nic::NicState;
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use topology_graph::LinkLayer;

/// `RT_SCOPE_LINK`.
const SCOPE_LINK: u8 = 253;

/// Decides the interface of one device; `None` if the pod gets none of it.
pub(super) fn link(
    claim: &AllocatedClaim,
    device: &AllocatedDevice,
    nic: &NicState,
    mut config: NetworkConfig,
    facts: &Facts<'_>,
    names: &mut PodNames,
) -> Result<Option<PlannedLink>, Refusal> {
    if device.admin_access {
        return Ok(None);
    }
    let host = nic.link_name().and_then(|name| facts.links.get(name));
    // A child leaves the host's interface in place.
    let is_child = config.interface.kind == Some(InterfaceKind::IpoIb);
    let may_have = facts.policy.move_ib_interfaces || is_child;
    let host = host.filter(|host| may_have || !is_infiniband(host));
    let Some(host) = host else {
        if !needs_no_link(nic, facts) {
            return Err(Refusal::NoLink);
        }
        return config.check_rdma_only().map(|()| None).map_err(Refusal::Config);
    };
    let child = child(device, host, &config)?;
    refuse_kept(nic, host, child)?;
    if nic.lag.is_some() && child.is_none() {
        return config
            .check_rdma_only()
            .map(|()| None)
            .map_err(|_| Refusal::Bond { link: host.name.clone() });
    }
    if let Some(asked) = child {
        refuse_beside(device, &config, asked, facts.held)?;
    }
    if claim.pods.len() > 1 {
        return Err(Refusal::ManyPods { pods: claim.pods.len() });
    }
    if config.interface.dhcp == Some(true) && is_infiniband(host) {
        return Err(Refusal::DhcpOverInfiniBand { link: host.name.clone() });
    }
    refuse_larger_mtu(&config, facts.inventory.physical_mtu(nic))?;
    let pod_name = names.choose(host, &config);
    // Drivers of earlier versions know no patterns, and read this plan after a rollback.
    config.interface.name = config.interface.name.map(|_| pod_name.clone().into());
    let (host, config) = match child {
        None => {
            let config = with_policy_routes(host, completed(host, config), facts.cloud_nics);
            with_features(host.clone(), config, facts)?
        }
        // A child's features are only known once it exists.
        Some(child) => (host.clone(), with_own_address(claim, device, child, config)),
    };
    let mark = child.and_then(|_| mark(claim, device));
    let rate = device.bandwidth().filter(|_| child.is_some());
    Ok(Some(PlannedLink { host, child, mark, rate, name: pod_name, config }))
}

/// Whether a device without a usable interface can be given: its ports are InfiniBand, or it has
/// only an RDMA device, as those of EFA and eRDMA. The link layer of those says nothing: it is
/// unspecified, or Ethernet without an interface on the function.
fn needs_no_link(nic: &NicState, facts: &Facts<'_>) -> bool {
    let has_one = nic.link_name().is_some() || facts.inventory.had_interface.contains(&nic.name);
    nic.rdma.as_ref().is_some_and(|rdma| {
        let mut layers = rdma.ports.iter().map(|port| port.link_layer);
        let is_infiniband =
            !rdma.ports.is_empty() && layers.all(|layer| layer == Some(LinkLayer::InfiniBand));
        is_infiniband || !has_one
    })
}

/// Refuses an MTU larger than the physical function's: drivers of virtual functions
/// accept it, but the packets are lost.
fn refuse_larger_mtu(config: &NetworkConfig, physical: Option<u32>) -> Result<(), Refusal> {
    match (config.interface.mtu, physical) {
        (Some(mtu), Some(physical)) if mtu > physical => Err(Refusal::LargerMtu { mtu, physical }),
        _ => Ok(()),
    }
}

/// Whether it is IP over InfiniBand. The NIC does not need it for RDMA, and storage that
/// the host has mounted over it stays mounted if it stays with the host.
fn is_infiniband(host: &HostLink) -> bool {
    host.hardware_addr.as_ref().is_some_and(MacAddress::is_infiniband)
}

/// Translates the requested features to the kernel's names, and records the host's
/// values.
fn with_features(
    mut host: HostLink,
    mut config: NetworkConfig,
    facts: &Facts<'_>,
) -> Result<(HostLink, NetworkConfig), Refusal> {
    let abilities = facts.abilities.get(&host.name);
    if let Some((asked, abilities)) = config.ethtool.as_ref().zip(abilities) {
        let resolved = abilities.resolve(&host.name, asked).map_err(Refusal::Ethtool)?;
        host.ethtool = Some(abilities.former(&resolved));
        config.ethtool = Some(resolved);
    }
    Ok((host, config))
}

/// The kind of child that the pod gets; `None` if it gets the NIC's own interface, which
/// needs the whole NIC.
fn child(
    device: &AllocatedDevice,
    host: &HostLink,
    config: &NetworkConfig,
) -> Result<Option<Child>, Refusal> {
    let is_share = device.is_shared();
    let fits = if is_infiniband(host) { Child::IpoIb } else { Child::MacVlan };
    let asked = match config.interface.kind {
        Some(InterfaceKind::Passthrough) if is_share => {
            return Err(Refusal::SharedLink);
        }
        Some(InterfaceKind::IpVlan) => Child::IpVlan,
        Some(InterfaceKind::MacVlan) => Child::MacVlan,
        Some(InterfaceKind::IpoIb) => Child::IpoIb,
        None if is_share => fits,
        None | Some(InterfaceKind::Passthrough) => return Ok(None),
    };
    // The kernel creates macvlan and ipvlan only on Ethernet, and IPoIB only on
    // InfiniBand.
    if (asked == Child::IpoIb) != (fits == Child::IpoIb) {
        return Err(Refusal::NoSuchChild { link: host.name.clone(), asked, fits });
    }
    Ok(Some(asked))
}

/// A mark of maximum name length, derived from the claim's UID and the device's name.
fn mark(claim: &AllocatedClaim, device: &AllocatedDevice) -> Option<LinkName> {
    let digest = digest(claim, device);
    let digits = digest.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    format!("{MARK}{}", digits.get(..9)?).parse().ok()
}

fn digest(claim: &AllocatedClaim, device: &AllocatedDevice) -> [u8; 32] {
    Sha256::digest(format!("{}/{}", claim.claim.uid, device.device)).into()
}

/// Refuses interfaces that the host needs. A child is allowed on the host's uplink, but
/// not on a member of another interface, because that one handles the member's traffic.
fn refuse_kept(nic: &NicState, host: &HostLink, child: Option<Child>) -> Result<(), Refusal> {
    let link = host.name.clone();
    match nic.kept.as_ref().map(|kept| &kept.reason) {
        Some(Withheld::Member(master)) => Err(Refusal::Member { link, master: master.clone() }),
        Some(Withheld::Uplink | Withheld::EarlierUplink) if child.is_none() => {
            Err(Refusal::Uplink { link })
        }
        Some(reason @ (Withheld::Below(_) | Withheld::OfOthers | Withheld::SwitchPort))
            if child.is_none() =>
        {
            Err(Refusal::Used { link, reason: reason.clone() })
        }
        _ => Ok(()),
    }
}

/// Refuses conflicts between children of one NIC: they must be of one kind and have
/// different addresses.
fn refuse_beside(
    device: &AllocatedDevice,
    config: &NetworkConfig,
    asked: Child,
    held: &[&Plan],
) -> Result<(), Refusal> {
    let children = held.iter().flat_map(|plan| {
        let same = plan.devices.iter().filter(|other| other.device == device.device);
        let links = same.filter_map(|other| other.link.as_ref());
        links.filter_map(move |link| Some((&plan.claim, link.child?, link)))
    });
    for (holder, theirs, link) in children {
        let holder = holder.clone();
        if theirs != asked {
            return Err(Refusal::OtherChild { holder, theirs, asked });
        }
        let theirs: Vec<IpAddr> =
            link.config.interface.addresses.iter().map(|prefix| prefix.address).collect();
        let mut own = config.interface.addresses.iter().map(|prefix| prefix.address);
        if let Some(address) = own.find(|address| theirs.contains(address)) {
            return Err(Refusal::SameAddress { address, holder });
        }
    }
    Ok(())
}

/// Gives a macvlan a locally administered hardware address, derived from the claim's UID
/// and the device's name. It is the same in each sandbox of the pod and known in advance.
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

/// Without configured addresses the interface keeps the host's, with the routes, rules
/// and neighbours that belong to them. Configured ones are appended.
fn completed(host: &HostLink, config: NetworkConfig) -> NetworkConfig {
    if !config.interface.addresses.is_empty() || config.interface.dhcp == Some(true) {
        return config;
    }
    let is_in_domain = config.interface.vrf.is_some();
    let addresses = host.addresses.iter().filter(|address| address.is_global());
    // The pod's own network has a default route; a routing domain (VRF) has none.
    let kept = host.routes.iter().filter(|route| is_in_domain || !route.is_default());
    let inherited = kept.map(|route| inherited_route(route, is_in_domain));
    let inherited = inherited.filter(|route| {
        let place = (route.destination, route.table_id());
        config.routes.iter().all(|asked| (asked.destination, asked.table_id()) != place)
    });
    let routes = inherited.chain(config.routes.clone()).collect();
    // The kernel has its own rule for a routing domain (VRF).
    let rules = host.rules.iter().filter(|_| !is_in_domain).map(inherited_rule);
    let rules = rules.chain(config.rules.clone()).collect();
    let neighbors = host.neighbors.iter().filter(|neighbor| {
        config.neighbors.iter().all(|asked| asked.destination != neighbor.destination)
    });
    let neighbors = neighbors.chain(&config.neighbors).cloned().collect();
    let addresses = addresses.map(|address| address.prefix).collect();
    let interface = InterfaceConfig { addresses, ..config.interface };
    NetworkConfig { interface, routes, rules, neighbors, ..config }
}

/// Converts a route of the host. In a routing domain (VRF) the main table becomes that of
/// the domain.
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
