//! Verdicts that follow what the API server, the webhook and the controllers do besides the scheduler.

use super::{Cluster, NODE, joined, node, pair, pod};
use serde_json::{Value, json};

fn list(objects: &[Value]) -> Value {
    json!({ "apiVersion": "v1", "kind": "List", "items": objects })
}

/// A pod with a template of its own that makes this request.
fn with_template(exactly: &Value) -> Value {
    let mut pod = pod(&json!({}), &json!({}));
    pod["spec"]["resourceClaims"] = json!([{ "name": "own", "resourceClaimTemplateName": "own" }]);
    let template = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": { "name": "own", "namespace": "default" },
        "spec": { "spec": { "devices": { "requests": [{ "name": "r", "exactly": exactly }] } } },
    });
    list(&[pod, template])
}

fn gpu(more: &Value) -> Value {
    let mut exactly =
        json!({ "deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1 });
    exactly.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    exactly
}

#[test]
fn admin_access_needs_the_label_of_the_namespace() {
    let namespace = |labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "default", "labels": labels },
        })
    };
    let labelled = namespace(json!({ "resource.kubernetes.io/admin-access": "true" }));
    let asked = with_template(&gpu(&json!({ "adminAccess": true })));
    for (known, is_refused) in
        [(&[][..], true), (&[namespace(json!({}))], true), (std::slice::from_ref(&labelled), false)]
    {
        let cluster = Cluster::of(known, node(|_| {}));
        for command in ["explain", "simulate", "lint"] {
            let text = joined(&cluster.of_file(command, &asked));
            assert_eq!(text.contains("asks for adminAccess"), is_refused, "{command}: {text}");
            assert_eq!(text.ends_with("exit code 3"), is_refused, "{command}: {text}");
        }
    }
    let plain = with_template(&gpu(&json!({})));
    let text = Cluster::of(&[], node(|_| {})).of_file("explain", &plain);
    assert!(text.contains("fits on 1 of 1 node"), "{text}");
}

#[test]
fn a_pod_that_is_evicted_after_it_is_bound_is_named() {
    let taint = json!([{ "key": "c", "effect": "NoExecute" }]);
    let tainted = move |object: &mut Value| {
        if object["kind"] == "ResourceSlice" {
            let devices = object["spec"]["devices"].as_array_mut().unwrap();
            for device in devices {
                device["taints"] = taint.clone();
            }
        }
    };
    let cluster = Cluster::of(&[], tainted);
    let tolerates = |more: Value| {
        let mut toleration = json!({ "key": "c", "operator": "Exists", "effect": "NoExecute" });
        toleration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with_template(&gpu(&json!({ "tolerations": [toleration] })))
    };
    let for_time = tolerates(json!({ "tolerationSeconds": 3 }));
    for command in ["explain", "simulate"] {
        let text = joined(&cluster.of_file(command, &for_time));
        assert!(text.contains("taint c:NoExecute, which its claim tolerates for 3 s"), "{text}");
        let text = cluster.of_file(command, &tolerates(json!({})));
        assert!(!text.contains("evicted"), "{text}");
    }
}

#[test]
fn a_pod_of_a_file_with_a_node_is_what_the_webhook_makes_of_it() {
    let cluster = Cluster::of(&[], node(|_| {}));
    let mut asked = pair();
    asked["spec"]["nodeName"] = NODE.into();
    for command in ["explain", "simulate", "plan"] {
        let text = joined(&cluster.of_file(command, &asked));
        assert!(text.contains("which bypasses the scheduler"), "{command}: {text}");
        assert!(text.ends_with("exit code 3"), "{command}: {text}");
    }
    let mut made = asked.clone();
    made["metadata"]["uid"] = "1".into();
    assert!(cluster.of_file("explain", &made).contains("is bound to node"));
}

#[test]
fn changes_that_nobody_can_make_are_not_proposed() {
    let taint = json!([{ "key": "a", "effect": "NoSchedule" }]);
    let tainted = move |object: &mut Value| {
        if object["kind"] == "DeviceClass" && object["metadata"]["name"] == "gpu.nvidia.com" {
            object["spec"]["extendedResourceName"] = "example.com/gpu".into();
        }
        if object["kind"] == "ResourceSlice" {
            let devices = object["spec"]["devices"].as_array_mut().unwrap();
            for device in devices {
                device["taints"] = taint.clone();
            }
        }
    };
    let cluster = Cluster::of(&[], tainted);
    let asked = pod(&json!({}), &json!({ "limits": { "example.com/gpu": "1" } }));
    let text = cluster.of_file("explain", &asked);
    assert!(text.contains("fits on none"), "{text}");
    assert!(!text.contains("extended-resources, request"), "{text}");
}

