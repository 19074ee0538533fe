//! What the controllers of workloads create, as far as scheduling sees it: which pods, with which
//! names, labels, annotations and owners. From the sources in `fixtures/workloads/SOURCE.md`; each
//! function names its own.

use std::fmt::Write as _;

use anyhow::Context;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Map, Value, json};

/// The objects that the controller of this object creates. Those of Job and Deployment run here.
pub(super) fn children(
    parent: &DynamicObject,
    all: &[DynamicObject],
) -> anyhow::Result<Vec<Value>> {
    let kind = parent.types.as_ref().map_or("", |types| types.kind.as_str());
    match kind {
        "JobSet" => jobs_of_a_job_set(parent, &parent.data["spec"], kind),
        "TrainJob" => jobs_of_a_train_job(parent, all),
        "PyTorchJob" => pods_of_a_pytorch_job(parent),
        "MPIJob" => pods_of_an_mpi_job(parent),
        "LeaderWorkerSet" => pods_of_a_leader_worker_set(parent),
        "RayCluster" => pods_of_a_ray_cluster(parent),
        _ => Ok(Vec::new()),
    }
}

/// An object with a copy of a template, owned by its parent.
fn child(
    parent: &DynamicObject,
    (version, kind, name): (&str, &str, &str),
    template: &Value,
    labels: &Value,
) -> anyhow::Result<Value> {
    let types = parent.types.as_ref().context("an applied object has a kind")?;
    let mut metadata = template["metadata"].clone();
    metadata["name"] = name.into();
    metadata["ownerReferences"] = json!([{
        "apiVersion": types.api_version,
        "kind": types.kind,
        "name": parent.name_any(),
        "uid": parent.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    }]);
    merge(&mut metadata["labels"], labels);
    let spec = template["spec"].clone();
    Ok(json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec }))
}

/// Adds the fields of an object.
fn merge(into: &mut Value, more: &Value) {
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    for (key, value) in more.as_object().into_iter().flatten() {
        into[key] = value.clone();
    }
}

