//! The second webhook: takes a hand-written claim or template, a workload with our annotations or a pod
//! whose annotations are changed, and returns warnings. It never denies.

use crate::lint::{Severity, lint};
use crate::misplaced;
use cluster_model::view::ClusterView;
use dra_allocator::Budget;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Total bytes of warnings, below the limit at which the API server truncates them
/// (`truncateAtTotalRunes` of its warning recorder), with room for those of others.
const WARNINGS_MAX: usize = 3 * 1024;

/// How long a claim is examined. The API server waits for two seconds, of which a request may wait
/// one for a slot.
const EXAMINED: Duration = Duration::from_millis(700);

/// The findings on the object, as warnings. `gone` ends the examination: nobody waits for it.
pub(super) fn advise(
    request: &AdmissionRequest<DynamicObject>,
    view: &ClusterView,
    max_steps: u64,
    gone: &CancellationToken,
) -> AdmissionResponse {
    let mut response = AdmissionResponse::from(request);
    let kind = request.kind.kind.as_str();
    let found = match (kind, &request.object, &request.old_object) {
        ("ResourceClaim" | "ResourceClaimTemplate", Some(claim), _) => {
            of_claim(claim, view, max_steps, gone)
        }
        ("Pod", Some(pod), Some(before)) => misplaced::of_update(&value(before), &value(pod)),
        (_, Some(workload), _) => misplaced::of_workload(&value(workload)),
        _ => Vec::new(),
    };
    let mut left = WARNINGS_MAX;
    let warnings = found.into_iter().take_while(|warning| {
        let fits = warning.len() <= left;
        left = left.saturating_sub(warning.len());
        fits
    });
    let warnings: Vec<_> = warnings.collect();
    response.warnings = (!warnings.is_empty()).then_some(warnings);
    response
}

fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// The findings on a claim.
fn of_claim(
    object: &DynamicObject,
    view: &ClusterView,
    max_steps: u64,
    gone: &CancellationToken,
) -> Vec<String> {
    let Some(claim) = claim(object) else { return Vec::new() };
    let end = Instant::now() + EXAMINED;
    let stop = || Instant::now() >= end || gone.is_cancelled();
    let findings = match lint(&claim, view, max_steps, &Budget::until(&stop)) {
        Ok(findings) => findings,
        Err(error) => {
            tracing::info!(%error, "Invalid claim");
            return Vec::new();
        }
    };
    let warnings = findings.iter().map(|finding| match finding.severity {
        // Clients print `Warning:` before each.
        Severity::Warning => finding.to_string(),
        severity => format!("{severity}: {finding}"),
    });
    warnings.collect()
}

/// The spec of a claim, or of the claims that a template creates.
fn claim(object: &DynamicObject) -> Option<ResourceClaimSpec> {
    let spec: &Value = &object.data["spec"];
    let of_template = object.types.as_ref().is_some_and(|it| it.kind == "ResourceClaimTemplate");
    let spec = if of_template { &spec["spec"] } else { spec };
    serde_json::from_value(spec.clone()).ok()
}
