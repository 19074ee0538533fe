//! All settings of a host's interface that a pod's use may change.
//!
//! A new one implements `Setting` in a file of its own and has a row here, a field in [`HostLink`], and a row
//! in the table of `docs/reference/network-configuration.md`, which a test compares.

use crate::kernel::attach::attributes::{
    ALIAS, BROADCAST, GROUP, HARDWARE_ADDRESS, LINK_MODE, MTU, QUEUE_LENGTH, SEGMENT_SIZES,
    SEGMENTS,
};
use crate::kernel::attach::ethtool::features::{Features, PrivateFlags};
use crate::kernel::attach::ethtool::numbers::{CHANNELS, COALESCING, RINGS};
use crate::kernel::attach::flags::{ARP, MULTICAST, RECEIVE_ALL};
use crate::kernel::attach::names::{AlternativeNames, Name};
use crate::kernel::attach::setting::{Found, Home, Setting};
use crate::kernel::attach::{
    AttachError, addresses, ebpf, ip_settings, napi, neighbor_settings, neighbors, routes, up,
};
use crate::model::host_link::HostLink;

/// The settings, in the order in which they are restored.
const SETTINGS: &[&dyn Setting] = &[
    // First, because the others are written by name.
    &Name,
    &AlternativeNames,
    &ALIAS,
    &QUEUE_LENGTH,
    &GROUP,
    &LINK_MODE,
    &BROADCAST,
    &SEGMENTS,
    &RECEIVE_ALL,
    &ARP,
    &MULTICAST,
    &ebpf::Programs,
    &MTU,
    &HARDWARE_ADDRESS,
    &SEGMENT_SIZES,
    &Features,
    &PrivateFlags,
    &CHANNELS,
    &RINGS,
    &COALESCING,
    &ip_settings::IpSettings,
    // The kernel refuses one if its IPv6 settings say that routers are not heard.
    &ip_settings::Token,
    &neighbor_settings::NeighborTables,
    &addresses::Addresses,
    &up::Up,
    // Those of an interface that is down are refused.
    &routes::Routes,
    &neighbors::Neighbors,
    // Last, because instances exist only while the interface is up, for its channels.
    &napi::Polling,
];

/// A setting that the kernel refused to restore.
#[derive(Debug, thiserror::Error)]
#[error("{setting}")]
pub struct NotRestored {
    /// The name of the setting.
    pub setting: &'static str,
    /// Why.
    pub source: AttachError,
}

/// The names of all settings.
pub fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|setting| setting.name())
}

/// Reads all settings of an interface into its state.
pub(super) fn read(found: &Found<'_>, host: &mut HostLink) {
    for setting in SETTINGS {
        setting.read(found, host);
    }
}

/// Restores all settings, each independently. Returns those that the kernel refused.
pub(super) async fn restore(home: &Home<'_>) -> Vec<NotRestored> {
    let mut refused = Vec::new();
    for setting in SETTINGS {
        let failed = setting.restore(home).await.into_iter().filter_map(Result::err);
        refused.extend(failed.map(|source| NotRestored { setting: setting.name(), source }));
    }
    refused
}
