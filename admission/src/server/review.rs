//! Converts an admission request into an admission response and, if needed, the template that is
//! created when the pod exists.

use super::recent::RecentPins;
use crate::admit::{self, AdmitError, Begun, Pending, Verdict};
use crate::denial::Denial;
use crate::intent::GpuResources;
use crate::plan::{Plan, Policy};
use crate::reapplied::{self, put_back};
use crate::rewrite;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse};
use process::chain::Chain;
use serde_json::Value;

/// An answer to the API server, and the template that the pod needs.
#[derive(Debug)]
pub(super) struct Answer {
    /// The response.
    pub(super) response: AdmissionResponse,
    /// The template of the patched pod.
    pub(super) template: Option<NeededTemplate>,
    /// What the pod is denied for: an annotation, its size or its format. `None` if it is admitted.
    pub(super) denied_for: Option<&'static str>,
}

/// What a pod is denied for that is larger than Kubernetes or a plan allows.
const TOO_LARGE: &str = "size";

/// What a request is denied for that cannot be read.
const MALFORMED: &str = "format";

/// A pod's template and the join of its plan.
#[derive(Debug)]
pub(super) struct NeededTemplate {
    /// Namespace and name.
    pub(super) key: ObjectKey,
    /// The object without a namespace; `None` if it is known to exist.
    pub(super) template: Option<ResourceClaimTemplate>,
    /// Name of the join, if the plan was made now.
    pub(super) join: Option<&'static str>,
}

/// A request after all checks that need no plan.
#[derive(Debug)]
pub(super) enum Review {
    /// The answer needs no plan.
    Answered(Box<Answer>),
    /// A plan is needed.
    NeedsPlan(Box<Waiting>),
}

impl From<Answer> for Review {
    fn from(answer: Answer) -> Self {
        Self::Answered(Box::new(answer))
    }
}

/// A request that waits for the plan of its pod.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The checked pod.
    pub(super) pending: Pending,
    /// The pod as received.
    pod: Value,
    response: AdmissionResponse,
    is_dry_run: bool,
}

/// Parses and checks a request.
pub(super) fn begin(
    request: &AdmissionRequest<DynamicObject>,
    view: &ClusterView,
    policy: &Policy,
) -> Review {
    let response = AdmissionResponse::from(request);
    let Some(object) = &request.object else {
        return refuse(response, MALFORMED, "the request holds no pod".to_owned()).into();
    };
    let pod = match serde_json::to_value(object) {
        Ok(pod) => in_namespace(pod, request.namespace.as_deref()),
        Err(error) => {
            return refuse(response, MALFORMED, format!("failed to read the pod: {error}")).into();
        }
    };
    if let Some(stored) = request.old_object.as_ref() {
        return update(response, &pod, stored, view).into();
    }
    match admit::begin(&pod, view, policy) {
        Ok(Begun::Decided(verdict)) => allow(response, &pod, *verdict).into(),
        Ok(Begun::NeedsPlan(pending)) => {
            let (pending, is_dry_run) = (*pending, request.dry_run);
            Review::NeedsPlan(Box::new(Waiting { pending, pod, response, is_dry_run }))
        }
        Err(error) => deny(response, &error).into(),
    }
}

/// Answers an update of a pod: its claim stays.
fn update(
    response: AdmissionResponse,
    pod: &Value,
    stored: &DynamicObject,
    view: &ClusterView,
) -> Answer {
    let read = serde_json::to_value(stored).and_then(|stored| {
        let typed = serde_json::from_value(stored.clone())?;
        Ok((in_namespace(stored, pod["metadata"]["namespace"].as_str()), typed))
    });
    let (stored, typed): (Value, Pod) = match read {
        Ok(read) => read,
        Err(error) => {
            return refuse(response, MALFORMED, format!("failed to read the stored pod: {error}"));
        }
    };
    let patched = put_back(pod, &stored, &GpuResources::new(&typed, view));
    let warnings = reapplied::warning(&patched).into_iter().collect();
    allow(response, pod, Verdict::without_plan(patched, warnings))
}

impl Waiting {
    /// Completes the answer with this plan.
    pub(super) fn answer(
        self,
        plan: Result<Plan, Denial>,
        view: &ClusterView,
        policy: &Policy,
        recent: &RecentPins,
    ) -> Answer {
        let Self { pending, pod, response, is_dry_run } = self;
        let is_pinned = plan.as_ref().is_ok_and(|plan| !plan.pins.is_empty());
        let mut assignments = is_pinned.then(|| recent.lock());
        let finished = pending.finish(plan, view, policy, |template| {
            assignments.as_ref().map_or(0, |it| it.of(template))
        });
        let verdict = match finished {
            Ok(verdict) => verdict,
            Err(error) => return deny(response, &error),
        };
        let template = verdict.planned.as_ref().map(|planned| &planned.template.metadata);
        if let (Some(assignments), Some(name)) =
            (&mut assignments, template.and_then(|template| template.name.as_deref()))
            && !is_dry_run
        {
            assignments.add(name);
        }
        drop(assignments);
        allow(response, &pod, verdict)
    }
}

fn allow(response: AdmissionResponse, pod: &Value, verdict: Verdict) -> Answer {
    let mut response = response;
    response.warnings = (!verdict.warnings.is_empty()).then_some(verdict.warnings);
    let response = match response.clone().with_patch(rewrite::patch(pod, &verdict.pod)) {
        Ok(patched) => patched,
        Err(error) => return refuse(response, MALFORMED, Chain(&error).to_string()),
    };
    let join = verdict.planned.as_ref().map(|planned| planned.plan.join);
    let template = verdict.planned.map(|planned| planned.template);
    Answer {
        response,
        template: verdict.template.map(|key| NeededTemplate { key, template, join }),
        denied_for: None,
    }
}

fn deny(response: AdmissionResponse, error: &AdmitError) -> Answer {
    let (reason, why) = match error {
        AdmitError::Denied(denial) => (denial.annotation(), denial.to_string()),
        AdmitError::TooLarge(_) => (TOO_LARGE, Chain(error).to_string()),
        AdmitError::Malformed(_) => (MALFORMED, Chain(error).to_string()),
    };
    refuse(response, reason, why)
}

fn refuse(response: AdmissionResponse, reason: &'static str, why: String) -> Answer {
    Answer { response: response.deny(why), template: None, denied_for: Some(reason) }
}

/// Adds the namespace, which the request always has, to the pod.
fn in_namespace(mut pod: Value, namespace: Option<&str>) -> Value {
    if let Some(namespace) = namespace {
        pod["metadata"]["namespace"] = namespace.into();
    }
    pod
}
