//! What each node would give for a claim.

use cluster_model::predict::{Prediction, predict};
use cluster_model::view::ClusterView;
use dra_allocator::{Claim, ClaimAllocation};

/// The nodes that are there.
pub(crate) fn nodes(view: &ClusterView) -> impl Iterator<Item = &str> {
    let names = view.inventory().node_names().map(|name| &**name);
    names.filter(|name| !view.is_remembered(name))
}

/// The devices of a node that the claim would get now, or why it gets none.
pub(crate) fn devices(view: &ClusterView, node: &str, claim: &Claim) -> String {
    match predict(view, node, std::slice::from_ref(claim)) {
        Prediction::Fits { allocations, is_exact } => {
            let devices: String = allocations.iter().map(results).collect();
            if is_exact { devices } else { format!("{devices} (one of several choices)") }
        }
        Prediction::NoFit(reason) => format!("does not fit: {reason}"),
        Prediction::Unknown(reason) => format!("not known: {reason}"),
    }
}

fn results(allocation: &ClaimAllocation) -> String {
    let results = allocation
        .results
        .iter()
        .map(|result| format!("{} {}", result.device.driver, result.device.device));
    results.collect::<Vec<_>>().join(", ")
}
