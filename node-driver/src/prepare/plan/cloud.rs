//! Source-based routes, which Azure's networks need on machines with several interfaces:
//! packets from an interface's network leave through that interface. Table numbers are
//! those of upstream DRANET.

use crate::model::host_link::HostLink;
use cluster_model::network_config::{IpPrefix, NetworkConfig, RouteConfig, RuleConfig};
use publication::cloud::CloudNic;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The table of the machine's first interface.
const FIRST_TABLE: u32 = 100;

/// Adds the rules and routes for the interface's network. Adds none if the host has its own
/// rules for it, which were inherited, or if it is in a routing domain (VRF), which has its
/// own table.
pub(super) fn with_policy_routes(
    host: &HostLink,
    mut config: NetworkConfig,
    nics: &[CloudNic],
) -> NetworkConfig {
    let found = (FIRST_TABLE..)
        .zip(nics)
        .find(|(_, nic)| Some(&nic.hardware_addr) == host.hardware_addr.as_ref());
    let is_routed = !host.rules.is_empty() || config.interface.vrf.is_some();
    let Some((table, nic)) = found.filter(|_| !is_routed) else { return config };
    let paths = [ipv4(nic, &config), ipv6(nic, host, &config)];
    for (source, gateway) in paths.into_iter().flatten() {
        let rule = RuleConfig { priority: 0, source: Some(source), destination: None, table };
        let destination = everywhere(gateway);
        let route =
            RouteConfig { destination, gateway: Some(gateway), source: None, scope: 0, table };
        let mut routes = config.routes.iter();
        if !routes.any(|it| (it.destination, it.table) == (destination, table)) {
            config.routes.push(route);
        }
        if !config.rules.contains(&rule) {
            config.rules.push(rule);
        }
    }
    config
}

/// The network and its router, which has the first address, if the pod can reach it.
fn ipv4(nic: &CloudNic, config: &NetworkConfig) -> Option<(IpPrefix, IpAddr)> {
    let subnet = nic.subnet.filter(|subnet| subnet.address.is_ipv4())?;
    let router = subnet.numbered(subnet.bounds().0 + 1)?;
    let interface = &config.interface;
    let reaches =
        interface.dhcp == Some(true) || interface.addresses.iter().any(|own| own.contains(router));
    (reaches && subnet.contains(router)).then_some((subnet, router))
}

/// The address and the host's router, if the pod has this address.
fn ipv6(nic: &CloudNic, host: &HostLink, config: &NetworkConfig) -> Option<(IpPrefix, IpAddr)> {
    let address = IpAddr::V6(nic.ipv6?);
    let has_it = config.interface.addresses.iter().any(|own| own.address == address);
    let router = host.router.filter(|_| has_it)?;
    Some((IpPrefix { address, prefix_len: 128 }, router))
}

fn everywhere(gateway: IpAddr) -> IpPrefix {
    let address = match gateway {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    IpPrefix { address, prefix_len: 0 }
}
