//! Admits one pod: takes a pod, returns a verdict. Needs no server; `kubectl dranet plan`
//! calls the same function.

use crate::api_limits::{self, TooLarge};
use crate::compute_domain;
use crate::denial::Denial;
use crate::fabric::{self, JoinedGroup};
use crate::intent::{self, GpuResources, Intent, unasked};
use crate::pin;
use crate::plan::{Plan, Policy, QuotaEscape, plan};
use crate::pod_check;
use crate::quota;
use crate::rewrite;
use crate::template;
use cluster_model::compute_domain::predicted_template;
use cluster_model::names::annotation;
use cluster_model::placement::Placement;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use serde_json::Value;

/// The result for an admitted pod.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The pod after the rewrite.
    pub pod: Value,
    /// The new plan and its template. `None` if the pod has no annotation for it or was
    /// rewritten before.
    pub planned: Option<Planned>,
    /// The template that the pod refers to, new or existing.
    pub template: Option<ObjectKey>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// A plan and its template.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Its template, without a namespace.
    pub template: ResourceClaimTemplate,
    /// The template of the channel that the pod gets, as NVIDIA's driver will create it.
    pub channel: Option<ResourceClaimTemplate>,
}

/// A pod is denied, or could not be read.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// Denied for a reason that the user can fix.
    #[error("{0}")]
    Denied(Denial),
    /// Larger than Kubernetes or a plan allows.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The JSON is not a pod.
    #[error("failed to read the pod")]
    Malformed(#[source] serde_json::Error),
}

/// Warning on a pod that is admitted although no machine is known.
const UNKNOWN: &str = "no machine with GPUs and NICs that the pod can run on is known yet: the claim \
                       ties them by what drivers publish on every machine, and the pod waits for \
                       such a node";

/// The annotation of a static pod's copy in the API server, which its kubelet creates
/// (`kubetypes.ConfigMirrorAnnotationKey`).
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Warning on the copy of a static pod, which runs already.
const STATIC: &str = "a static pod gets no devices of claims, so dranet.io/aligned-nics has no effect \
                      on it";

/// A pod after all checks that need no plan.
#[derive(Debug)]
pub enum Begun {
    /// The verdict needs no plan.
    Decided(Box<Verdict>),
    /// A plan is needed.
    NeedsPlan(Box<Pending>),
}

/// A pod that is waiting for its plan.
#[derive(Debug)]
pub struct Pending {
    /// What the pod requests.
    pub intent: Intent,
    /// Constraints of the pod on its node.
    pub placement: Placement,
    /// The pod before any rewrite.
    pod: Value,
    typed: Pod,
    resources: GpuResources,
    namespace: String,
    group: Option<JoinedGroup>,
    /// The group whose `ComputeDomain` the pod joins.
    compute_domain: Option<String>,
    /// The template of an earlier decision, if the pod's annotations have not changed
    /// since.
    template: Option<String>,
    /// The GPUs that nobody asked for, if the pod has some.
    unasked: Option<String>,
    warnings: Vec<String>,
}

