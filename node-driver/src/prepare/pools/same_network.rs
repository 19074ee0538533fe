//! Routes for a claim with several NICs on one network. Pure.
//!
//! The kernel sends to a network by the first of its interfaces there, and answers ARP for each
//! of its addresses on all of them. A NIC that another one of the pod answers for is not reached
//! on its own wire. So each of them gets a table that its own address selects, and answers for
//! itself only (`Documentation/networking/ip-sysctl.rst`: `arp_ignore`, `arp_announce`).

use cluster_model::network_config::{IpPrefix, NetworkConfig, RouteConfig, RuleConfig};
use cluster_model::nic_pool::SCOPE_LINK;

/// Tables are numbered from here, by the address's number in its network: the claims of a pod use
/// different tables without knowing of each other.
const FIRST_TABLE: u32 = 1000;

/// The most tables.
const TABLES: u128 = 1 << 24;

/// Adds rules, routes and settings to the NICs whose network has another NIC of the claim.
pub(super) fn separate(configs: &mut [NetworkConfig]) {
    let addresses: Vec<Vec<IpPrefix>> =
        configs.iter().map(|config| config.interface.addresses.clone()).collect();
    for (index, config) in configs.iter_mut().enumerate() {
        let others = || addresses.iter().enumerate().filter(|(other, _)| *other != index);
        let has_other = |own: &&IpPrefix| {
            let mut others = others().flat_map(|(_, prefixes)| prefixes);
            others.any(|other| own.contains(other.address))
        };
        for own in addresses[index].iter().filter(has_other) {
            add_table(config, *own);
        }
    }
}

fn add_table(config: &mut NetworkConfig, own: IpPrefix) {
    // A routing domain has a table of its own.
    if config.interface.vrf.is_some() {
        return;
    }
    let (first, _) = own.bounds();
    let number = cluster_model::network_config::number(own.address) - first;
    let table = FIRST_TABLE + u32::try_from(number % TABLES).unwrap_or_default();
    let is_v4 = own.address.is_ipv4();
    let network = own.numbered(first).unwrap_or(own.address);
    let direct = RouteConfig {
        destination: IpPrefix { address: network, prefix_len: own.prefix_len },
        gateway: None,
        source: Some(own.address),
        scope: SCOPE_LINK,
        table,
    };
    let of_family =
        |route: &&RouteConfig| route.table == 0 && route.destination.address.is_ipv4() == is_v4;
    let copies: Vec<RouteConfig> = config
        .routes
        .iter()
        .filter(of_family)
        .map(|route| RouteConfig { table, ..route.clone() })
        .collect();
    config.routes.push(direct);
    config.routes.extend(copies);
    let source = IpPrefix { address: own.address, prefix_len: if is_v4 { 32 } else { 128 } };
    config.rules.push(RuleConfig { priority: 0, source: Some(source), destination: None, table });
    if is_v4 {
        config.interface.arp_ignore.get_or_insert(1);
        config.interface.arp_announce.get_or_insert(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn separated(configs: &[Value]) -> Vec<Value> {
        let parse = |config: &Value| NetworkConfig::parse(config).unwrap();
        let mut configs: Vec<_> = configs.iter().map(parse).collect();
        separate(&mut configs);
        configs.iter().map(|config| serde_json::to_value(config).unwrap()).collect()
    }

    #[test]
    fn nics_on_one_network_have_a_table_each() {
        let config = |address: &str| {
            json!({
                "interface": {"addresses": [address, "fd00::5/64"]},
                "routes": [{"destination": "192.168.0.0/16", "gateway": "192.168.60.1"}],
            })
        };
        let [one, mut other] = [config("192.168.60.100/24"), config("192.168.60.101/24")];
        other["interface"]["addresses"][1] = "fd00:1::5/64".into();
        let all = separated(&[one, other]);
        let expected = json!({
            "interface": {
                "addresses": ["192.168.60.100/24", "fd00::5/64"], "arpAnnounce": 2, "arpIgnore": 1,
            },
            "routes": [
                {"destination": "192.168.0.0/16", "gateway": "192.168.60.1", "scope": 0, "table": 0},
                {
                    "destination": "192.168.60.0/24", "scope": 253, "source": "192.168.60.100",
                    "table": 1100,
                },
                {"destination": "192.168.0.0/16", "gateway": "192.168.60.1", "scope": 0, "table": 1100},
            ],
            "rules": [{"priority": 0, "source": "192.168.60.100/32", "table": 1100}],
        });
        assert_eq!(all[0], expected);
        assert_eq!(
            all[1]["rules"],
            json!([{"priority": 0, "source": "192.168.60.101/32", "table": 1101}])
        );
    }

    #[test]
    fn nics_on_different_networks_and_in_routing_domains_stay_as_they_are() {
        let apart = ["10.1.0.5/24", "10.2.0.5/24"]
            .map(|address| json!({"interface": {"addresses": [address]}}));
        assert_eq!(separated(&apart), apart);
        let domain = |name: &str, address: &str| json!({"interface": {"addresses": [address], "vrf": {"name": name}}});
        let domains = [domain("red", "10.1.0.5/24"), domain("blue", "10.1.0.6/24")];
        assert_eq!(separated(&domains), domains);
    }
}
