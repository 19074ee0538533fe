//! What may keep a pod from running, but is not looked at here.

use admission::reapplied;
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The remarks about an admitted pod, each a sentence without its full stop. `is_said` if what its
/// priority is good for is said elsewhere.
pub(super) fn about(pod: &Pod, view: &ClusterView, is_said: bool) -> Vec<String> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let scheduler = other_scheduler(spec);
    let priority = if is_said { None } else { preempts(spec) };
    let changed = serde_json::to_value(pod).ok().and_then(|pod| reapplied::warning(&pod));
    let all = [scheduler, not_looked_at(spec, view), priority, changed, last_word(pod)];
    all.into_iter().flatten().collect()
}

/// Returns a remark about a scheduler other than Kubernetes' own.
pub(crate) fn other_scheduler(spec: &PodSpec) -> Option<String> {
    let name = spec.scheduler_name.as_deref().unwrap_or_default();
    let is_other = !matches!(name, "" | "default-scheduler");
    is_other.then(|| {
        format!(
            "scheduler `{name}` places it; it is unknown whether that scheduler runs and supports claims"
        )
    })
}

/// Returns a remark about rules that cannot be checked, since what they are about is not known.
pub(crate) fn not_looked_at(spec: &PodSpec, view: &ClusterView) -> Option<String> {
    let mut volumes = spec.volumes.iter().flatten();
    let has_volumes =
        volumes.any(|it| it.persistent_volume_claim.is_some() || it.ephemeral.is_some());
    let knows_namespaces = view.namespace_labels("default").is_some();
    let rules = [
        (selects_namespaces(spec) && !knows_namespaces, "pod affinity by labels of namespaces"),
        (
            has_volumes && !view.volumes().are_known(),
            "volumes, which may be bound to a zone or node",
        ),
    ];
    let rules: Vec<&str> = rules.iter().filter(|(is_there, _)| *is_there).map(|it| it.1).collect();
    (!rules.is_empty()).then(|| {
        format!("not checked: its {}, which may exclude more nodes", rules.join(" and its "))
    })
}

/// Whether affinity or anti-affinity to pods depends on labels of namespaces: pods of all namespaces
/// are counted then.
fn selects_namespaces(spec: &PodSpec) -> bool {
    let affinity = spec.affinity.as_ref();
    let near = affinity.and_then(|it| it.pod_affinity.as_ref());
    let away = affinity.and_then(|it| it.pod_anti_affinity.as_ref());
    let near = near.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let away = away.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let selectors =
        near.into_iter().chain(away).flatten().filter_map(|it| it.namespace_selector.as_ref());
    selectors.into_iter().any(|it| *it != LabelSelector::default())
}

/// Returns a remark about preemption, which kube-scheduler does not do for devices.
fn preempts(spec: &PodSpec) -> Option<String> {
    let class = spec.priority_class_name.as_ref()?;
    (spec.preemption_policy.as_deref() != Some("Never")).then(|| format!(
        "its PriorityClass {class} does not help it to devices: kube-scheduler evicts no pod for \
         devices of claims"
    ))
}

/// Returns what the scheduler said when it last tried the pod. It also knows rules that are not looked at
/// here, and those of its other plugins.
fn last_word(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let said = conditions.into_iter().find(|it| it.type_ == "PodScheduled")?;
    let is_no = said.status == "False" && said.reason.as_deref() == Some("Unschedulable");
    let message = said.message.as_deref().filter(|message| is_no && !message.is_empty())?;
    Some(format!("when the scheduler last tried, it said: {}", message.trim_end_matches('.')))
}