impl From<Denial> for AdmitError {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

impl Verdict {
    /// The verdict on a pod that gets no new claim.
    pub(crate) fn without_plan(pod: Value, warnings: Vec<String>) -> Self {
        Self { pod, planned: None, template: None, warnings }
    }
}

impl From<Verdict> for Begun {
    fn from(verdict: Verdict) -> Self {
        Self::Decided(Box::new(verdict))
    }
}

/// Decides on a pod: calls [`begin`] and, if needed, makes the plan.
pub fn admit(pod: &Value, view: &ClusterView, policy: &Policy) -> Result<Verdict, AdmitError> {
    match begin(pod, view, policy)? {
        Begun::Decided(verdict) => Ok(*verdict),
        Begun::NeedsPlan(pending) => {
            let plan = plan(&pending.intent, &pending.placement, view, policy);
            pending.finish(plan, view, policy, |_| 0)
        }
    }
}

/// Checks a pod, up to the point where it needs a plan. A plan can take much longer than
/// everything else.
pub fn begin(pod: &Value, view: &ClusterView, policy: &Policy) -> Result<Begun, AdmitError> {
    api_limits::check(pod)?;
    let typed = typed_of(pod)?;
    // A denial would only hide that the pod runs.
    let is_static = typed.metadata.annotations.as_ref().is_some_and(|it| it.contains_key(MIRROR));
    if is_static && intent::is_triggered(&typed) {
        return Ok(Verdict::without_plan(pod.clone(), vec![STATIC.to_owned()]).into());
    }
    let mut warnings = intent::warnings(&typed);
    let resources = GpuResources::new(&typed, view);
    let namespace = typed.metadata.namespace.clone().unwrap_or_default();
    let own = if intent::is_triggered(&typed) { own_template(pod)? } else { None };
    let is_edited = own.is_some() && rewrite::was_edited(pod);
    if let Some(name) = own {
        let key = ObjectKey { namespace: namespace.clone(), name: name.to_owned() };
        if view.template(&key).is_some() && !is_edited {
            let pod = rewrite::without_claimed_resources(pod, &resources);
            let verdict = Verdict::without_plan(pod, warnings);
            return Ok(Verdict { template: Some(key), ..verdict }.into());
        }
    }
    let template = own.filter(|_| !is_edited).map(str::to_owned);
    // The template is not in this namespace, or the annotations were edited: restore the
    // original pod and decide again.
    let (typed, pod) = match own {
        Some(_) => {
            let typed = typed_of(&rewrite::as_decided(pod, &resources))?;
            (typed, rewrite::original(pod, &resources))
        }
        None => (typed, pod.clone()),
    };
    // Later calls follow a `LimitRange` that may have set a limit again that the claim has replaced.
    let unasked = if own.is_none() { unasked(&typed, &resources, view) } else { None };
    let intent =
        intent_of(&typed, &resources, view).map_err(|denial| with(denial, unasked.as_deref()))?;
    let Some(intent) = intent else {
        return Ok(Verdict::without_plan(rewrite::without_note(pod), warnings).into());
    };
    warnings.extend(unasked.clone());
    pod_check::check(&typed, &intent, view)?;
    let wishes = &intent.wishes;
    if let Some(config) = &wishes.nic_config {
        config.check_namespace(&namespace, &policy.network_namespaces)?;
    }
    let group = match &wishes.fabric {
        Some(wish) => fabric::check(&typed, wish, policy.fabric, view)?,
        None => None,
    };
    let compute_domain = compute_domain::check(&typed, wishes, view)?;
    let placement = Placement::new(&typed);
    Ok(Begun::NeedsPlan(Box::new(Pending {
        intent,
        placement,
        pod,
        typed,
        resources,
        namespace,
        group,
        compute_domain,
        template,
        unasked,
        warnings,
    })))
}

impl Pending {
    /// Completes the verdict with this plan, if there is one. `created` returns how many pods got a
    /// template so recently that their claims may be missing in the view.
    pub fn finish(
        self,
        plan: Result<Plan, Denial>,
        view: &ClusterView,
        policy: &Policy,
        created: impl Fn(&str) -> usize,
    ) -> Result<Verdict, AdmitError> {
        let plan = plan.map_err(|denial| with(denial, self.unasked.as_deref()))?;
        let Self { intent, placement, pod, typed, resources, namespace, group, template, .. } =
            self;
        let domain = self.compute_domain;
        let mut warnings = self.warnings;
        // An earlier decision stays, even if its template is not in the view yet.
        let kept = template.and_then(|template| pin::kept(&plan, &template));
        let plan = kept.unwrap_or_else(|| pin::choose(plan, &placement, view, created));
        let config = intent.wishes.nic_config.as_ref();
        warnings.extend(config.and_then(|config| config.pool_warning(&namespace, view)));
        if !plan.lifts_limits(view) {
            warnings.extend(intent::memlock(&typed, &intent));
        }
        warnings.extend(intent.wishes.fabric.as_ref().and_then(|wish| wish.warning(&typed)));
        warnings.extend(intent::preemption(&typed));
        warnings.extend(pod_check::other_nics(&typed));
        warnings.extend(pod_check::other_scheduler(&typed, policy.scheduler_name.as_deref()));
        if plan.machines.is_empty() {
            warnings.push(UNKNOWN.to_owned());
        }
        warnings.extend(plan.warning());
        warnings.extend(plan.port_warning());
        warnings.extend(plan.late_warning());
        warnings.extend(plan.shared_gpus.clone());
        warnings.extend(plan.offered_twice(&placement, view));
        if plan.plugin.is_none() {
            warnings.extend(quota::demanded_limit(&plan, &namespace, view));
        }
        let counted = plan.counted(policy);
        let quotas = quota::Quotas { view, counted };
        if let Some(escape) = quotas.escape(&intent, &plan, (&namespace, &typed)) {
            match policy.quota_escape {
                QuotaEscape::Deny => return Err(intent.deny(escape).into()),
                QuotaEscape::Warn => warnings.push(escape),
            }
        }
        let mut template = template::build(&plan.claim);
        if let Some(place) = &plan.place {
            let annotations = template.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::PINNED.to_owned(), place.clone());
        }
        let name = template.metadata.name.as_deref().unwrap_or_default();
        let pod = match plan.plugin {
            Some(_) => pod,
            None => rewrite::without_limits(&pod, &resources),
        };
        let mut pod = rewrite::with_claim(&pod, &plan.grants, name, &plan.note(name));
        if let Some(resource) = counted {
            rewrite::count(&mut pod, &plan.intent.shares, resource);
        }
        if let Some((name, value)) = &plan.node_label {
            rewrite::limit_to(&mut pod, name, value);
        }
        if intent.resource.is_none() {
            rewrite::tolerate(&mut pod, plan.driver.extended_resources);
        }
        if let Some(scheduler) = &policy.scheduler_name {
            rewrite::schedule_by(&mut pod, scheduler);
        }
        if let Some(group) = group {
            rewrite::join_group(&mut pod, &group);
        }
        if let Some(group) = &domain {
            rewrite::join_compute_domain(&mut pod, &plan.grants, group);
        }
        let channel = domain.and_then(|group| {
            predicted_template(&namespace, &cluster_model::compute_domain::template(&group))
        });
        let key = ObjectKey { namespace, name: name.to_owned() };
        Ok(Verdict {
            pod,
            planned: Some(Planned { plan, template, channel }),
            template: Some(key),
            warnings,
        })
    }
}

