//! A pod in, a verdict out: what admission does, without a server.
//! `kubectl dranet plan` calls the same function.

use crate::denial::Denial;
use crate::fabric::{self, JoinedGroup};
use crate::intent::{self, GpuResources, Intent, nic_config};
use crate::nic_pool;
use crate::pin;
use crate::plan::{Plan, Policy, QuotaEscape, plan};
use crate::pod_check;
use crate::quota;
use crate::rail;
use crate::rewrite;
use crate::template;
use cluster_model::names::annotation;
use cluster_model::placement::Placement;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use serde_json::Value;

/// What becomes of a pod that is let through.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The pod as it will be.
    pub pod: Value,
    /// The template that the pod refers to and the plan that made it; `None`
    /// where the pod asks for nothing of ours or has been rewritten before.
    pub planned: Option<Planned>,
    /// The template that the pod refers to, made now or before.
    pub template: Option<ObjectKey>,
    /// What a person would want to know.
    pub warnings: Vec<String>,
}

/// A plan and the object that it needs.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The decision.
    pub plan: Plan,
    /// Its template, without a namespace.
    pub template: ResourceClaimTemplate,
}

/// A pod is refused, or could not be read.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// The user can do something about it.
    #[error("{0}")]
    Denied(Denial),
    /// The JSON is not that of a pod.
    #[error("failed to read the pod")]
    Malformed(#[source] serde_json::Error),
}

/// What is said of a pod that is let through for machines that nobody has seen.
const UNKNOWN: &str = "no machine with GPUs and NICs is known yet: the claim ties them by \
                       resource.kubernetes.io/numaNode, and the pod waits for a node whose drivers \
                       both publish it";

/// What is found of a pod before its plan is known.
#[derive(Debug)]
pub enum Begun {
    /// It needs no plan.
    Decided(Box<Verdict>),
    /// It does.
    NeedsPlan(Box<Pending>),
}

/// A pod that waits for its plan.
#[derive(Debug)]
pub struct Pending {
    /// What it asks for.
    pub intent: Intent,
    /// Where it may run.
    pub placement: Placement,
    /// As it was before it was ever rewritten.
    pod: Value,
    typed: Pod,
    resources: GpuResources,
    namespace: String,
    group: Option<JoinedGroup>,
    /// The template that was decided on before, where the pod is as it was then.
    template: Option<String>,
    warnings: Vec<String>,
}

/// Decides on a pod.
pub fn admit(pod: &Value, view: &ClusterView, policy: &Policy) -> Result<Verdict, AdmitError> {
    match begin(pod, view, policy)? {
        Begun::Decided(verdict) => Ok(*verdict),
        Begun::NeedsPlan(pending) => {
            let plan = plan(&pending.intent, &pending.placement, view, policy);
            pending.finish(plan.map_err(AdmitError::Denied)?, view, policy, |_| 0)
        }
    }
}

/// Everything about a pod but its plan, which may take much longer than the rest.
pub fn begin(pod: &Value, view: &ClusterView, policy: &Policy) -> Result<Begun, AdmitError> {
    let decided = |verdict| Ok(Begun::Decided(Box::new(verdict)));
    let typed = typed_of(pod)?;
    let warnings = intent::warnings(&typed);
    let resources = GpuResources::of(&typed, view);
    let namespace = typed.metadata.namespace.clone().unwrap_or_default();
    let own = if intent::is_triggered(&typed) { own_template(pod)? } else { None };
    let is_edited = own.is_some() && rewrite::was_edited(pod);
    if let Some(name) = own {
        let key = ObjectKey { namespace: namespace.clone(), name: name.to_owned() };
        if view.template(&key).is_some() && !is_edited {
            let pod = rewrite::without_extended_resources(pod, &resources);
            return decided(Verdict { pod, planned: None, template: Some(key), warnings });
        }
    }
    let template = own.filter(|_| !is_edited).map(str::to_owned);
    // A copy from elsewhere or with edited annotations, or restored when its template was
    // gone: decided anew.
    let (typed, pod) = match own {
        Some(_) => {
            let pod = rewrite::original(pod, &resources);
            (typed_of(&pod)?, pod)
        }
        None => (typed, pod.clone()),
    };
    let Some(intent) = intent_of(&typed, &resources).map_err(AdmitError::Denied)? else {
        return decided(Verdict { pod, planned: None, template: None, warnings });
    };
    pod_check::check(&typed, &intent, view).map_err(AdmitError::Denied)?;
    nic_config::check_namespace(&intent, &namespace, &policy.network_namespaces)
        .map_err(AdmitError::Denied)?;
    let group = fabric::check(&typed, &intent, policy.fabric, view);
    let group = group.map_err(AdmitError::Denied)?;
    let placement = Placement::of(&typed);
    Ok(Begun::NeedsPlan(Box::new(Pending {
        intent,
        placement,
        pod,
        typed,
        resources,
        namespace,
        group,
        template,
        warnings,
    })))
}

