//! Routes for a pod with several NICs on one network, whatever gave them their addresses. Pure.
//!
//! The kernel sends to a network by the first of its interfaces there, and answers ARP for each
//! of its addresses on all of them. A NIC that another one of the pod answers for is not reached
//! on its own wire. So each of them gets a table that its own address selects, and answers for
//! itself only (`Documentation/networking/ip-sysctl.rst`: `arp_ignore`, `arp_announce`).

use crate::kernel::attach::dhcp::Leases;
use crate::model::plan::{Plan, PlannedDevice, PlannedLink};
use cluster_model::network_config::{IpPrefix, NetworkConfig, RouteConfig, RuleConfig, VrfConfig};
use cluster_model::nic_pool::SCOPE_LINK;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;

/// Tables are numbered from here, by the address's number in its network: the claims of a pod use
/// different tables without knowing of each other.
const FIRST_TABLE: u32 = 1000;

/// The most tables.
const TABLES: u32 = 1 << 24;

/// `IPV4_DEVCONF_RP_FILTER`, `…_ARPFILTER`, `…_ARP_ANNOUNCE`, `…_ARP_IGNORE`, `…_ARP_ACCEPT`,
/// `…_ARP_NOTIFY`, `…_ACCEPT_LOCAL`, `…_SRC_VMARK` and `…_IGNORE_ROUTES_WITH_LINKDOWN`
/// (`include/uapi/linux/ip.h`): the settings that an interface takes from the host into a pod. Those
/// that make a pod a router, or accept what the host's administrator meant for the host, stay.
const CARRIED: [u16; 9] = [8, 13, ANNOUNCE, IGNORE, 21, NOTIFY, 23, 24, 29];
const ANNOUNCE: u16 = 18;
const IGNORE: u16 = 19;
const NOTIFY: u16 = 22;

/// The configuration of one interface in its pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Apart {
    /// Its configuration, with rules and routes if another NIC of the pod is on its network.
    pub(super) config: NetworkConfig,
    /// IPv4 settings by their numbers.
    pub(super) ipv4: BTreeMap<u16, i32>,
}

/// The configurations of a claim's interfaces. `leases` are the addresses from DHCP servers.
pub(super) fn apart(plan: &Plan, leases: &Leases) -> Vec<Apart> {
    let own: Vec<NetworkConfig> = plan.links().map(|link| with_lease(link, leases)).collect();
    let beside = plan.wiring.beside.iter().flat_map(|claim| &claim.devices);
    let beside: Vec<IpPrefix> = beside.flat_map(addresses).collect();
    let separated = separate(&own, &beside).into_iter().zip(plan.links());
    separated.map(|((config, is_apart), link)| Apart::new(config, is_apart, link)).collect()
}

impl Apart {
    fn new(mut config: NetworkConfig, is_apart: bool, link: &PlannedLink) -> Self {
        let host = if link.child.is_some() { &[][..] } else { &link.host.settings.ipv4 };
        let ipv4 = settings_of(&config, host, is_apart);
        // DHCP itself adds and renews its address.
        config.interface.addresses.clone_from(&link.config.interface.addresses);
        Self { config, ipv4 }
    }
}

fn with_lease(link: &PlannedLink, leases: &Leases) -> NetworkConfig {
    let mut config = link.config.clone();
    config.interface.addresses.extend(leases.get(&link.name).map(|lease| lease.prefix));
    config
}

fn addresses(device: &PlannedDevice) -> Vec<IpPrefix> {
    device.link.as_ref().map(|link| link.config.interface.addresses.clone()).unwrap_or_default()
}

