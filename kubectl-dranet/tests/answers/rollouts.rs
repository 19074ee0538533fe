//! Rollouts on a full cluster: the new pod waits for the old one, and the old one for the new.

use super::{Cluster, EXAMPLE, NODE, joined};
use serde_json::{Value, json};

const OLD: &str = "srv-7d4b9c-x2x4z";

/// What the change is called.
const ROLLOUT: &str =
    "a rollout: pod srv-7d4b9c-x2x4z of the same Deployment srv has the devices of node";

/// What `plan` warns of.
const SURGE: &str = "creates a new pod before an old one leaves";

/// The claim of a pod that has all devices of the example's node.
fn claim(pod: &str) -> Value {
    let objects = cluster_model::snapshot::objects(EXAMPLE.as_ref()).unwrap();
    let slices = objects.iter().filter(|object| object["kind"] == "ResourceSlice");
    let results = slices.flat_map(|slice| {
        let spec = &slice["spec"];
        let devices = spec["devices"].as_array().unwrap().iter();
        devices.map(|device| {
            json!({
                "request": "r", "driver": spec["driver"], "pool": spec["pool"]["name"],
                "device": device["name"],
            })
        })
    });
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": format!("{pod}-dranet"), "namespace": "default" },
        "spec": { "devices": { "requests": [] } },
        "status": {
            "allocation": { "devices": { "results": results.collect::<Vec<_>>() } },
            "reservedFor": [{ "resource": "pods", "name": pod, "uid": "1" }],
        },
    })
}

/// A workload of pods with this many GPUs and NICs.
fn workload(kind: &str, name: &str, gpus: &str, strategy: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "replicas": 1,
            "strategy": strategy,
            "template": {
                "metadata": { "annotations": {
                    "dranet.io/aligned-nics": "per-gpu", "dranet.io/gpus": gpus,
                } },
                "spec": { "containers": [{ "name": "main", "image": "main" }] },
            },
        },
    })
}

/// A pod of this revision of the Deployment.
fn pod(revision: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("srv-{revision}-abcde"),
            "namespace": "default",
            "labels": { "pod-template-hash": revision },
            "annotations": { "dranet.io/aligned-nics": "per-gpu", "dranet.io/gpus": "4" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("srv-{revision}"),
                "uid": "2", "controller": true,
            }],
        },
        "spec": { "containers": [{ "name": "main", "image": "main" }] },
    })
}

#[test]
fn a_pod_that_waits_for_an_old_one_of_its_deployment_is_a_rollout() {
    let any = json!({});
    for (asked, is_rollout) in [
        (pod("5f6b8d"), true),
        (pod("7d4b9c"), false),
        (workload("Deployment", "srv", "4", &any), true),
        (workload("Deployment", "other", "4", &any), false),
        (workload("StatefulSet", "srv", "4", &any), false),
    ] {
        let text = joined(&Cluster::of(&[claim(OLD)], |_| {}).of_file("explain", &asked));
        let named = format!("{ROLLOUT} {NODE}");
        assert_eq!(text.contains(&named), is_rollout, "{asked}: {text}");
        assert!(text.contains("exit code 3"), "{text}");
    }
}

#[test]
fn a_plan_warns_of_rollouts_that_no_node_has_room_for() {
    let any = json!({});
    let first = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } });
    let full = || Cluster::of(&[claim(OLD)], |_| {});
    let empty = || Cluster::of(&[], |_| {});
    for (cluster, asked, is_warned) in [
        (empty(), workload("Deployment", "srv", "4", &any), true),
        (full(), workload("Deployment", "srv", "4", &any), true),
        (empty(), workload("Deployment", "srv", "1", &any), false),
        (empty(), workload("Deployment", "srv", "4", &first), false),
        (empty(), workload("Deployment", "srv", "4", &json!({ "type": "Recreate" })), false),
        (empty(), workload("StatefulSet", "srv", "4", &any), false),
        // It does not fit at all, whether or not it is rolled out.
        (full(), workload("Deployment", "other", "4", &any), false),
    ] {
        let text = joined(&cluster.of_file("plan", &asked));
        assert_eq!(text.contains(SURGE), is_warned, "{asked}: {text}");
    }
}

/// A pod on the example's node, or without a node.
fn of_controller(
    name: &str,
    (kind, owner): (&str, &str),
    labels: &Value,
    node: Option<&str>,
) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "labels": labels,
            "annotations": { "dranet.io/aligned-nics": "per-gpu", "dranet.io/gpus": "4" },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": kind, "name": owner, "uid": owner, "controller": true,
            }],
        },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "main" }] },
    })
}

/// Its devices would go to the pod that its controller creates then, or are needed as well.
#[test]
fn no_pod_of_the_same_workload_is_told_to_leave() {
    let revision = json!({ "pod-template-hash": "7d4b9c" });
    let index = json!({ "batch.kubernetes.io/job-completion-index": "0" });
    let of_set = json!({ "jobset.sigs.k8s.io/jobset-name": "set" });
    for (owner, other, labels, is_named) in [
        (("Job", "train"), ("Job", "train"), &index, false),
        (("Job", "train"), ("Job", "other"), &index, true),
        // Its pods end one after another.
        (("Job", "train"), ("Job", "train"), &json!({}), true),
        (("Job", "workers"), ("Job", "leader"), &of_set, false),
        (("ReplicaSet", "srv-7d4b9c"), ("ReplicaSet", "srv-7d4b9c"), &revision, false),
        (("StatefulSet", "db"), ("StatefulSet", "db"), &json!({}), false),
        (("StatefulSet", "db"), ("StatefulSet", "web"), &json!({}), true),
    ] {
        let bound = of_controller("first", other, labels, Some(NODE));
        let asked = of_controller("second", owner, labels, None);
        let text =
            joined(&Cluster::of(&[claim("first"), bound], |_| {}).of_file("explain", &asked));
        assert_eq!(text.contains("of pod first"), is_named, "{owner:?} {other:?}: {text}");
        assert!(text.contains("exit code 3"), "{text}");
    }
}
