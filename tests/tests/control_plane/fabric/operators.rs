//! The examples for `JobSet` and `MPIJob`. Their controllers are not here. The test plays their part:
//! child Jobs and worker pods as their sources make them (kubernetes-sigs/jobset v0.12.0,
//! `constructJob` and `labelAndAnnotateObject` in `pkg/controllers/jobset_controller.go`;
//! kubeflow/mpi-operator v0.8.0, `newWorker` and `newLauncherJob` in
//! `pkg/controller/mpi_job_controller.go`). Jobs and their pods are Kubernetes' own.

use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    ResourceExt,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};
use tests::{Check, ControlPlane, Scope, binaries, eventually, manifest};

use super::{
    foreign::{Reach, define},
    site::{SOON, create, is_held, node, placed, pods, with_fabrics},
};

const JOB_SET: &str = "../deploy/examples/workloads/jobset.yaml";
const MPI_JOB: &str = "../deploy/examples/upstream/aks-gb300-1nic.yaml";

/// The workers of each get one fabric, by the size that its object says. Pods without devices have no
/// gate.
pub(super) async fn the_examples_of_operators_run(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_fabrics(plane, (2, 2), 1, &[], async |scope, _| {
        let in_namespace = Reach::Namespaced;
        define(scope, "jobset.x-k8s.io", "v1alpha2", ("JobSet", "jobsets"), in_namespace).await?;
        define(scope, "kubeflow.org", "v2beta1", ("MPIJob", "mpijobs"), in_namespace).await?;

        let set = apply(scope, JOB_SET, "JobSet").await?;
        for replicated in list(&set.data["spec"]["replicatedJobs"]) {
            let replicas = replicated["replicas"].as_u64().unwrap_or(1);
            for index in 0..replicas {
                let job: Job = serde_json::from_value(child_job(&set, replicated, index))?;
                scope.api::<Job>().create(&PostParams::default(), &job).await?;
            }
        }
        placed(scope, &of_set(&set, "workers"), 2).await?;
        runs(scope, &of_set(&set, "coordinator")).await?;

        let mpi = apply(scope, MPI_JOB, "MPIJob").await?;
        let launcher: Job = serde_json::from_value(launcher(&mpi))?;
        scope.api::<Job>().create(&PostParams::default(), &launcher).await?;
        let workers = &mpi.data["spec"]["mpiReplicaSpecs"]["Worker"];
        for index in 0..workers["replicas"].as_u64().unwrap_or(1) {
            let pod: Pod = serde_json::from_value(worker(&mpi, &workers["template"], index))?;
            create(scope, &pod).await?;
        }
        placed(scope, &of_mpi_job(&mpi, "worker"), 2).await?;
        runs(scope, &of_mpi_job(&mpi, "launcher")).await
    })
    .await
}

/// Applies the object of this kind in an example.
async fn apply(scope: &Scope, file: &str, kind: &str) -> anyhow::Result<DynamicObject> {
    let objects = manifest::read(&binaries::in_tests(file))?;
    let is_it = |object: &DynamicObject| object.types.as_ref().is_some_and(|it| it.kind == kind);
    let object = objects.into_iter().find(is_it).with_context(|| format!("{file} has a {kind}"))?;
    scope.apply(object).await
}

