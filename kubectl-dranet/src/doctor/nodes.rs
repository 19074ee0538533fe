//! Whether there are nodes, and whether they take pods.

use super::finding::Findings;
use super::scene::Scene;
use crate::answer::Severity;
use std::collections::BTreeSet;

/// Findings about missing nodes and nodes that are not ready.
pub(super) fn examine(scene: &Scene<'_>, found: &mut Findings) {
    if scene.census.nodes == 0 {
        return found.error("the cluster", "has no node, or none that you may read");
    }
    let down: BTreeSet<&str> = scene
        .view
        .present_nodes()
        .filter(|node| scene.facts.facts(node).is_some_and(|it| it.not_ready.is_some()))
        .collect();
    found.on(&down, "is not ready, so no pod is scheduled there; see `kubectl describe node`");
    if let Some(finding) = found.0.last_mut().filter(|_| down.len() == scene.census.nodes) {
        finding.severity = Severity::Error;
    }
}
