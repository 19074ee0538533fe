//! Per-interface settings of the kernel, for the thread's own namespace
//! (`Documentation/networking/ip-sysctl.rst`).

use crate::kernel::attach::AttachError;
use cluster_model::network_config::InterfaceConfig;
use std::fs;
use std::net::IpAddr;

/// Settings of the whole namespace for interfaces in a routing domain (VRF): a server
/// that listens on every address then also answers in the domain
/// (`Documentation/networking/vrf.rst`).
const DOMAIN: [&str; 2] = ["tcp_l3mdev_accept", "udp_l3mdev_accept"];

/// Whether the configuration has any kernel settings.
pub(super) fn has_any(config: &InterfaceConfig) -> bool {
    config.vrf.is_some() || !settings(config).is_empty()
}

/// Lets servers of the thread's namespace answer in its routing domains (VRFs).
pub(super) fn accept_in_domains() -> Result<(), AttachError> {
    DOMAIN.iter().try_for_each(|name| {
        let path = format!("/proc/sys/net/ipv4/{name}");
        fs::write(&path, "1")
            .map_err(|source| AttachError::system(format!("write `{path}`"), source))
    })
}

/// Writes the configured settings, before the interface is up.
pub(super) fn apply(link: &str, config: &InterfaceConfig) -> Result<(), AttachError> {
    for (family, name, value) in settings(config) {
        let path = format!("/proc/sys/net/{family}/conf/{link}/{name}");
        fs::write(&path, value.to_string())
            .map_err(|source| AttachError::system(format!("write `{path}`"), source))?;
    }
    Ok(())
}

/// Family, name and value of each configured setting.
fn settings(config: &InterfaceConfig) -> Vec<(&'static str, &'static str, u8)> {
    let mut settings = Vec::new();
    settings.extend(config.arp_ignore.map(|value| ("ipv4", "arp_ignore", value)));
    settings.extend(config.arp_announce.map(|value| ("ipv4", "arp_announce", value)));
    if let Some(forwarding) = config.forwarding {
        settings.push(("ipv4", "forwarding", forwarding.into()));
        let has_v6 = config.addresses.iter().any(|prefix| matches!(prefix.address, IpAddr::V6(_)));
        settings.extend(has_v6.then_some(("ipv6", "forwarding", forwarding.into())));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kernel_settings_need_the_hook() {
        for (config, expected) in [
            (json!({}), false),
            (json!({"mtu": 1400, "addresses": ["10.0.0.1/24"]}), false),
            (json!({"arpIgnore": 1}), true),
            (json!({"forwarding": false}), true),
            (json!({"vrf": {"name": "blue"}}), true),
        ] {
            let parsed: InterfaceConfig = serde_json::from_value(config.clone()).unwrap();
            assert_eq!(has_any(&parsed), expected, "{config}");
        }
    }
}
