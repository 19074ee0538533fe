//! The second webhook: takes a hand-written claim or template, returns warnings. It never
//! denies.

use crate::lint::lint;
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use serde_json::Value;

/// Total bytes of warnings, below the limit at which the API server truncates them
/// (`truncateAtTotalRunes` of its warning recorder), with room for those of others.
const WARNINGS_MAX: usize = 3 * 1024;

/// The findings on the claim, as warnings.
pub(super) fn advise(
    request: &AdmissionRequest<DynamicObject>,
    view: &ClusterView,
    max_steps: u64,
) -> AdmissionResponse {
    let mut response = AdmissionResponse::from(request);
    let Some(claim) = request.object.as_ref().and_then(claim) else { return response };
    let findings = match lint(&claim, view, max_steps) {
        Ok(findings) => findings,
        Err(error) => {
            tracing::info!(%error, "Invalid claim");
            return response;
        }
    };
    let mut left = WARNINGS_MAX;
    let warnings = findings.iter().map(|finding| format!("{}: {finding}", finding.severity));
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
