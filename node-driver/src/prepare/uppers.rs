//! The host's interfaces in pods that are on top of others of the host, such as a VLAN. The kernel no
//! longer lists them on the host, and the interfaces below must stay there all the same.

use crate::model::checkpoint::Checkpoint;
use crate::model::host_link::HostLink;
use publication::network::{Interface, NetworkFacts};

/// Adds those that claims have to the interfaces of the host.
pub(super) fn with_uppers(mut network: NetworkFacts, checkpoint: &Checkpoint) -> NetworkFacts {
    let plans = checkpoint.claims.values().map(|record| &record.plan);
    let moved = plans.flat_map(|plan| plan.links().filter(|link| link.child.is_none()));
    for HostLink { name, lower, identity, .. } in moved.map(|link| &link.host) {
        let lower = lower.as_ref().and_then(|lower| network.interface(lower));
        let Some(lower) = lower.map(|lower| lower.index) else { continue };
        network.in_pods.insert(name.clone());
        if network.interface(name).is_none() {
            let (name, kind) = (name.clone(), identity.kind.clone());
            let upper = Interface { name, kind, lower: Some(lower), ..Interface::default() };
            network.interfaces.push(upper);
        }
    }
    network
}
