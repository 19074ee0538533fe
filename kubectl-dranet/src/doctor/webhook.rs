//! Whether the API server calls the webhook.

use super::checks::Outcome;
use super::scene::Scene;
use crate::live::Cluster;
use crate::reply::Probe;
use cluster_model::names::{annotation, object};
use serde_json::json;

/// Creates a pod that the webhook denies, as a dry run.
pub(super) fn ask(_: &Scene<'_>, cluster: &Cluster) -> anyhow::Result<Outcome> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "dranet-doctor-",
            "annotations": { annotation::ALIGNED_NICS: "asked-by-doctor" },
        },
        "spec": { "containers": [{ "name": "main", "image": "main" }] },
    });
    let mut outcome = Outcome::default();
    let place = format!("webhook {}", object::WEBHOOK);
    match cluster.dry_run_pod(&cluster.default_namespace(), &pod)? {
        Probe::Refused(why) if why.contains(annotation::ALIGNED_NICS) => {}
        Probe::NoRight => {
            outcome.skipped = Some("you may not create pods in your namespace".to_owned());
        }
        Probe::Created(_) => outcome.findings.error(
            place,
            "is not called, so annotated pods are created without devices; apply \
             deploy/manifests/webhook.yaml",
        ),
        Probe::Refused(why) => {
            outcome.findings.error(place, format!("failed for a test pod (dry run): {why}"));
        }
    }
    Ok(outcome)
}
