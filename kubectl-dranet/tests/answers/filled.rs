//! What kube-apiserver makes of a pod before any webhook sees it, and which pods it refuses.

use super::{Cluster, joined, pair, pod};
use serde_json::{Value, json};

const FITS: &str = "fits on 1 of 1 node now";

/// A node with 4 CPUs, and these objects.
fn cluster(more: &[Value]) -> Cluster {
    Cluster::of(more, |object| {
        if object["kind"] == "Node" {
            object["metadata"]["labels"]["pool"] = "x".into();
            object["status"]["allocatable"] = json!({ "cpu": "4", "memory": "64Gi", "pods": "9" });
        }
    })
}

fn object(version: &str, kind: &str, fields: &Value) -> Value {
    let mut object = json!({
        "apiVersion": version, "kind": kind, "metadata": { "name": "one", "namespace": "default" },
    });
    extend(&mut object, fields);
    object
}

/// Sets the fields of an object.
fn extend(object: &mut Value, fields: &Value) {
    for (name, value) in fields.as_object().into_iter().flatten() {
        object[name] = value.clone();
    }
}

/// Fields of a pod's spec, an object of the cluster, and the text that `explain` and `simulate` have.
#[test]
fn a_pod_of_a_file_is_what_the_api_server_makes_of_it() {
    let fits = FITS;
    let no_cpu = "has too little `cpu`";
    let runtime = |fields: Value| object("node.k8s.io/v1", "RuntimeClass", &fields);
    let class = |fields: Value| object("scheduling.k8s.io/v1", "PriorityClass", &fields);
    let limits = |item: Value| object("v1", "LimitRange", &json!({ "spec": { "limits": [item] } }));
    let quota = |spec: Value| {
        object("v1", "ResourceQuota", &json!({ "spec": spec, "status": { "used": {} } }))
    };
    let named = json!({ "runtimeClassName": "one" });
    let none = json!({});
    for (spec, object, expected) in [
        (&named, runtime(json!({ "overhead": { "podFixed": { "cpu": "3" } } })), fits),
        (&named, runtime(json!({ "overhead": { "podFixed": { "cpu": "5" } } })), no_cpu),
        (&named, runtime(json!({ "scheduling": { "nodeSelector": { "pool": "x" } } })), fits),
        (
            &named,
            runtime(json!({ "scheduling": { "nodeSelector": { "pool": "y" } } })),
            "no node matches the pod's nodeSelector",
        ),
        (
            &json!({ "runtimeClassName": "one", "nodeSelector": { "pool": "x" } }),
            runtime(json!({ "scheduling": { "nodeSelector": { "pool": "y" } } })),
            "is refused by the API server",
        ),
        (&json!({ "priorityClassName": "one" }), class(json!({ "value": 5 })), fits),
        (
            &json!({ "priorityClassName": "two" }),
            class(json!({ "value": 5 })),
            "is refused by the API server: there is no PriorityClass two",
        ),
        (
            &json!({ "priorityClassName": "one", "preemptionPolicy": "Never" }),
            class(json!({ "value": 5 })),
            "its preemptionPolicy is \"Never\", and its PriorityClass has \"PreemptLowerPriority\"",
        ),
        (
            &json!({ "priorityClassName": "one", "preemptionPolicy": "Never" }),
            class(json!({ "value": 5, "preemptionPolicy": "Never" })),
            fits,
        ),
        (
            &json!({ "priority": 4 }),
            class(json!({ "value": 5, "globalDefault": true })),
            "its priority is 4, and its PriorityClass has 5",
        ),
        (&none, limits(json!({ "type": "Container", "defaultRequest": { "cpu": "3" } })), fits),
        (&none, limits(json!({ "type": "Container", "defaultRequest": { "cpu": "5" } })), no_cpu),
        (&cpu("1"), limits(json!({ "type": "Container", "defaultRequest": { "cpu": "5" } })), fits),
        (&none, limits(json!({ "type": "Container", "max": { "cpu": "5" } })), no_cpu),
        (&none, limits(json!({ "type": "Container", "min": { "cpu": "5" } })), no_cpu),
        // The pod says how many GPUs it asks for.
        (&none, limits(json!({ "type": "Container", "default": { "nvidia.com/gpu": "4" } })), fits),
        (
            &none,
            limits(json!({ "type": "Container", "max": { "nvidia.com/gpu": "4" } })),
            "maximum nvidia.com/gpu usage per Container is 4. No limit is specified",
        ),
        (&json!({ "resources": { "limits": { "cpu": "9" } } }), Value::Null, no_cpu),
        (
            &json!({ "resources": { "limits": { "cpu": "9" } }, "containers": cpu("1")["containers"] }),
            Value::Null,
            fits,
        ),
        (
            &json!({
                "resources": { "requests": { "cpu": "2" } }, "containers": cpu("3")["containers"],
            }),
            Value::Null,
            "it requests 2 of cpu, less than its containers together",
        ),
        // A sidecar runs beside the containers.
        (
            &json!({
                "resources": { "limits": { "cpu": "4" } }, "containers": cpu("3")["containers"],
                "initContainers": [{
                    "name": "side", "image": "i", "restartPolicy": "Always",
                    "resources": { "requests": { "cpu": "2" } },
                }],
            }),
            Value::Null,
            "its containers together request more of cpu than its limit of 4",
        ),
        (&none, quota(json!({ "hard": { "pods": "1" } })), fits),
        (&none, quota(json!({ "hard": { "pods": "0" } })), "pods is limited to 0"),
        (
            &none,
            quota(json!({ "hard": { "pods": "0" }, "scopes": ["BestEffort"] })),
            "pods is limited to 0",
        ),
        (&cpu("1"), quota(json!({ "hard": { "pods": "0" }, "scopes": ["BestEffort"] })), fits),
        (&none, quota(json!({ "hard": { "requests.cpu": "9" } })), "does not set it"),
        (&cpu("1"), quota(json!({ "hard": { "requests.cpu": "9" } })), fits),
        (
            &cpu("2"),
            quota(json!({ "hard": { "requests.cpu": "1" } })),
            "requests.cpu is limited to 1",
        ),
    ] {
        check(spec, &object, expected);
    }
}

