//! The kinds of workloads: each waits in a queue of its own, with a quota of four GPUs.

use serde_json::{Value, json};

use super::kueue::{COUNTED, FABRIC, GPU};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const GROUP_SIZE: &str = "kueue.x-k8s.io/pod-group-total-count";
const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";

/// A kind of workload.
pub(crate) struct Kind {
    /// What a person calls it.
    pub(crate) name: &'static str,
    /// The end of the name of its queue and of its objects.
    pub(crate) queue: &'static str,
    /// How many workloads Kueue makes of it.
    pub(crate) workloads: usize,
    /// Its objects for a queue; Kueue counts this resource.
    pub(crate) objects: fn(&str, &str) -> Vec<Value>,
}

pub(crate) const KINDS: [Kind; 7] = [
    Kind { name: "Job 2 × 2 by topology", queue: "topology", workloads: 1, objects: by_topology },
    Kind { name: "four pods × 2 GPUs", queue: "pods", workloads: 4, objects: pods },
    Kind { name: "Deployment 4 × 2", queue: "deployment", workloads: 4, objects: deployment },
    Kind { name: "group of pods 3 × 4, a fabric", queue: "group", workloads: 1, objects: group },
    Kind { name: "two Jobs 2 × 2", queue: "jobs", workloads: 2, objects: jobs },
    Kind {
        name: "Job 2 × 4 by dranet.io/gpus",
        queue: "gpus",
        workloads: 1,
        objects: by_annotation,
    },
    Kind {
        name: "StatefulSet 3 × 2, a fabric", queue: "set", workloads: 1, objects: stateful_set
    },
];

fn pods(queue: &str, _: &str) -> Vec<Value> {
    (0..4).map(|index| pod(&format!("{queue}-{index}"), queue, template(2, &[]))).collect()
}

fn group(queue: &str, _: &str) -> Vec<Value> {
    (0..3).map(|index| member(queue, index, (3, 4))).collect()
}

/// One of the pods of a group, with so many GPUs, that is on one fabric.
pub(crate) fn member(queue: &str, index: usize, (size, gpus): (usize, u32)) -> Value {
    let size = size.to_string();
    let fabric =
        [("dranet.io/fabric", queue), ("dranet.io/fabric-size", &size), (GROUP_SIZE, &size)];
    let mut pod = pod(&format!("{queue}-{index}"), queue, template(gpus, &fabric));
    pod["metadata"]["labels"][GROUP] = queue.into();
    pod
}

fn deployment(queue: &str, _: &str) -> Vec<Value> {
    vec![replicated("Deployment", queue, 4, template(2, &[]))]
}

fn stateful_set(queue: &str, _: &str) -> Vec<Value> {
    let mut set = replicated("StatefulSet", queue, 3, template(2, &[("dranet.io/fabric", "same")]));
    set["spec"]["podManagementPolicy"] = "Parallel".into();
    set["spec"]["serviceName"] = queue.into();
    vec![set]
}

fn jobs(queue: &str, _: &str) -> Vec<Value> {
    let one = |index: usize| job(&format!("{queue}-{index}"), queue, &template(2, &[]));
    (0..2).map(one).collect()
}

fn by_annotation(queue: &str, resource: &str) -> Vec<Value> {
    vec![job(queue, queue, &without_limits(4, resource))]
}

/// A job whose template says how many GPUs its annotation asks for.
pub(crate) fn counted_job(name: &str, queue: &str, gpus: u32) -> Value {
    job(name, queue, &without_limits(gpus, COUNTED))
}

/// Topology-aware scheduling looks on nodes for what the template has limits on.
fn by_topology(queue: &str, resource: &str) -> Vec<Value> {
    let mut template =
        if resource == COUNTED { without_limits(2, resource) } else { template(2, &[]) };
    template["metadata"]["annotations"][REQUIRED] = FABRIC.into();
    vec![job(queue, queue, &template)]
}

/// The template of a pod with `dranet.io/gpus`. Kueue counts of it what its author says beside the annotation.
fn without_limits(gpus: u32, resource: &str) -> Value {
    let number = gpus.to_string();
    let annotations = [("dranet.io/gpus", &*number), ("dranet.io/gpu-class", "gpu.nvidia.com")];
    let mut template = template(gpus, &annotations);
    let counted = if resource == COUNTED { json!({ COUNTED: gpus }) } else { json!({}) };
    template["spec"]["containers"][0]["resources"]["limits"] = counted;
    template
}

fn pod(name: &str, queue: &str, mut pod: Value) -> Value {
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["labels"] = json!({ QUEUE: queue });
    pod
}

fn job(name: &str, queue: &str, template: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE: queue}},
        "spec": {
            "parallelism": 2, "completions": 2, "completionMode": "Indexed", "suspend": true,
            "template": template,
        },
    })
}

fn replicated(kind: &str, queue: &str, replicas: usize, mut template: Value) -> Value {
    template["metadata"]["labels"] = json!({ "app": queue });
    // Pods of these kinds run for ever.
    template["spec"]["restartPolicy"] = "Always".into();
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": queue, "labels": {QUEUE: queue}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": queue}}, "template": template},
    })
}

/// The template of a pod whose GPUs have a NIC each.
fn template(gpus: u32, more: &[(&str, &str)]) -> Value {
    let mut annotations = json!({"dranet.io/aligned-nics": "per-gpu"});
    for (key, value) in more {
        annotations[key] = (*value).into();
    }
    json!({
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{
            "name": "main", "image": "none",
            "resources": {"limits": {GPU: gpus}, "requests": {"cpu": "1"}},
        }]},
    })
}
