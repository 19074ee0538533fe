//! The table of a NIC's own, which its own address selects: for routes of a NIC that shares a network with
//! another one, and for those that would take the traffic of the pod's own network. Pure.

use crate::model::host_link::HostLink;
use cluster_model::network_config::{IpPrefix, NetworkConfig, RouteConfig, RuleConfig, VrfConfig};
use cluster_model::nic_pool::SCOPE_LINK;
use std::collections::BTreeSet;
use std::iter;
use std::net::IpAddr;

/// Tables are numbered from here, by the address's number in its network: the claims of a pod use
/// different tables without knowing of each other.
const FIRST_TABLE: u32 = 1000;

/// The most tables.
pub(super) const TABLES: u32 = 1 << 24;

/// Whether routes to these destinations would take traffic of the pod's own network: that of its default
/// route, or to one of the addresses that it reaches there.
pub(super) fn take_over(mut destinations: impl Iterator<Item = IpPrefix>, kept: &[IpAddr]) -> bool {
    destinations.any(|it| it.is_like_default() || kept.iter().any(|kept| it.contains(*kept)))
}

/// Moves the routes that come from the host into the NIC's own tables, if in the main table they would take
/// traffic of the pod's own network. Those that the claim asks for stay. `kept` are addresses that the
/// pod reaches by its own network.
pub(super) fn set_aside(
    config: &mut NetworkConfig,
    host: &HostLink,
    kept: &[IpAddr],
    taken: &BTreeSet<u32>,
) {
    if config.interface.vrf.is_some() {
        return;
    }
    for is_v4 in [true, false] {
        let (inherited, others): (Vec<_>, Vec<_>) = config.routes.drain(..).partition(|route| {
            route.destination.address.is_ipv4() == is_v4
                && route.is_in_main()
                && host.has_in_main(route)
        });
        config.routes = others;
        if !take_over(inherited.iter().map(|route| route.destination), kept) {
            config.routes.splice(0..0, inherited);
            continue;
        }
        let asked: Vec<RouteConfig> = in_main(config, is_v4).cloned().collect();
        let addresses = config.interface.addresses.clone();
        for own in addresses.iter().filter(|own| own.address.is_ipv4() == is_v4) {
            let table = table_of(config, *own).unwrap_or_else(|| give(config, *own, taken));
            let routes = inherited.iter().chain(&asked);
            config.routes.extend(routes.map(|route| RouteConfig { table, ..route.clone() }));
        }
    }
}

/// Its routes of a family in the main table.
pub(super) fn in_main(config: &NetworkConfig, is_v4: bool) -> impl Iterator<Item = &RouteConfig> {
    let routes = config.routes.iter();
    routes.filter(move |it| it.is_in_main() && it.destination.address.is_ipv4() == is_v4)
}

/// The table that its rules select for an address of its own: the host's administrator, or the claim, has
/// set it up.
pub(super) fn table_of(config: &NetworkConfig, own: IpPrefix) -> Option<u32> {
    let mut rules = config.rules.iter();
    let rule = rules.find(|rule| rule.source.is_some_and(|source| source.contains(own.address)));
    rule.map(|rule| rule.table)
}

/// Adds a table with the address's own network, and the rule that selects it. Returns its number.
pub(super) fn give(config: &mut NetworkConfig, own: IpPrefix, taken: &BTreeSet<u32>) -> u32 {
    let (first, _) = own.bounds();
    let number = cluster_model::network_config::number(own.address) - first;
    let first_choice = FIRST_TABLE + u32::try_from(number % u128::from(TABLES)).unwrap_or_default();
    // Numbers from `FIRST_TABLE + TABLES` on are only for such conflicts: another claim of the pod, which is
    // not known here, chooses below.
    let mut choices = iter::successors(Some(first_choice), |table| table.checked_add(TABLES));
    let table = choices.find(|table| !taken.contains(table)).unwrap_or(first_choice);
    config.routes.push(direct(own, table));
    config.rules.push(rule(own, table));
    table
}