/// For a rewritten pod whose pinned cells have no free devices: those cells, and other
/// cells that have some.
pub fn free_elsewhere(pod: &Pod, view: &ClusterView, policy: &Policy) -> Option<(String, String)> {
    let value = serde_json::to_value(pod).ok()?;
    let template = rewrite::own_template(&value).ok()??;
    let (plan, placement) = plan_anew(pod, &value, view, policy)?;
    let (own, other) = pin::elsewhere(&plan, template, &placement, view)?;
    Some((own.to_owned(), other.to_owned()))
}

/// For a rewritten pod whose claim no node can serve now: the nodes that could serve the claim that a
/// new pod like it would get, if that is another claim. The claim of a pod never changes, so it does
/// not know machines that came later.
pub fn fits_anew(pod: &Pod, view: &ClusterView, policy: &Policy) -> Option<Vec<String>> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let value = serde_json::to_value(pod).ok()?;
    let name = rewrite::own_template(&value).ok()??.to_owned();
    let own = view.template(&ObjectKey { namespace, name: name.clone() })?;
    if !pin::with_room(own.spec.as_ref()?, &Placement::new(pod), view).is_empty() {
        return None;
    }
    let (plan, placement) = plan_anew(pod, &value, view, policy)?;
    let plan = pin::choose(plan, &placement, view, |_| 0);
    if template::build(&plan.claim).metadata.name.as_deref() == Some(name.as_str()) {
        return None;
    }
    let nodes = pin::with_room(&plan.claim, &placement, view);
    let nodes: Vec<_> = nodes.into_iter().map(str::to_owned).collect();
    (!nodes.is_empty()).then_some(nodes)
}

/// The plan for a rewritten pod as for a new one, with the selectors of the pod before the rewrite.
fn plan_anew(
    pod: &Pod,
    value: &Value,
    view: &ClusterView,
    policy: &Policy,
) -> Option<(Plan, Placement)> {
    let resources = GpuResources::new(pod, view);
    let original = typed_of(&rewrite::as_decided(value, &resources)).ok()?;
    let intent = intent_of(&original, &resources, view).ok()??;
    let placement = Placement::new(&original);
    Some((plan(&intent, &placement, view, policy).ok()?, placement))
}

/// The name of the `ComputeDomain` that a rewritten pod joins, by deciding on the original pod once more
/// up to its plan; `None` if it asks for none.
pub fn compute_domain_of(
    pod: &Pod,
    view: &ClusterView,
    policy: &Policy,
) -> Result<Option<String>, AdmitError> {
    let resources = GpuResources::new(pod, view);
    let pod = serde_json::to_value(pod).map_err(AdmitError::Malformed)?;
    match begin(&rewrite::as_decided(&pod, &resources), view, policy)? {
        Begun::Decided(_) => Ok(None),
        Begun::NeedsPlan(pending) => {
            Ok(pending.compute_domain.as_deref().map(cluster_model::compute_domain::name))
        }
    }
}

/// The denial with a sentence about GPUs that nobody asked for.
fn with(denial: Denial, unasked: Option<&str>) -> Denial {
    match unasked {
        Some(unasked) => denial.and(unasked),
        None => denial,
    }
}

fn intent_of(
    pod: &Pod,
    resources: &GpuResources,
    view: &ClusterView,
) -> Result<Option<Intent>, Denial> {
    intent::read(pod, resources)?.map(|intent| intent.resolved(pod, view)).transpose()
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