fn count(value: &Value) -> usize {
    value.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `constructJob` and `labelAndAnnotateObject` of JobSet.
fn jobs_of_a_job_set(
    parent: &DynamicObject,
    spec: &Value,
    kind: &str,
) -> anyhow::Result<Vec<Value>> {
    let mut jobs = Vec::new();
    let name = parent.name_any();
    for replicated in list(&spec["replicatedJobs"]) {
        let role = replicated["name"].as_str().context("a replicated job has a name")?;
        for index in 0..count(&replicated["replicas"]) {
            let job_name = format!("{name}-{role}-{index}");
            let labels = json!({
                "jobset.sigs.k8s.io/jobset-name": name,
                "jobset.sigs.k8s.io/jobset-uid": parent.metadata.uid,
                "jobset.sigs.k8s.io/replicatedjob-name": role,
                "jobset.sigs.k8s.io/restart-attempt": "0",
                "jobset.sigs.k8s.io/job-index": index.to_string(),
            });
            let what = ("batch/v1", "Job", job_name.as_str());
            let mut job = child(parent, what, &replicated["template"], &labels)?;
            // JobSet's webhook sets these two (`Default` in `pkg/webhooks/jobset_webhook.go`).
            job["spec"]["completionMode"] = "Indexed".into();
            let template = &mut job["spec"]["template"];
            merge(&mut template["metadata"]["labels"], &labels);
            merge(&mut template["metadata"]["annotations"], &labels);
            if template["spec"]["restartPolicy"].is_null() {
                template["spec"]["restartPolicy"] = "OnFailure".into();
            }
            template["spec"]["subdomain"] = name.as_str().into();
            jobs.push(job);
        }
    }
    anyhow::ensure!(!jobs.is_empty(), "{kind} `{name}` has no jobs");
    Ok(jobs)
}

/// The trainer makes a JobSet of the runtime's template, with the number of nodes of the `TrainJob`
/// (`Build` of its plugins `jobset` and `torch`). Only its Jobs are made here.
fn jobs_of_a_train_job(
    parent: &DynamicObject,
    all: &[DynamicObject],
) -> anyhow::Result<Vec<Value>> {
    let wanted = &parent.data["spec"]["runtimeRef"]["name"];
    let is_runtime = |it: &&DynamicObject| {
        *wanted == it.name_any() && it.data["spec"]["template"]["spec"].is_object()
    };
    let runtime = all.iter().find(is_runtime).context("the file has the runtime")?;
    let mut spec = runtime.data["spec"]["template"]["spec"].clone();
    let nodes = &parent.data["spec"]["trainer"]["numNodes"];
    for replicated in spec["replicatedJobs"].as_array_mut().into_iter().flatten() {
        let job = &mut replicated["template"]["spec"];
        job["parallelism"] = nodes.clone();
        job["completions"] = nodes.clone();
    }
    jobs_of_a_job_set(parent, &spec, "TrainJob")
}

/// `createNewPod` of the training operator.
fn pods_of_a_pytorch_job(parent: &DynamicObject) -> anyhow::Result<Vec<Value>> {
    let mut pods = Vec::new();
    let name = parent.name_any();
    let roles = parent.data["spec"]["pytorchReplicaSpecs"].as_object();
    for (role, replica) in roles.context("it has roles")? {
        let role = role.to_lowercase();
        for index in 0..count(&replica["replicas"]) {
            let labels = json!({
                "training.kubeflow.org/operator-name": "pytorchjob-controller",
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/replica-type": role,
                "training.kubeflow.org/replica-index": index.to_string(),
            });
            let pod_name = format!("{name}-{role}-{index}");
            let mut pod = child(parent, ("v1", "Pod", &pod_name), &replica["template"], &labels)?;
            pod["spec"]["restartPolicy"] = replica["restartPolicy"].clone();
            pods.push(pod);
        }
    }
    Ok(pods)
}

/// `newWorker` of mpi-operator. The launcher is a Job without devices.
fn pods_of_an_mpi_job(parent: &DynamicObject) -> anyhow::Result<Vec<Value>> {
    let name = parent.name_any();
    let worker = &parent.data["spec"]["mpiReplicaSpecs"]["Worker"];
    let pod = |index: usize| {
        let labels = json!({
            "training.kubeflow.org/operator-name": "mpi-operator",
            "training.kubeflow.org/job-name": name,
            "training.kubeflow.org/job-role": "worker",
            "training.kubeflow.org/replica-index": index.to_string(),
        });
        let pod_name = format!("{name}-worker-{index}");
        let mut pod = child(parent, ("v1", "Pod", &pod_name), &worker["template"], &labels)?;
        pod["spec"]["hostname"] = pod_name.into();
        pod["spec"]["subdomain"] = name.as_str().into();
        pod["spec"]["restartPolicy"] = "Never".into();
        Ok(pod)
    };
    (0..count(&worker["replicas"])).map(pod).collect()
}

/// The pods of the stateful sets, with the labels of the webhook (`PodWebhook.Default`) of
/// `LeaderWorkerSet`.
fn pods_of_a_leader_worker_set(parent: &DynamicObject) -> anyhow::Result<Vec<Value>> {
    let name = parent.name_any();
    let spec = &parent.data["spec"];
    let groups = &spec["leaderWorkerTemplate"];
    let size = count(&groups["size"]);
    let mut pods = Vec::new();
    for group in 0..count(&spec["replicas"]) {
        for index in 0..size {
            let leader = format!("{name}-{group}");
            let labels = json!({
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/group-index": group.to_string(),
                "leaderworkerset.sigs.k8s.io/worker-index": index.to_string(),
                "leaderworkerset.sigs.k8s.io/group-key": key(&leader),
            });
            let has_leader = index == 0 && groups["leaderTemplate"].is_object();
            let template = if has_leader { "leaderTemplate" } else { "workerTemplate" };
            let pod_name = if index == 0 { leader.clone() } else { format!("{leader}-{index}") };
            let mut pod = child(parent, ("v1", "Pod", &pod_name), &groups[template], &labels)?;
            let mut annotations = json!({ "leaderworkerset.sigs.k8s.io/size": size.to_string() });
            if index > 0 {
                annotations["leaderworkerset.sigs.k8s.io/leader-name"] = leader.into();
            }
            merge(&mut pod["metadata"]["annotations"], &annotations);
            pods.push(pod);
        }
    }
    Ok(pods)
}

/// As long as the SHA-1 that the webhook computes.
fn key(leader: &str) -> String {
    let mut key = String::new();
    for byte in leader.bytes().cycle().take(20) {
        write!(key, "{byte:02x}").expect("a String");
    }
    key
}

/// `labelPod` of `KubeRay`.
fn pods_of_a_ray_cluster(parent: &DynamicObject) -> anyhow::Result<Vec<Value>> {
    let name = parent.name_any();
    let labels = |role: &str, group: &str| {
        json!({
            "ray.io/is-ray-node": "yes",
            "ray.io/cluster": name,
            "ray.io/node-type": role,
            "ray.io/group": group,
            "ray.io/identifier": format!("{name}-{role}"),
            "app.kubernetes.io/name": "kuberay",
            "app.kubernetes.io/created-by": "kuberay-operator",
        })
    };
    let spec = &parent.data["spec"];
    let head_name = format!("{name}-head");
    let head = &spec["headGroupSpec"]["template"];
    let of_head = labels("head", "headgroup");
    let mut pods = vec![child(parent, ("v1", "Pod", &head_name), head, &of_head)?];
    for group in list(&spec["workerGroupSpecs"]) {
        let group_name = group["groupName"].as_str().context("a group has a name")?;
        for index in 0..count(&group["replicas"]) {
            let pod_name = format!("{name}-{group_name}-worker-{index}");
            let labels = labels("worker", group_name);
            pods.push(child(parent, ("v1", "Pod", &pod_name), &group["template"], &labels)?);
        }
    }
    Ok(pods)
}
