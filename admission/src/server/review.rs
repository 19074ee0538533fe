//! The wire's edge: an admission request in, an admission response and perhaps
//! a template out.

use super::plans::Plans;
use super::recent::RecentPins;
use crate::admit::{AdmitError, admit_by};
use crate::intent::Intent;
use crate::plan::Policy;
use crate::rewrite;
use cluster_model::placement::Placement;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use process::chain::Chain;
use serde_json::Value;

/// What the API server is told, and what must be there before it is.
#[derive(Debug)]
pub struct Answer {
    /// The response.
    pub response: AdmissionResponse,
    /// The template of the patched pod.
    pub template: Option<NeededTemplate>,
}

/// A pod's template and the join that it was planned by.
#[derive(Debug)]
pub struct NeededTemplate {
    /// Where it is.
    pub key: ObjectKey,
    /// The object, without a namespace; `None` where it is known to be there.
    pub template: Option<ResourceClaimTemplate>,
    /// Name of the join, where the plan was made now.
    pub join: Option<&'static str>,
}

/// Decides on a request.
pub fn answer(
    request: &AdmissionRequest<DynamicObject>,
    view: &ClusterView,
    policy: &Policy,
    plans: &Plans,
    recent: &RecentPins,
) -> Answer {
    let response = AdmissionResponse::from(request);
    let refuse = |response: AdmissionResponse, why: String| Answer {
        response: response.deny(why),
        template: None,
    };
    let Some(object) = &request.object else {
        return refuse(response, "the request holds no pod".to_owned());
    };
    let pod = match serde_json::to_value(object) {
        Ok(pod) => in_namespace(pod, request.namespace.as_deref()),
        Err(error) => return refuse(response, format!("failed to read the pod: {error}")),
    };
    let plan = |intent: &Intent, place: &Placement| plans.plan(intent, place, view, policy);
    let verdict = match admit_by(&pod, view, policy, plan, |template| recent.of(template)) {
        Ok(verdict) => verdict,
        Err(AdmitError::Denied(denial)) => return refuse(response, denial.to_string()),
        Err(error) => return refuse(response, Chain(&error).to_string()),
    };
    let planned = verdict.planned.as_ref().filter(|it| !it.plan.pins.is_empty());
    if let Some(name) = planned.and_then(|it| it.template.metadata.name.as_deref())
        && !request.dry_run
    {
        recent.add(name);
    }
    let mut response = response;
    response.warnings = (!verdict.warnings.is_empty()).then_some(verdict.warnings);
    let patch = rewrite::patch(&pod, &verdict.pod);
    let response = match response.clone().with_patch(patch) {
        Ok(patched) => patched,
        Err(error) => return refuse(response, Chain(&error).to_string()),
    };
    let join = verdict.planned.as_ref().map(|planned| planned.plan.join);
    let template = verdict.planned.map(|planned| planned.template);
    Answer {
        response,
        template: verdict.template.map(|key| NeededTemplate { key, template, join }),
    }
}

/// The pod with its namespace, which stands in the request in any case.
fn in_namespace(mut pod: Value, namespace: Option<&str>) -> Value {
    if let Some(namespace) = namespace {
        pod["metadata"]["namespace"] = namespace.into();
    }
    pod
}