/// Bounds of a `LimitRange`.
#[test]
fn a_limit_range_refuses_what_the_api_server_refuses() {
    let fits = FITS;
    let limits = |item: Value| object("v1", "LimitRange", &json!({ "spec": { "limits": [item] } }));
    let none = json!({});
    for (spec, object, expected) in [
        (
            &none,
            limits(json!({ "type": "Pod", "max": { "cpu": "5" } })),
            "maximum cpu usage per Pod is 5. No limit is specified",
        ),
        (
            &none,
            limits(json!({ "type": "Pod", "min": { "nvidia.com/gpu": "1" } })),
            "minimum nvidia.com/gpu usage per Pod is 1. No request is specified",
        ),
        (
            &cpu("9"),
            limits(json!({ "type": "Container", "default": { "cpu": "8" } })),
            "its container main requests 9 of cpu, more than its limit of 8",
        ),
        (
            &json!({
                "containers": [{ "name": "main", "resources": { "requests": { "cpu": "1" } } }],
                "resources": { "limits": { "cpu": "9" } },
            }),
            limits(json!({ "type": "Container", "default": { "cpu": "200" } })),
            "its container main has a limit of 200 of cpu, more than the pod's limit of 9",
        ),
        (
            &cpu("3"),
            limits(
                json!({ "type": "Container", "max": { "cpu": "2" }, "default": { "cpu": "4" } }),
            ),
            "maximum cpu usage per Container is 2, but limit is 4",
        ),
        (
            &cpu("1500m"),
            limits(json!({ "type": "Container", "min": { "cpu": "2" } })),
            "minimum cpu usage per Container is 2, but request is 1500m",
        ),
        (
            &memory("1024Mi"),
            limits(json!({ "type": "Container", "min": { "memory": "2048Mi" } })),
            "minimum memory usage per Container is 2Gi, but request is 1Gi",
        ),
        (
            &memory("3G"),
            limits(json!({ "type": "Pod", "min": { "memory": "4Gi" } })),
            "minimum memory usage per Pod is 4Gi, but request is 3G",
        ),
        (
            &cpu("1"),
            limits(json!({
                "type": "Container", "default": { "cpu": "3" },
                "maxLimitRequestRatio": { "cpu": "2" },
            })),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3",
        ),
        (
            &cpu("2"),
            limits(json!({
                "type": "Container", "default": { "cpu": "3" }, "min": { "cpu": "1" },
                "max": { "cpu": "3" }, "maxLimitRequestRatio": { "cpu": "2" },
            })),
            fits,
        ),
    ] {
        check(spec, &object, expected);
    }
}

fn cpu(cpu: &str) -> Value {
    requests(&json!({ "cpu": cpu }))
}

fn memory(memory: &str) -> Value {
    requests(&json!({ "memory": memory }))
}

fn requests(requests: &Value) -> Value {
    json!({ "containers": [{ "name": "main", "resources": { "requests": requests } }] })
}

/// What all commands say of a pod with these fields beside an object.
fn check(spec: &Value, object: &Value, expected: &str) {
    let more: Vec<Value> = Some(object.clone()).filter(|it| !it.is_null()).into_iter().collect();
    let cluster = cluster(&more);
    let mut pod = pair();
    extend(&mut pod["spec"], spec);
    let explained = joined(&cluster.of_file("explain", &pod));
    assert!(explained.contains(expected), "{spec} {object}: {explained}");
    let simulated = joined(&cluster.of_file("simulate", &pod));
    let is_placed = simulated.contains("1 pod placed, 0 not");
    assert_eq!(is_placed, expected == FITS, "{spec} {object}: {simulated}");
    let planned = joined(&cluster.of_file("plan", &pod));
    assert_eq!(planned.contains("on 1 of 1 node now"), expected == FITS, "{spec}: {planned}");
}

/// Nobody wrote the limit that the denial is about.
#[test]
fn a_denial_names_the_limit_range_that_sets_gpus() {
    let limits = json!([{ "type": "Container", "max": { "nvidia.com/gpu": "9" } }]);
    let range = object("v1", "LimitRange", &json!({ "spec": { "limits": limits } }));
    let mut asked = pod(&json!({ "dranet.io/aligned-nics": "per-gpu" }), &json!({}));
    asked["metadata"]["namespace"].take();
    let text = joined(&cluster(&[range]).of_file("plan", &asked));
    let named = "LimitRange `one` of the namespace sets the limit nvidia.com/gpu: \"9\" in `main`";
    assert!(text.contains("denied: ") && text.contains(named), "{text}");
}

/// A pod with two limits of its quota, one after the other.
#[test]
fn a_quota_counts_the_pods_that_are_placed() {
    let quota = object(
        "v1",
        "ResourceQuota",
        &json!({
            "spec": { "hard": { "count/pods": "1" } }, "status": { "used": {} },
        }),
    );
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "new", "namespace": "default" },
        "spec": { "parallelism": 2, "template": {} },
    });
    job["spec"]["template"]["spec"] = pair()["spec"].take();
    job["spec"]["template"]["metadata"]["annotations"] = pair()["metadata"]["annotations"].take();
    let text = joined(&cluster(&[quota]).of_file("simulate", &job));
    assert!(text.contains("1 pod placed, 1 not"), "{text}");
    assert!(text.contains("count/pods is limited to 1"), "{text}");
}
