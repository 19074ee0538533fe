//! Whether there are nodes, and whether they take pods.

use crate::answer::{DoctorFinding, Severity};
use crate::predicted::nodes;
use crate::source::Seen;
use cluster_model::room::Nodes;
use std::collections::BTreeSet;

/// Findings about missing nodes and nodes that are not ready.
pub(super) fn examine(seen: &Seen, facts: &Nodes) -> Vec<DoctorFinding> {
    let all: BTreeSet<&str> = nodes(&seen.view).collect();
    if all.is_empty() {
        let message = "has no node, or none that you may read";
        return vec![DoctorFinding::new(Severity::Error, "the cluster", message)];
    }
    let down: BTreeSet<&str> = all
        .iter()
        .filter(|node| facts.facts(node).is_some_and(|it| it.not_ready.is_some()))
        .copied()
        .collect();
    let message = "not ready, so no pod is scheduled there; see `kubectl describe node`";
    let found = DoctorFinding::on(&down, ("is", "are"), message);
    let severity = if down.len() == all.len() { Severity::Error } else { Severity::Warning };
    found.into_iter().map(|finding| DoctorFinding { severity, ..finding }).collect()
}