/// The child Job of a JobSet.
fn child_job(set: &DynamicObject, replicated: &Value, index: u64) -> Value {
    let (set_name, name) = (set.name_any(), replicated["name"].as_str().unwrap_or_default());
    let all = list(&set.data["spec"]["replicatedJobs"]);
    let replicas = |job: &Value| job["replicas"].as_u64().unwrap_or(1);
    let before = all.iter().take_while(|job| job["name"] != name).map(replicas).sum::<u64>();
    let total = all.iter().map(replicas).sum::<u64>();
    let marks = json!({
        "jobset.sigs.k8s.io/jobset-name": set_name,
        "jobset.sigs.k8s.io/jobset-uid": set.uid(),
        "jobset.sigs.k8s.io/replicatedjob-name": name,
        "jobset.sigs.k8s.io/replicatedjob-replicas": replicas(replicated).to_string(),
        "jobset.sigs.k8s.io/restart-attempt": "0",
        "jobset.sigs.k8s.io/global-replicas": total.to_string(),
        "jobset.sigs.k8s.io/job-index": index.to_string(),
        "jobset.sigs.k8s.io/job-global-index": (before + index).to_string(),
    });
    let mut spec = replicated["template"]["spec"].clone();
    // Its webhook sets this.
    spec["completionMode"] = "Indexed".into();
    spec["suspend"] = false.into();
    mark(&mut spec["template"], &marks);
    let mut job = json!({
        "metadata": {
            "name": format!("{set_name}-{name}-{index}"),
            "ownerReferences": [owner(set, "jobset.x-k8s.io/v1alpha2", "JobSet")],
        },
        "spec": spec,
    });
    mark(&mut job, &marks);
    job
}

/// Adds labels and annotations, which are equal.
fn mark(object: &mut Value, marks: &Value) {
    for field in ["labels", "annotations"] {
        for (key, value) in marks.as_object().into_iter().flatten() {
            object["metadata"][field][key] = value.clone();
        }
    }
}

/// A worker of an `MPIJob`.
fn worker(mpi: &DynamicObject, template: &Value, index: u64) -> Value {
    let (job, name) = (mpi.name_any(), format!("{}-worker-{index}", mpi.name_any()));
    let mut pod = template.clone();
    pod["metadata"]["name"] = name.clone().into();
    pod["metadata"]["ownerReferences"] = json!([owner(mpi, "kubeflow.org/v2beta1", "MPIJob")]);
    pod["metadata"]["labels"] = roles(&job, "worker");
    pod["metadata"]["labels"]["training.kubeflow.org/replica-index"] = index.to_string().into();
    pod["spec"]["hostname"] = name.into();
    pod["spec"]["subdomain"] = job.into();
    pod["spec"]["restartPolicy"] = "Never".into();
    pod["spec"]["containers"][0]["command"] = json!(["/usr/sbin/sshd", "-De"]);
    pod
}

/// The launcher of an `MPIJob`.
fn launcher(mpi: &DynamicObject) -> Value {
    let job = mpi.name_any();
    let mut template = mpi.data["spec"]["mpiReplicaSpecs"]["Launcher"]["template"].clone();
    template["metadata"]["labels"] = roles(&job, "launcher");
    template["spec"]["restartPolicy"] = "OnFailure".into();
    json!({
        "metadata": {
            "name": format!("{job}-launcher"),
            "labels": {"app": job},
            "ownerReferences": [owner(mpi, "kubeflow.org/v2beta1", "MPIJob")],
        },
        "spec": {"template": template},
    })
}

fn roles(job: &str, role: &str) -> Value {
    json!({
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/job-role": role,
    })
}

fn owner(object: &DynamicObject, version: &str, kind: &str) -> Value {
    json!({
        "apiVersion": version, "kind": kind, "name": object.name_any(), "uid": object.uid(),
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn of_set(set: &DynamicObject, replicated: &str) -> String {
    let name = set.name_any();
    format!(
        "jobset.sigs.k8s.io/jobset-name={name},jobset.sigs.k8s.io/replicatedjob-name={replicated}"
    )
}

fn of_mpi_job(mpi: &DynamicObject, role: &str) -> String {
    let name = mpi.name_any();
    format!("training.kubeflow.org/job-name={name},training.kubeflow.org/job-role={role}")
}

/// Waits until the only pod with these labels has a node. It has no gate meanwhile.
async fn runs(scope: &Scope, labels: &str) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let pods = pods(scope, labels).await?;
        anyhow::ensure!(!pods.iter().any(is_held), "{labels} is held");
        let bound = pods.iter().filter(|pod| node(pod).is_some()).count();
        Ok(Check::that(bound == 1, || format!("{bound} of {} pods of {labels} run", pods.len())))
    })
    .await
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
