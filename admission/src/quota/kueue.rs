//! Detects GPUs that Kueue's quotas do not count.
//!
//! Kueue counts the limits of a workload. Of a Job or a StatefulSet it reads the template, which keeps its
//! limits; other kinds that hold their pods back are taken for the same. For a single pod, a group of
//! pods and a Deployment it reads the pods, in which a claim has replaced them (`pkg/controller/jobs` of
//! kubernetes-sigs/kueue 0.17). Claims with constraints it does not count: `device constraints
//! (MatchAttribute) are not supported`.

use k8s_openapi::api::core::v1::Pod;

/// The label with the queue of a pod, and of a template whose pods are the workload.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// The label that Kueue sets on the pods of a workload that it made from a template.
const POD_SET: &str = "kueue.x-k8s.io/podset";

/// The annotation with the kind that holds its pods back, which is a Deployment only where its pods
/// are the workloads.
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

/// Why Kueue does not count the GPUs of a pod whose claim replaces its limits, or that has none.
pub(super) fn escape(pod: &Pod, has_limits: bool) -> Option<String> {
    let label = |name: &str| pod.metadata.labels.as_ref()?.get(name);
    let parent = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(PARENT));
    let is_by_template = parent.is_some_and(|parent| parent != "deployment");
    if is_by_template || label(POD_SET).is_some() {
        let why = "Kueue counts limits, and does not count the claim that gives this pod its GPUs; set \
                   limits on GPUs in its job in place of dranet.io/gpus";
        return (!has_limits).then(|| why.to_owned());
    }
    label(QUEUE).map(|queue| {
        format!(
            "Kueue counts the limits of pods in the queue `{queue}`, and does not count the claim \
             that gives this pod its GPUs; run it by a Job or a StatefulSet with limits on GPUs, which \
             Kueue reads before"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_a_queue_does_not_count_is_told() {
        let queue = json!({QUEUE: "gpus"});
        let pod_set = json!({POD_SET: "main"});
        let parent = |kind: &str| json!({PARENT: kind});
        for (case, labels, annotations, counted) in [
            ("no queue", json!({}), json!({}), [true, true]),
            ("a pod or a group of pods", queue.clone(), json!({}), [false, false]),
            ("a Deployment", queue.clone(), parent("deployment"), [false, false]),
            ("a StatefulSet", queue.clone(), parent("statefulset"), [true, false]),
            ("a Job", pod_set, json!({}), [true, false]),
        ] {
            let metadata = json!({"labels": labels, "annotations": annotations});
            let pod: Value = json!({"metadata": metadata});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let seen = [true, false].map(|has_limits| escape(&pod, has_limits).is_none());
            assert_eq!(seen, counted, "{case}: with and without limits");
        }
    }
}
