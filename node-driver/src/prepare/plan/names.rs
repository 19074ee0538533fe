//! The names of a pod's interfaces.

use super::Plan;
use crate::prepare::claim::AllocatedClaim;
use crate::prepare::host_link::HostLink;
use cluster_model::network_config::{LinkName, LinkNamePattern, NetworkConfig};
use std::collections::BTreeSet;

/// The interface that the network plugin makes in every pod: containerd and CRI-O call it so.
const PLUGIN_INTERFACE: &str = "eth0";

/// The names that are taken in a pod, before its plugin's interfaces.
#[derive(Debug)]
pub(super) struct PodNames {
    taken: BTreeSet<LinkName>,
}

impl PodNames {
    /// The names that these configurations of the claim's devices ask for, and those of the pod's
    /// other claims.
    pub(super) fn of(claim: &AllocatedClaim, configs: &[NetworkConfig], held: &[&Plan]) -> Self {
        let asked = configs.iter().filter_map(|config| config.interface.name.as_ref()?.single());
        let others = held.iter().filter(|plan| plan.pods.iter().any(|it| claim.pods.contains(it)));
        let others = others.flat_map(|plan| plan.links()).map(|link| link.name.clone());
        Self { taken: asked.chain(others).collect() }
    }

    /// The name that is asked for, otherwise the host's if pods can have it, otherwise a number.
    pub(super) fn choose(&mut self, host: &HostLink, config: &NetworkConfig) -> LinkName {
        let own = || host.name.parse().ok().filter(|_| host.name != PLUGIN_INTERFACE);
        let pattern = config.interface.name.clone().or_else(own);
        let pattern = pattern.unwrap_or_else(LinkNamePattern::fallback);
        let name = pattern.lowest(|name| self.taken.contains(name));
        self.taken.insert(name.clone());
        name
    }
}