impl Pending {
    /// The verdict with this plan. `created` says how many pods got a template so lately that
    /// their claims may not be in the view.
    pub fn finish(
        self,
        plan: Plan,
        view: &ClusterView,
        policy: &Policy,
        created: impl Fn(&str) -> usize,
    ) -> Result<Verdict, AdmitError> {
        let Self { intent, placement, pod, typed, resources, namespace, group, template, .. } =
            self;
        let mut warnings = self.warnings;
        // What was decided before stays, also where the template is not in the view yet.
        let kept = template.and_then(|template| pin::kept(&plan, &template));
        let plan = kept.unwrap_or_else(|| pin::choose(plan, &placement, view, created));
        warnings.extend(nic_pool::warning(&intent, &namespace, view));
        warnings.extend(intent::memlock(&typed, &intent));
        warnings.extend(pod_check::other_scheduler(&typed, policy.scheduler_name.as_deref()));
        if plan.machines.is_empty() {
            warnings.push(UNKNOWN.to_owned());
        }
        if let Some(escape) = quota::escape(&intent, &plan, &namespace, view) {
            match policy.quota_escape {
                QuotaEscape::Deny => return Err(AdmitError::Denied(intent.deny(escape))),
                QuotaEscape::Warn => warnings.push(escape),
            }
        }
        let mut template = template::build(&plan.claim);
        if let Some(place) = &plan.place {
            let annotations = template.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::PINNED.to_owned(), place.clone());
        }
        let name = template.metadata.name.as_deref().unwrap_or_default();
        let pod = rewrite::without_limits(&pod, &resources);
        let mut pod = rewrite::with_claim(&pod, &plan.grants, name, &plan.note(name));
        if intent.resource.is_none() {
            rewrite::tolerate(&mut pod, plan.driver.extended_resources);
        }
        if let Some(scheduler) = &policy.scheduler_name {
            rewrite::schedule_by(&mut pod, scheduler);
        }
        if let Some(group) = group {
            rewrite::join_group(&mut pod, &group);
        }
        let key = ObjectKey { namespace, name: name.to_owned() };
        Ok(Verdict {
            pod,
            planned: Some(Planned { plan, template }),
            template: Some(key),
            warnings,
        })
    }
}

/// The cells that the claim of a rewritten pod is pinned to, where nothing is free for it, and
/// others that have free devices.
pub fn free_elsewhere(pod: &Pod, view: &ClusterView, policy: &Policy) -> Option<(String, String)> {
    let resources = GpuResources::of(pod, view);
    let pod = serde_json::to_value(pod).ok()?;
    let template = rewrite::own_template(&pod).ok()??;
    let original = typed_of(&rewrite::original(&pod, &resources)).ok()?;
    let intent = intent_of(&original, &resources).ok()??;
    let placement = Placement::of(&original);
    let plan = plan(&intent, &placement, view, policy).ok()?;
    let (own, other) = pin::elsewhere(&plan, template, &placement, view)?;
    Some((own.to_owned(), other.to_owned()))
}

fn intent_of(pod: &Pod, resources: &GpuResources) -> Result<Option<Intent>, Denial> {
    intent::read(pod, resources)?.map(|intent| rail::resolve(intent, pod)).transpose()
}

fn typed_of(pod: &Value) -> Result<Pod, AdmitError> {
    serde_json::from_value(pod.clone()).map_err(AdmitError::Malformed)
}

fn own_template(pod: &Value) -> Result<Option<&str>, AdmitError> {
    rewrite::own_template(pod).map_err(|claim| {
        let value = pod["metadata"]["annotations"][annotation::ALIGNED_NICS].as_str();
        AdmitError::Denied(Denial::new(
            annotation::ALIGNED_NICS,
            value.unwrap_or_default(),
            format!(
                "the pod already has a claim named `{}`, which is the name of the claim that \
                 this annotation adds; give yours another name: {claim}",
                rewrite::CLAIM
            ),
        ))
    })
}
