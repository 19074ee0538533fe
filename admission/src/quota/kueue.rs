//! Detects GPUs that Kueue's quotas do not count.
//!
//! Kueue counts the limits of a workload. Of a Job or a StatefulSet it reads the template, which keeps its
//! limits; other kinds that hold their pods back are taken for the same. For a single pod, a group of
//! pods and a Deployment it reads the pods, in which a claim has replaced them (`pkg/controller/jobs` of
//! kubernetes-sigs/kueue 0.17). Claims with constraints it does not count: `device constraints
//! (MatchAttribute) are not supported`. It counts an extended resource that pods request beside their claims.

use cluster_model::pod_containers::main_first;
use k8s_openapi::api::core::v1::Pod;

/// The label with the queue of a pod, and of a template whose pods are the workload.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// The label that Kueue sets on the pods of a workload that it made from a template.
const POD_SET: &str = "kueue.x-k8s.io/podset";

/// The annotation with the kind that holds its pods back, which is a Deployment only where its pods
/// are the workloads.
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

/// Why Kueue does not count the GPUs of a pod whose claim replaces its limits, or that has none. `counted` is
/// the extended resource that admission makes the pod request for its GPUs.
pub(super) fn escape(pod: &Pod, has_limits: bool, counted: Option<&str>) -> Option<String> {
    let labels = pod.metadata.labels.as_ref();
    let parent = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(PARENT));
    let is_by_template = parent.is_some_and(|parent| parent != "deployment");
    if is_by_template || labels.is_some_and(|labels| labels.contains_key(POD_SET)) {
        // Kueue has read the template, before admission changes its pods.
        if has_limits || counted.is_some_and(|resource| is_limited(pod, resource)) {
            return None;
        }
        let remedy = match counted {
            Some(resource) => format!("set limits on GPUs, or on {resource}, in its job"),
            None => "set limits on GPUs in its job in place of dranet.io/gpus".to_owned(),
        };
        return Some(format!(
            "Kueue counts limits, and does not count the claim that gives this pod its GPUs; {remedy}"
        ));
    }
    let queue = labels?.get(QUEUE).filter(|_| counted.is_none())?;
    Some(format!(
        "Kueue counts the limits of pods in the queue `{queue}`, and does not count the claim \
         that gives this pod its GPUs; set `counted` of the chart, or run it by a Job or a StatefulSet with \
         limits on GPUs, which Kueue reads before"
    ))
}

/// Whether a container of the pod has a limit on the resource.
fn is_limited(pod: &Pod, resource: &str) -> bool {
    let mut containers = pod.spec.iter().flat_map(main_first);
    containers.any(|container| {
        let limits = container.resources.as_ref().and_then(|it| it.limits.as_ref());
        limits.is_some_and(|limits| limits.contains_key(resource))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Whether a pod is counted: with and without limits on GPUs, without limits beside a counting resource,
    /// and with a limit on that resource.
    #[test]
    fn what_a_queue_does_not_count_is_told() {
        const GPUS: &str = "example.org/gpus";
        let queue = json!({QUEUE: "gpus"});
        let pod_set = json!({POD_SET: "main"});
        let parent = |kind: &str| json!({PARENT: kind});
        for (case, labels, annotations, counted) in [
            ("no queue", json!({}), json!({}), [true; 4]),
            ("a pod or a group of pods", queue.clone(), json!({}), [false, false, true, true]),
            ("a Deployment", queue.clone(), parent("deployment"), [false, false, true, true]),
            ("a StatefulSet", queue.clone(), parent("statefulset"), [true, false, false, true]),
            ("a Job", pod_set, json!({}), [true, false, false, true]),
        ] {
            let pod = |limits: Value| -> Pod {
                let metadata = json!({"labels": labels, "annotations": annotations});
                let containers = json!([{"name": "a", "resources": {"limits": limits}}]);
                let pod = json!({"metadata": metadata, "spec": {"containers": containers}});
                serde_json::from_value(pod).unwrap()
            };
            let (plain, limited) = (pod(json!({})), pod(json!({GPUS: "2"})));
            let seen = [
                escape(&plain, true, None),
                escape(&plain, false, None),
                escape(&plain, false, Some(GPUS)),
                escape(&limited, false, Some(GPUS)),
            ];
            assert_eq!(seen.map(|why| why.is_none()), counted, "{case}");
        }
    }
}