/// The route to an address's own network.
pub(super) fn direct(own: IpPrefix, table: u32) -> RouteConfig {
    let address = own.numbered(own.bounds().0).unwrap_or(own.address);
    RouteConfig {
        destination: IpPrefix { address, prefix_len: own.prefix_len },
        gateway: None,
        source: Some(own.address),
        scope: SCOPE_LINK,
        table,
    }
}

/// The rule by which an address selects a table.
pub(super) fn rule(own: IpPrefix, table: u32) -> RuleConfig {
    let prefix_len = if own.address.is_ipv4() { 32 } else { 128 };
    let source = Some(IpPrefix { address: own.address, prefix_len });
    RuleConfig { priority: 0, source, destination: None, table }
}

/// The tables that a configuration uses. The host's administrator may have numbered them as we do.
pub(super) fn tables(config: &NetworkConfig) -> impl Iterator<Item = u32> {
    let routes = config.routes.iter().map(RouteConfig::table_id);
    let domain = config.interface.vrf.iter().map(VrfConfig::table_id);
    routes.chain(config.rules.iter().map(|rule| rule.table)).chain(domain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::host_link::{HostRoute, TABLE_MAIN};
    use serde_json::json;

    fn prefix(text: &str) -> IpPrefix {
        text.parse().unwrap()
    }

    /// What stays in the main table of routes of the host to these destinations.
    fn main_of(destinations: &[&str], asked: &[&str]) -> Vec<String> {
        let route = |text: &str| {
            let gateway = if text.contains(':') { "fd09::1" } else { "10.9.0.1" };
            json!({"destination": text, "gateway": gateway})
        };
        let host = destinations.iter().map(|text| HostRoute {
            table: TABLE_MAIN,
            gateway: route(text)["gateway"].as_str().unwrap().parse().ok(),
            ..HostRoute::to(prefix(text))
        });
        let host = HostLink { routes: host.collect(), ..HostLink::default() };
        let all: Vec<_> = destinations.iter().chain(asked).map(|text| route(text)).collect();
        let config = json!({
            "interface": {"addresses": ["10.9.0.10/16", "fd09::10/64"]}, "routes": all,
        });
        let mut config = NetworkConfig::parse(&config).unwrap();
        let kept = ["10.96.0.1", "10.244.3.7", "fd00:10:96::1"].map(|text| text.parse().unwrap());
        set_aside(&mut config, &host, &kept, &BTreeSet::new());
        let aside = config.routes.iter().filter(|route| !route.is_in_main()).count();
        let stay = [true, false].map(|is_v4| {
            in_main(&config, is_v4).map(|route| route.destination.to_string()).collect::<Vec<_>>()
        });
        assert_eq!(aside > 0, !config.rules.is_empty());
        stay.concat()
    }

    #[test]
    fn routes_that_take_the_pods_traffic_are_set_aside() {
        for (destinations, stay) in [
            (&["10.70.0.0/16", "34.1.0.0/16"][..], &["10.70.0.0/16", "34.1.0.0/16"][..]),
            (&["0.0.0.0/1", "128.0.0.0/1", "10.70.0.0/16"], &[]),
            (&["0.0.0.0/2", "64.0.0.0/2", "128.0.0.0/2", "192.0.0.0/2"], &[]),
            (&["10.0.0.0/8"], &[]),
            (&["10.96.0.0/13", "10.104.0.0/13"], &[]),
            (&["10.244.0.0/16", "fd70::/16"], &["fd70::/16"]),
            (&["2000::/3", "10.70.0.0/16"], &["10.70.0.0/16"]),
            (&["fd00::/8"], &[]),
        ] {
            assert_eq!(main_of(destinations, &[]), stay, "{destinations:?}");
        }
        assert_eq!(main_of(&["0.0.0.0/1"], &["128.0.0.0/1"]), ["128.0.0.0/1"], "the claim asks");
    }
}
