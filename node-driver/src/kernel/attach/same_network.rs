//! Routes for a pod with several NICs on one network, whatever gave them their addresses. Pure.
//!
//! The kernel sends to a network by the first of its interfaces there, and answers ARP for each
//! of its addresses on all of them. A NIC that another one of the pod answers for is not reached
//! on its own wire. So each of them gets a table that its own address selects, and answers for
//! itself only (`Documentation/networking/ip-sysctl.rst`: `arp_ignore`, `arp_announce`).

use crate::kernel::attach::dhcp::Leases;
use crate::kernel::attach::own_table;
use crate::kernel::attach::pod_settings::PodSettings;
use crate::model::plan::{Plan, PlannedDevice, PlannedLink};
use cluster_model::network_config::{IpPrefix, NetworkConfig, RouteConfig};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The configuration of one interface in its pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Apart {
    /// Its configuration, with rules and routes if another NIC of the pod is on its network.
    pub(super) config: NetworkConfig,
    /// The kernel's settings of it.
    pub(super) settings: PodSettings,
}

/// The configurations of a claim's interfaces. `leases` are the addresses from DHCP servers, `kept` those
/// that the pod reaches by its own network.
pub(super) fn apart(plan: &Plan, leases: &Leases, kept: &[IpAddr]) -> Vec<Apart> {
    let mut own: Vec<NetworkConfig> = plan.links().map(|link| with_lease(link, leases)).collect();
    let mut taken: BTreeSet<u32> = own.iter().flat_map(own_table::tables).collect();
    for (config, link) in own.iter_mut().zip(plan.links()) {
        let kept: Vec<_> = kept.iter().chain(&link.host.servers).copied().collect();
        own_table::set_aside(config, &link.host, &kept, &taken);
        taken.extend(own_table::tables(config));
    }
    let beside = plan.wiring.beside.iter().flat_map(|claim| &claim.devices);
    let beside: Vec<IpPrefix> = beside.flat_map(addresses).collect();
    let separated = separate(&own, &beside).into_iter().zip(plan.links());
    separated.map(|((config, is_apart), link)| Apart::new(config, is_apart, link)).collect()
}

impl Apart {
    fn new(mut config: NetworkConfig, is_apart: bool, link: &PlannedLink) -> Self {
        let host = link.child.is_none().then_some(&link.host.settings);
        let settings = PodSettings::new(&config.interface, host, is_apart);
        // DHCP itself adds and renews its address.
        config.interface.addresses.clone_from(&link.config.interface.addresses);
        Self { config, settings }
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

/// Adds rules and routes to the NICs whose network has another NIC of the pod, of this claim or with
/// one of the addresses `beside`. Says of each whether it is one of them, by IPv4.
fn separate(configs: &[NetworkConfig], beside: &[IpPrefix]) -> Vec<(NetworkConfig, bool)> {
    let mut taken: BTreeSet<u32> = configs.iter().flat_map(own_table::tables).collect();
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
                taken.extend(own_table::tables(&config));
            }
        }
        separated.push((config, is_apart));
    }
    separated
}

fn add_table(config: &mut NetworkConfig, own: IpPrefix, taken: &BTreeSet<u32>) {
    // A routing domain has a table of its own.
    if config.interface.vrf.is_some() || own_table::table_of(config, own).is_some() {
        return;
    }
    let mut copies: Vec<RouteConfig> =
        own_table::in_main(config, own.address.is_ipv4()).cloned().collect();
    let table = own_table::give(config, own, taken);
    for route in &mut copies {
        route.table = table;
    }
    config.routes.extend(copies);
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
        assert_eq!(*table, json!(1011 + own_table::TABLES));

        // Two networks, with the same numbers in both.
        let nic = |address: &str| json!({"interface": {"addresses": [address]}});
        let nics = ["10.1.0.5/24", "10.1.0.6/24", "10.2.0.5/24", "10.2.0.6/24"].map(nic);
        let tables = separated(&nics, &[]).into_iter().map(|it| it["rules"][0]["table"].clone());
        let tables: Vec<_> = tables.collect();
        assert_eq!(
            tables,
            [
                json!(1005),
                json!(1006),
                json!(1005 + own_table::TABLES),
                json!(1006 + own_table::TABLES)
            ]
        );
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
