//! Per-interface settings of the kernel, for the thread's own namespace
//! (`Documentation/networking/ip-sysctl.rst`).

use crate::attach::AttachError;
use cluster_model::network_config::InterfaceConfig;
use std::fs;
use std::net::IpAddr;

/// Whether the configuration names any.
pub(super) fn has_any(config: &InterfaceConfig) -> bool {
    !settings(config).is_empty()
}

/// Writes what the configuration names, before the interface is up.
pub(super) fn apply(link: &str, config: &InterfaceConfig) -> Result<(), AttachError> {
    for (family, name, value) in settings(config) {
        let path = format!("/proc/sys/net/{family}/conf/{link}/{name}");
        fs::write(&path, value.to_string())
            .map_err(|source| AttachError::system(format!("write `{path}`"), source))?;
    }
    Ok(())
}

/// Family, name and value of each.
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