/// The IPv4 settings of an interface: the host's and, if it must answer for itself only, at least
/// what that needs. Configured ones are written later.
fn settings_of(config: &NetworkConfig, host: &[i32], is_apart: bool) -> BTreeMap<u16, i32> {
    let carried = CARRIED.iter();
    let carried = carried.filter_map(|it| Some((*it, *host.get(usize::from(*it) - 1)?)));
    let mut settings: BTreeMap<u16, i32> = carried.collect();
    for (number, least) in [(IGNORE, 1), (ANNOUNCE, 2)] {
        let value = settings.entry(number).or_default();
        *value = if is_apart { least.max(*value) } else { *value };
    }
    // The kernel tells neighbours when the interface is set up: another one may have had its addresses.
    settings.insert(NOTIFY, 1);
    if config.interface.arp_ignore.is_some() {
        settings.remove(&IGNORE);
    }
    if config.interface.arp_announce.is_some() {
        settings.remove(&ANNOUNCE);
    }
    settings
}

/// Adds rules and routes to the NICs whose network has another NIC of the pod, of this claim or with
/// one of the addresses `beside`. Says of each whether it is one of them, by IPv4.
fn separate(configs: &[NetworkConfig], beside: &[IpPrefix]) -> Vec<(NetworkConfig, bool)> {
    let mut taken: BTreeSet<u32> = configs.iter().flat_map(tables).collect();
    let mut separated = Vec::new();
    for (index, config) in configs.iter().enumerate() {
        let mut config = config.clone();
        let others = configs.iter().enumerate().filter(|(other, _)| *other != index);
        let others = others.flat_map(|(_, config)| &config.interface.addresses).chain(beside);
        let others: Vec<&IpPrefix> = others.collect();
        let mut is_apart = false;
        for own in &configs[index].interface.addresses {
            if others.iter().any(|other| own.contains(other.address)) {
                is_apart |= own.address.is_ipv4();
                add_table(&mut config, *own, &taken);
                taken.extend(tables(&config));
            }
        }
        separated.push((config, is_apart));
    }
    separated
}

/// The tables that a configuration uses. The host's administrator may have numbered them as we do.
fn tables(config: &NetworkConfig) -> impl Iterator<Item = u32> {
    let routes = config.routes.iter().map(RouteConfig::table_id);
    let domain = config.interface.vrf.iter().map(VrfConfig::table_id);
    routes.chain(config.rules.iter().map(|rule| rule.table)).chain(domain)
}

