//! Predicts what each node would allocate for a claim.

use crate::text::node_list;
use cluster_model::predict::{Prediction, predict_each};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::{Claim, ClaimAllocation, ClaimName};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The existing nodes, without remembered ones.
pub(crate) fn nodes(view: &ClusterView) -> impl Iterator<Item = &str> {
    let names = view.inventory().node_names().map(|name| &**name);
    names.filter(|name| !view.is_remembered(name))
}

/// The pools of an allocated claim's devices. Pools of node-local devices have the node's
/// name.
pub(crate) fn pools_of(view: &ClusterView, claim: &ObjectKey) -> BTreeSet<String> {
    let claim = ClaimName::new(claim.namespace.as_str(), claim.name.as_str());
    view.inventory().held_by(&claim).map(|device| device.pool.to_string()).collect()
}

/// One line per group of nodes that would allocate the same devices now, or none for the
/// same reason.
pub(crate) fn devices(view: &ClusterView, claim: &Claim) -> String {
    let claims = std::slice::from_ref(claim);
    let predictions = predict_each(view, nodes(view), claims, view.inventory().state(), &|| false);
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (node, prediction) in predictions {
        groups.entry(outcome(&prediction)).or_default().push(node);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    for (_, nodes) in &mut groups {
        nodes.sort_unstable();
    }
    groups.sort_by(|(_, one), (_, other)| one.cmp(other));
    let mut out = String::new();
    for (outcome, nodes) in groups {
        let _ = writeln!(out, "{}: {outcome}", node_list(&nodes));
    }
    out
}

fn outcome(prediction: &Prediction) -> String {
    match prediction {
        Prediction::Fits { allocations, is_exact } => {
            let devices: String = allocations.iter().map(results).collect();
            if *is_exact { devices } else { format!("{devices} (one of several choices)") }
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
