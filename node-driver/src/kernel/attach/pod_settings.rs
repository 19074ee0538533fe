//! The kernel's settings of an interface in a pod: those that it takes from the host, and those without
//! which the NIC's network would change where the pod's traffic goes. Pure.

use crate::model::host_link::LinkSettings;
use cluster_model::network_config::InterfaceConfig;
use std::collections::BTreeMap;

/// `IPV4_DEVCONF_RP_FILTER`, `…_ARPFILTER`, `…_ARP_ANNOUNCE`, `…_ARP_IGNORE`, `…_ARP_ACCEPT`,
/// `…_ARP_NOTIFY`, `…_ACCEPT_LOCAL`, `…_SRC_VMARK` and `…_IGNORE_ROUTES_WITH_LINKDOWN`
/// (`include/uapi/linux/ip.h`): the settings that an interface takes from the host into a pod.
const CARRIED: [u16; 9] = [8, 13, ANNOUNCE, IGNORE, 21, NOTIFY, 23, 24, 29];
const ANNOUNCE: u16 = 18;
const IGNORE: u16 = 19;
const NOTIFY: u16 = 22;

/// `IPV4_DEVCONF_FORWARDING`, `…_PROXY_ARP`, `…_ACCEPT_REDIRECTS`, `…_ACCEPT_SOURCE_ROUTE` and
/// `…_ROUTE_LOCALNET`: they make the pod a router, or let neighbours choose its routes. A new namespace
/// has them as the host's administrator meant them for the host.
const OFF: [u16; 5] = [FORWARDING, 3, 4, 9, 26];
const FORWARDING: u16 = 1;

/// The settings of IPv6 that an interface takes from the host into a pod.
const CARRIED_IPV6: [&str; 4] =
    ["accept_dad", "addr_gen_mode", "dad_transmits", "keep_addr_on_down"];

/// The settings of IPv6 that make the pod a router, or let routers on the NIC's network give it addresses
/// and routes.
const OFF_IPV6: [&str; 6] =
    ["accept_ra", "accept_redirects", "autoconf", "forwarding", "proxy_ndp", "use_tempaddr"];

/// Settings of one interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodSettings {
    /// Those of IPv4, by their numbers.
    pub(super) ipv4: BTreeMap<u16, i32>,
    /// Those of IPv6, by their files.
    pub(super) ipv6: BTreeMap<&'static str, String>,
}

impl PodSettings {
    /// The settings of an interface that the host had with these, if it is the host's, and that must
    /// answer for itself only, if it is apart. Configured ones are written later.
    pub(super) fn new(
        config: &InterfaceConfig,
        host: Option<&LinkSettings>,
        is_apart: bool,
    ) -> Self {
        let ipv4 = ipv4(config, host.map_or(&[][..], |host| &host.ipv4), is_apart);
        Self { ipv4, ipv6: ipv6(config, host) }
    }
}

/// At least what an interface that is apart needs.
fn ipv4(config: &InterfaceConfig, host: &[i32], is_apart: bool) -> BTreeMap<u16, i32> {
    let carried = CARRIED.iter();
    let carried = carried.filter_map(|it| Some((*it, *host.get(usize::from(*it) - 1)?)));
    let mut settings: BTreeMap<u16, i32> = carried.chain(OFF.map(|it| (it, 0))).collect();
    for (number, least) in [(IGNORE, 1), (ANNOUNCE, 2)] {
        let value = settings.entry(number).or_default();
        *value = if is_apart { least.max(*value) } else { *value };
    }
    // The kernel tells neighbours when the interface is set up: another one may have had its addresses.
    settings.insert(NOTIFY, 1);
    for (number, is_asked) in [
        (IGNORE, config.arp_ignore.is_some()),
        (ANNOUNCE, config.arp_announce.is_some()),
        (FORWARDING, config.forwarding.is_some()),
    ] {
        if is_asked {
            settings.remove(&number);
        }
    }
    settings
}

fn ipv6(config: &InterfaceConfig, host: Option<&LinkSettings>) -> BTreeMap<&'static str, String> {
    let carried =
        CARRIED_IPV6.iter().filter_map(|name| Some((*name, host?.ipv6.get(*name)?.clone())));
    let off = OFF_IPV6.map(|name| (name, "0".to_owned()));
    let mut settings: BTreeMap<_, _> = carried.chain(off).collect();
    // Other modes make addresses of a secret that the pod's network does not have.
    if !matches!(settings.get("addr_gen_mode").map(String::as_str), Some("0" | "1")) {
        settings.remove("addr_gen_mode");
    }
    if config.accept_router_advertisements == Some(true) {
        // A router accepts them only with 2.
        let accept = if config.forwarding == Some(true) { "2" } else { "1" };
        settings.insert("accept_ra", accept.to_owned());
        settings.insert("autoconf", "1".to_owned());
    }
    if config.forwarding.is_some() {
        settings.remove("forwarding");
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn settings(config: Value, host: &LinkSettings, is_apart: bool) -> PodSettings {
        let config: InterfaceConfig = serde_json::from_value(config).unwrap();
        PodSettings::new(&config, Some(host), is_apart)
    }

    #[test]
    fn settings_of_the_host_are_carried_and_raised() {
        let mut host = LinkSettings { ipv4: vec![0; 33], ..LinkSettings::default() };
        (host.ipv4[7], host.ipv4[18], host.ipv4[0]) = (2, 2, 1);
        let some =
            |settings: &PodSettings| [8, ANNOUNCE, IGNORE, FORWARDING].map(|it| settings.ipv4[&it]);
        assert_eq!(some(&settings(json!({}), &host, false)), [2, 0, 2, 0]);
        assert_eq!(some(&settings(json!({}), &host, true)), [2, 2, 2, 0]);
        let asked = json!({"arpIgnore": 0, "arpAnnounce": 0, "forwarding": true});
        let asked = settings(asked, &host, true).ipv4;
        assert!([IGNORE, ANNOUNCE, FORWARDING].iter().all(|it| !asked.contains_key(it)));
    }

    /// Whatever the host has: by them the NIC's network would change where the pod's traffic goes.
    #[test]
    fn routers_are_heard_only_if_the_claim_asks() {
        let names = OFF_IPV6.iter().chain(&CARRIED_IPV6);
        let host = names.map(|name| ((*name).to_owned(), "1".to_owned())).collect();
        let host = LinkSettings { ipv6: host, ..LinkSettings::default() };
        let quiet = settings(json!({}), &host, false).ipv6;
        assert!(OFF_IPV6.iter().all(|name| quiet[name] == "0"), "{quiet:?}");
        assert!(CARRIED_IPV6.iter().all(|name| quiet[name] == "1"), "{quiet:?}");
        for (forwarding, accept) in [(false, "1"), (true, "2")] {
            let asked = json!({"acceptRouterAdvertisements": true, "forwarding": forwarding});
            let asked = settings(asked, &host, false).ipv6;
            assert_eq!((&*asked["accept_ra"], &*asked["autoconf"]), (accept, "1"));
            assert!(!asked.contains_key("forwarding") && asked["use_tempaddr"] == "0");
        }
    }
}