fn add_table(config: &mut NetworkConfig, own: IpPrefix, taken: &BTreeSet<u32>) {
    let mut sources = config.rules.iter().filter_map(|rule| rule.source);
    // A routing domain has a table of its own, and so has a NIC that the host's administrator or the
    // claim has set up.
    if config.interface.vrf.is_some() || sources.any(|source| source.contains(own.address)) {
        return;
    }
    let (first, _) = own.bounds();
    let number = cluster_model::network_config::number(own.address) - first;
    let first_choice = FIRST_TABLE + u32::try_from(number % u128::from(TABLES)).unwrap_or_default();
    // Numbers from `FIRST_TABLE + TABLES` on are only for such conflicts: another claim of the pod, which is
    // not known here, chooses below.
    let mut choices = iter::successors(Some(first_choice), |table| table.checked_add(TABLES));
    let table = choices.find(|table| !taken.contains(table)).unwrap_or(first_choice);
    let is_v4 = own.address.is_ipv4();
    let network = own.numbered(first).unwrap_or(own.address);
    let direct = RouteConfig {
        destination: IpPrefix { address: network, prefix_len: own.prefix_len },
        gateway: None,
        source: Some(own.address),
        scope: SCOPE_LINK,
        table,
    };
    let copies: Vec<RouteConfig> = config
        .routes
        .iter()
        .filter(|route| route.table == 0 && route.destination.address.is_ipv4() == is_v4)
        .map(|route| RouteConfig { table, ..route.clone() })
        .collect();
    config.routes.push(direct);
    config.routes.extend(copies);
    let source = IpPrefix { address: own.address, prefix_len: if is_v4 { 32 } else { 128 } };
    config.rules.push(RuleConfig { priority: 0, source: Some(source), destination: None, table });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn separated(configs: &[Value], beside: &[&str]) -> Vec<Value> {
        let parse = |config: &Value| NetworkConfig::parse(config).unwrap();
        let configs: Vec<_> = configs.iter().map(parse).collect();
        let beside: Vec<IpPrefix> = beside.iter().map(|prefix| prefix.parse().unwrap()).collect();
        let told = |(config, _)| serde_json::to_value(config).unwrap();
        separate(&configs, &beside).into_iter().map(told).collect()
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
        let all = separated(&[one.clone(), other], &[]);
        let expected = json!({
            "interface": {"addresses": ["192.168.60.100/24", "fd00::5/64"]},
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
        // The other NIC is another claim's.
        assert_eq!(separated(&[one], &["192.168.60.101/24"]), [expected]);
    }

    #[test]
    fn a_table_of_the_host_is_kept() {
        let own = json!({
            "interface": {"addresses": ["10.9.0.10/16"]},
            "rules": [{"priority": 100, "source": "10.9.0.10/32", "table": 100}],
        });
        assert_eq!(separated(std::slice::from_ref(&own), &["10.9.0.11/16"]), [own]);
    }

    /// In one table the routes of two NICs would be mixed.
    #[test]
    fn a_table_of_another_nic_is_not_used() {
        let own = json!({
            "interface": {"addresses": ["10.9.0.10/16"]},
            "routes": [{"destination": "0.0.0.0/0", "gateway": "10.9.0.1", "table": 1011}],
            "rules": [{"priority": 100, "source": "10.9.0.10/32", "table": 1011}],
        });
        let other = json!({"interface": {"addresses": ["10.9.0.11/16"]}});
        let table = &separated(&[own, other], &[])[1]["rules"][0]["table"];
        assert_eq!(*table, json!(1011 + TABLES));

        // Two networks, with the same numbers in both.
        let nic = |address: &str| json!({"interface": {"addresses": [address]}});
        let nics = ["10.1.0.5/24", "10.1.0.6/24", "10.2.0.5/24", "10.2.0.6/24"].map(nic);
        let tables = separated(&nics, &[]).into_iter().map(|it| it["rules"][0]["table"].clone());
        let tables: Vec<_> = tables.collect();
        assert_eq!(tables, [json!(1005), json!(1006), json!(1005 + TABLES), json!(1006 + TABLES)]);
    }

    #[test]
    fn settings_of_the_host_are_carried_and_raised() {
        let mut host = [0; 33];
        (host[7], host[18], host[0]) = (2, 2, 1);
        let config = |interface| NetworkConfig::parse(&json!({"interface": interface})).unwrap();
        let settings = |config: &NetworkConfig, is_apart| settings_of(config, &host, is_apart);
        let free = config(json!({}));
        let some = |settings: &BTreeMap<u16, i32>| [8, ANNOUNCE, IGNORE].map(|it| settings[&it]);
        assert_eq!(some(&settings(&free, false)), [2, 0, 2]);
        assert_eq!(some(&settings(&free, true)), [2, 2, 2]);
        assert!(!settings(&free, true).contains_key(&1), "forwarding");
        let asked = config(json!({"arpIgnore": 0, "arpAnnounce": 0}));
        let settings = settings(&asked, true);
        assert!(!settings.contains_key(&IGNORE) && !settings.contains_key(&ANNOUNCE));
    }

    #[test]
    fn nics_on_different_networks_and_in_routing_domains_stay_as_they_are() {
        let apart = ["10.1.0.5/24", "10.2.0.5/24"]
            .map(|address| json!({"interface": {"addresses": [address]}}));
        assert_eq!(separated(&apart, &[]), apart);
        let domain = |name: &str, address: &str| json!({"interface": {"addresses": [address], "vrf": {"name": name}}});
        let domains = [domain("red", "10.1.0.5/24"), domain("blue", "10.1.0.6/24")];
        assert_eq!(separated(&domains, &[]), domains);
    }
}
