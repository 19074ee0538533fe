//! What fits now: nodes on which the pod cannot start now do not count.

use super::{Cluster, EXAMPLE, NODE, joined, pair, pod};
use serde_json::{Value, json};

/// A node like the example's, and its devices.
fn second() -> Vec<Value> {
    let objects = cluster_model::snapshot::objects(EXAMPLE.as_ref()).unwrap();
    let is_of_node = |object: &Value| {
        ["Node", "NodeTopology", "ResourceSlice"].iter().any(|kind| object["kind"] == *kind)
    };
    let renamed = |object: Value| {
        let text = object.to_string().replace(NODE, "second");
        serde_json::from_str(&text).unwrap()
    };
    objects.into_iter().filter(is_of_node).map(renamed).collect()
}

/// Two nodes; the second one is changed.
fn two(spec: &Value, status: &Value) -> Cluster {
    let mut second = second();
    for object in second.iter_mut().filter(|object| object["kind"] == "Node") {
        object["spec"] = spec.clone();
        object["status"] = status.clone();
    }
    Cluster::of(&second, |_| {})
}

#[test]
fn a_plan_counts_nodes_that_take_the_pod_now() {
    let cordoned = json!({ "unschedulable": true });
    let tainted = json!({ "taints": [{ "key": "sku", "value": "gpu", "effect": "NoSchedule" }] });
    let not_ready = json!({ "conditions": [{ "type": "Ready", "status": "Unknown" }] });
    let small = json!({ "allocatable": { "cpu": "1", "pods": "9" } });
    let large = pod(
        &json!({ "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1" }),
        &json!({ "requests": { "cpu": "2" } }),
    );
    let mut chosen = pair();
    chosen["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": NODE });
    let mut tolerant = pair();
    tolerant["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    let none = json!({});
    for (spec, status, pod, counted, why) in [
        (&none, &none, pair(), "on 2 of 2 nodes now\n", ""),
        (&cordoned, &none, pair(), "on 1 of 2 nodes now; 1 is cordoned\n", "second: is cordoned"),
        (&none, &not_ready, pair(), "on 1 of 2 nodes now; 1 is not ready\n", "second: is not"),
        (&tainted, &none, pair(), "on 1 of 2 nodes now\n", "second: has the taint sku"),
        (&none, &small, large, "on 1 of 2 nodes now\n", "second: has too little `cpu`"),
        (&none, &none, chosen, "on 1 of 2 nodes now\n", "second: excluded by"),
        (&tainted, &none, tolerant.clone(), "on 2 of 2 nodes now\n", ""),
        (&cordoned, &none, tolerant, "on 2 of 2 nodes now\n", ""),
    ] {
        let cluster = two(spec, status);
        let text = cluster.of_file("plan", &pod);
        assert!(text.contains(counted) && text.contains(why), "{counted}: {text}");
        let fits = counted.split(" nodes now").next().unwrap().replacen("on ", "fits on ", 1);
        let explained = cluster.of_file("explain", &pod);
        assert!(explained.contains(&fits), "{fits}: {explained}");
    }
}

#[test]
fn a_plan_says_that_no_node_takes_the_pod_now() {
    let cordon = |object: &mut Value| {
        if object["kind"] == "Node" {
            object["spec"]["unschedulable"] = true.into();
        }
    };
    let mut all = second();
    all.iter_mut().for_each(cordon);
    let text = Cluster::of(&all, cordon).of_file("plan", &pair());
    let expected = "Admitted: it waits, since no node takes it now; 2 of 2 nodes could serve it; 2 are \
                    cordoned ";
    assert!(joined(&text).starts_with(expected), "{text}");
}

/// Programs get the same answer.
#[test]
fn a_plan_as_json_has_no_devices_of_nodes_that_take_no_pods() {
    let cluster = two(&json!({ "unschedulable": true }), &json!({}));
    let file = cluster.0.path().join("asked.txt");
    std::fs::write(&file, pair().to_string()).unwrap();
    let text = cluster.run(&["plan", "-f", &file.display().to_string(), "-o", "json"]);
    let text = text.split("exit code").next().unwrap();
    let nodes = serde_json::from_str::<Value>(text).unwrap()["nodes"].clone();
    let fits = |name: &str| {
        let node = nodes.as_array().unwrap().iter().find(|node| node["name"] == name).unwrap();
        (node["fits"].clone(), node["reason"].clone(), node["devices"].as_array().unwrap().len())
    };
    assert_eq!(fits(NODE), (true.into(), Value::Null, 2));
    let why = "is cordoned; `kubectl uncordon` lets pods on it again";
    assert_eq!(fits("second"), (false.into(), why.into(), 0));
}