#[test]
fn a_plan_says_how_many_nodes_could_serve_the_whole_pod() {
    let cluster = Cluster::of(&[], node(|_| {}));
    for (cpu, expected) in [("900", "0 of 1 node could serve it"), ("64", "on 1 of 1 node now")] {
        let mut asked = pair();
        asked["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu } });
        let text = joined(&cluster.of_file("plan", &asked));
        assert!(text.contains(expected), "{cpu}: {text}");
        let of_devices = if cpu == "900" { "can give it such devices" } else { "can serve it" };
        assert!(text.contains(&format!("1 of 1 node {of_devices}")), "{cpu}: {text}");
    }
}

#[test]
fn a_pod_whose_template_is_not_created_waits_for_it() {
    let cluster = Cluster::of(&[], node(|_| {}));
    let planned = cluster.0.path().join("asked.txt");
    std::fs::write(&planned, pair().to_string()).unwrap();
    let text = cluster.run(&["plan", "-f", &planned.display().to_string(), "-o", "json"]);
    let text = text.rsplit_once("exit code").unwrap().0;
    let mut made = serde_json::from_str::<Value>(text).unwrap()["pod"].clone();
    made["metadata"]["uid"] = "1".into();
    let text = joined(&cluster.of_file("explain", &made));
    assert!(text.contains("admission has not created its ResourceClaimTemplate"), "{text}");
    let mut missed = pair();
    missed["metadata"]["uid"] = "1".into();
    let text = joined(&cluster.of_file("explain", &missed));
    assert!(text.contains("was created without the webhook"), "{text}");
}

/// Three of five pods have a place.
fn on_fabric(more: &Value) -> Value {
    let mut annotations =
        json!({ "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1", "dranet.io/fabric": "g" });
    annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    annotations
}

fn fabric(object: &mut Value) {
    node(|node| {
        node["metadata"]["labels"]["topology.dranet.io/fabric"] = "f".into();
    })(object);
}

#[test]
fn a_named_group_without_size_is_placed_one_by_one() {
    let template = json!({
        "metadata": { "annotations": on_fabric(&json!({})) },
        "spec": { "containers": [{ "name": "main", "image": "main" }] },
    });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "train" },
        "spec": { "parallelism": 5, "template": template },
    });
    let cluster = Cluster::of(&[], fabric);
    let text = joined(&cluster.of_file("plan", &job));
    assert!(text.contains("so they are placed one by one: the first would go to f"), "{text}");
    assert!(text.contains("group g has no dranet.io/fabric-size"), "{text}");
    let text = cluster.of_file("simulate", &job);
    assert!(text.contains("4 pods placed, 1 not"), "{text}");
}

#[test]
fn a_group_waits_until_all_its_pods_exist() {
    let cluster = Cluster::of(&[], fabric);
    let one = |name: &str| {
        let mut pod = pod(&on_fabric(&json!({ "dranet.io/fabric-size": "3" })), &json!({}));
        pod["metadata"]["name"] = name.into();
        pod
    };
    let text = cluster.of_file("simulate", &list(&[one("a"), one("b")]));
    assert!(text.contains("0 pods placed, 2 not"), "{text}");
    assert!(joined(&text).contains("2 of the 3 pods of the group exist"), "{text}");
    let text = cluster.of_file("explain", &one("a"));
    assert!(joined(&text).contains("1 of the 3 pods of the group exist"), "{text}");
    let text = cluster.of_file("simulate", &list(&[one("a"), one("b"), one("c")]));
    assert!(text.contains("3 pods placed, 0 not"), "{text}");
}

#[test]
fn a_change_for_a_group_is_tried_on_the_group() {
    let cordoned = |object: &mut Value| {
        fabric(object);
        node(|node| node["spec"]["unschedulable"] = true.into())(object);
    };
    let cluster = Cluster::of(&[], cordoned);
    let group = |size: &str| {
        let more = json!({ "dranet.io/fabric-size": size });
        let pods: Vec<Value> = (0..size.parse().unwrap())
            .map(|number: usize| {
                let mut pod = pod(&on_fabric(&more), &json!({}));
                pod["metadata"]["name"] = format!("p{number}").into();
                pod
            })
            .collect();
        list(&pods)
    };
    let text = joined(&cluster.of_file("explain", &group("3")));
    assert!(
        text.contains(&format!("`kubectl uncordon {NODE}` (the group goes to f then)")),
        "{text}"
    );
    let text = joined(&cluster.of_file("explain", &group("9")));
    assert!(!text.contains("Each of these changes"), "{text}");
}

#[test]
fn capacity_leaves_out_nodes_whose_taint_nobody_tolerates() {
    let tainted = |key: &'static str| {
        node(move |node| {
            node["spec"]["taints"] = json!([{ "key": key, "effect": "NoSchedule" }]);
        })
    };
    let tolerating = |toleration: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "other", "namespace": "default" },
            "spec": {
                "nodeName": NODE, "tolerations": [toleration],
                "containers": [{ "name": "c", "image": "i" }],
            },
        })
    };
    let by_name = tolerating(json!({ "key": "reserved", "operator": "Exists" }));
    let all = tolerating(json!({ "operator": "Exists" }));
    for (key, pods, is_counted) in [
        ("reserved", &[][..], false),
        ("reserved", &[all], false),
        ("reserved", &[by_name], true),
        ("nvidia.com/gpu", &[], true),
    ] {
        let text = Cluster::of(pods, tainted(key)).run(&["capacity", "-o", "json"]);
        let answer: Value = serde_json::from_str(text.rsplit_once("exit code").unwrap().0).unwrap();
        let fit = answer["shapes"][0]["fitNow"].as_u64().unwrap();
        assert_eq!((fit > 0, answer["leftOut"].is_null()), (is_counted, is_counted), "{text}");
    }
}

/// The API server creates two of three pods, and so none is placed.
#[test]
fn a_group_that_a_quota_does_not_let_be_whole_waits() {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": { "name": "few", "namespace": "default" },
        "spec": { "hard": { "pods": "2" } }, "status": { "used": { "pods": "0" } },
    });
    let template = json!({
        "metadata": { "annotations": on_fabric(&json!({ "dranet.io/fabric": "same" })) },
        "spec": { "containers": [{ "name": "main", "image": "main" }] },
    });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "train" },
        "spec": { "parallelism": 3, "template": template },
    });
    let cluster = Cluster::of(&[quota], fabric);
    let text = joined(&cluster.of_file("simulate", &job));
    assert!(text.contains("0 pods placed, 3 not"), "{text}");
    for command in ["simulate", "explain", "plan"] {
        let text = joined(&cluster.of_file(command, &job));
        assert!(text.contains("2 of the 3 pods of the group exist"), "{command}: {text}");
    }
}
