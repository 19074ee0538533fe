//! Annotations that have no effect where they are: on a workload itself, misspelt in its pod template, or
//! changed on a pod that waits with the claim of the former ones.

use super::finding::Findings;
use super::scene::Scene;
use crate::kinds::{Query, WITH_PODS};
use admission::misplaced::of_workload;
use admission::reapplied;
use cluster_model::view::ObjectKey;
use serde_json::Value;

/// The names of the kinds that are read.
pub(super) const KINDS: [&str; 5] = ["CronJob", "DaemonSet", "Deployment", "Job", "StatefulSet"];

/// The workloads to read.
pub(super) fn queries() -> Vec<Query> {
    WITH_PODS.map(|kind| kind.all("their annotations are not checked")).to_vec()
}

pub(super) fn examine(scene: &Scene<'_>, found: &mut Findings) {
    for workload in &scene.workloads {
        for warning in of_workload(workload) {
            found.warning(place(workload), format!("has an annotation without effect: {warning}"));
        }
    }
    for pod in &scene.waiting {
        let value = serde_json::to_value(pod).unwrap_or_default();
        if let Some(warning) = reapplied::warning(&value) {
            let place = format!("pod {}", ObjectKey::new(&pod.metadata));
            found.warning(place, format!("has changed annotations: {warning}"));
        }
    }
}

fn place(workload: &Value) -> String {
    let metadata = &workload["metadata"];
    let [kind, namespace, name] = [&workload["kind"], &metadata["namespace"], &metadata["name"]]
        .map(|field| field.as_str().unwrap_or_default());
    format!("{kind} {namespace}/{name}")
}
