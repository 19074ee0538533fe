//! The names of a pod's interfaces.

use crate::model::host_link::HostLink;
use crate::model::plan::Plan;
use crate::prepare::claim::AllocatedClaim;
use cluster_model::network_config::{LinkName, LinkNamePattern, NetworkConfig};
use std::collections::BTreeSet;

/// The interface that the network plugin makes in every pod: containerd and CRI-O call it so.
const PLUGIN_INTERFACE: &str = "eth0";

/// The names in a pod that are taken by NICs.
#[derive(Debug)]
pub(super) struct PodNames {
    taken: BTreeSet<LinkName>,
}

impl PodNames {
    /// The names that these configurations of the claim's devices ask for, and those of the pod's
    /// other claims.
    pub(super) fn new(claim: &AllocatedClaim, configs: &[NetworkConfig], held: &[&Plan]) -> Self {
        let asked = configs.iter().filter_map(|config| config.interface.name.as_ref()?.single());
        let others = held.iter().filter(|plan| plan.pods.iter().any(|it| claim.pods.contains(it)));
        let others = others.flat_map(|plan| plan.links()).map(|link| link.name.clone());
        Self { taken: asked.chain(others).collect() }
    }

    /// The name that is asked for, otherwise the host's if pods can have it, otherwise a number.
    pub(super) fn choose(&mut self, host: &HostLink, config: &NetworkConfig) -> LinkName {
        let asked = config.interface.name.clone();
        let pattern = asked.or_else(|| own_name(host)).unwrap_or_else(LinkNamePattern::fallback);
        let name = pattern.lowest(|name| self.taken.contains(name));
        self.taken.insert(name.clone());
        name
    }
}

/// The host's name, if pods can have it: the kernel allows more characters than a configuration.
fn own_name(host: &HostLink) -> Option<LinkNamePattern> {
    let name: LinkName = host.name.parse().ok()?;
    (name.as_str() != PLUGIN_INTERFACE).then(|| name.into())
}
