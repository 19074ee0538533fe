//! The score of a node: how many of its whole cells stay whole after the
//! predicted allocation.
//!
//! A cell (a NUMA node with its GPUs and NICs) that is touched can no longer
//! serve a pod that wants all of it, so pods are led to cells that are broken
//! already. Constraints in the claim keep every choice aligned; this only
//! decides where.

use crate::wire::{HostPriority, SCORE_MAX};
use cluster_model::node_devices::NodeDevices;
use cluster_model::predict::{Prediction, open_claims, predict_each};
use cluster_model::view::ClusterView;
use dra_allocator::ClaimAllocation;
use k8s_openapi::api::core::v1::Pod;
use topology_graph::Level;

/// The score where nothing is known: neither drawn to nor away.
pub const NEUTRAL: i64 = SCORE_MAX / 2;

/// Why a node has its score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// From the allocation that the scheduler would make.
    Predicted,
    /// From one of several that it may make.
    Likely,
    /// From nothing: the node has no graph, or its future is not known.
    Unknown,
}

/// Scores every node for a pod. Empty where the pod has no claim to predict,
/// which the scheduler takes as no opinion.
pub fn prioritize(pod: &Pod, nodes: &[String], view: &ClusterView) -> Vec<(HostPriority, Basis)> {
    let claims = match open_claims(pod, view) {
        Ok(claims) if claims.is_empty() => return Vec::new(),
        Ok(claims) => claims,
        Err(reason) => {
            tracing::debug!(reason, "No prediction");
            return nodes.iter().map(|node| (priority(node, NEUTRAL), Basis::Unknown)).collect();
        }
    };
    let mut predictions = predict_each(view, nodes.iter().map(String::as_str), &claims);
    let score = |node: &String| match score(node, predictions.remove(node.as_str()), view) {
        Some((score, basis)) => (priority(node, score), basis),
        None => (priority(node, NEUTRAL), Basis::Unknown),
    };
    nodes.iter().map(score).collect()
}

fn priority(node: &str, score: i64) -> HostPriority {
    HostPriority { host: node.to_owned(), score }
}

fn score(node: &str, prediction: Option<Prediction>, view: &ClusterView) -> Option<(i64, Basis)> {
    let devices = NodeDevices::of(view, node)?;
    match prediction? {
        Prediction::Fits { allocations, is_exact } => {
            let basis = if is_exact { Basis::Predicted } else { Basis::Likely };
            Some((kept(&devices, view, &allocations), basis))
        }
        // The scheduler found room where the view has none: the view is behind.
        Prediction::NoFit(reason) | Prediction::Unknown(reason) => {
            tracing::debug!(node, reason, "No prediction");
            None
        }
    }
}

/// [`SCORE_MAX`] when no whole cell is broken, 0 when every cell of the node is.
fn kept(devices: &NodeDevices<'_>, view: &ClusterView, allocations: &[ClaimAllocation]) -> i64 {
    let mut in_use = view.inventory().state().clone();
    let before = devices.whole_cells(Level::Numa, &in_use);
    let results = allocations.iter().flat_map(|allocation| &allocation.results);
    for result in results.filter(|result| !result.admin_access) {
        in_use.insert(result.device.clone());
    }
    let broken = before - devices.whole_cells(Level::Numa, &in_use);
    let cells = devices.cells(Level::Numa).len().max(1);
    let share = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    SCORE_MAX - SCORE_MAX * share(broken) / share(cells)
}
