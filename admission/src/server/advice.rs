//! The second webhook: takes a hand-written claim or template, returns warnings. It never
//! denies.

use crate::lint::{Severity, lint};
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

/// The findings on the claim, as warnings. `gone` ends the examination: nobody waits for it.
pub(super) fn advise(
    request: &AdmissionRequest<DynamicObject>,
    view: &ClusterView,
    max_steps: u64,
    gone: &CancellationToken,
) -> AdmissionResponse {
    let mut response = AdmissionResponse::from(request);
    let Some(claim) = request.object.as_ref().and_then(claim) else { return response };
    let end = Instant::now() + EXAMINED;
    let stop = || Instant::now() >= end || gone.is_cancelled();
    let findings = match lint(&claim, view, max_steps, &Budget::until(&stop)) {
        Ok(findings) => findings,
        Err(error) => {
            tracing::info!(%error, "Invalid claim");
            return response;
        }
    };
    let mut left = WARNINGS_MAX;
    let warnings = findings.iter().map(|finding| match finding.severity {
        // Clients print `Warning:` before each.
        Severity::Warning => finding.to_string(),
        severity => format!("{severity}: {finding}"),
    });
    let warnings: Vec<_> = warnings
        .take_while(|warning| {
            let fits = warning.len() <= left;
            left = left.saturating_sub(warning.len());
            fits
        })
        .collect();
    response.warnings = (!warnings.is_empty()).then_some(warnings);
    response
}

/// The spec of a claim, or of the claims that a template creates.
fn claim(object: &DynamicObject) -> Option<ResourceClaimSpec> {
    let spec: &Value = &object.data["spec"];
    let of_template = object.types.as_ref().is_some_and(|it| it.kind == "ResourceClaimTemplate");
    let spec = if of_template { &spec["spec"] } else { spec };
    serde_json::from_value(spec.clone()).ok()
}
