//! Warns about the address pool of a pod's NICs. The pool may be created after the pod, so a pod
//! whose pool does not exist is admitted with a warning.

use crate::intent::Intent;
use cluster_model::network_config::NetworkConfig;
use cluster_model::view::{ClusterView, KnownPool};

/// Returns a warning if the pod cannot start now because of its pool.
pub(crate) fn warning(intent: &Intent, namespace: &str, view: &ClusterView) -> Option<String> {
    let config = NetworkConfig::from_json(intent.nic_config.as_ref()?.as_bytes()).ok()?;
    let pool = config.interface.pool?;
    match view.nic_pools().get(&pool)? {
        KnownPool::Missing => {
            let names: Vec<_> = view.nic_pools().names().map(|name| format!("`{name}`")).collect();
            let there = if names.is_empty() {
                "has none".to_owned()
            } else {
                format!("has {}", names.join(", "))
            };
            Some(format!(
                "there is no NicPool `{pool}`; the cluster {there}: the pod does not start before \
                 the NicPool is created"
            ))
        }
        KnownPool::Invalid(why) => Some(format!(
            "NicPool `{pool}` is invalid and gives no addresses: {why}; the pod does not start \
             before the NicPool is corrected"
        )),
        KnownPool::For(Some(namespaces)) if !namespaces.iter().any(|it| it == namespace) => {
            Some(format!(
                "NicPool `{pool}` gives no addresses to namespace `{namespace}`: the pod does not \
                 start before the NicPool's field namespaces names it"
            ))
        }
        KnownPool::For(_) => None,
    }
}
