//! What only the scheduler knows about a pod, and what is missing beside the claim that admission makes.

use super::{Cluster, NODE, joined, pair, pod};
use serde_json::{Value, json};

/// A pod of the cluster that the scheduler has tried, with a claim of its own.
fn tried(message: &str) -> Vec<Value> {
    let mut live = pod(&json!({}), &json!({}));
    live["metadata"]["uid"] = "1".into();
    live["metadata"]["name"] = "new".into();
    live["metadata"]["namespace"] = "default".into();
    live["spec"]["resourceClaims"] = json!([{ "name": "n", "resourceClaimTemplateName": "one" }]);
    live["status"] = json!({ "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
    }] });
    vec![live, template("one")]
}

fn template(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "spec": { "devices": { "requests": [
            { "name": "nic", "exactly": { "deviceClassName": "dranet.net" } },
        ] } } },
    })
}

/// The scheduler knows rules that are not looked at here, and those of its other plugins.
#[test]
fn explain_says_what_the_scheduler_said() {
    let message = "0/1 nodes are available: 1 node(s) exceed max volume count.";
    let text = Cluster::of(&tried(message), |_| {}).run(&["explain", "pod/new"]);
    let said = "when the scheduler last tried, it said: 0/1 nodes are available";
    assert!(joined(&text).contains(said), "{text}");
    let mut gated = tried("Scheduling is blocked due to non-empty scheduling gates");
    gated[0]["status"]["conditions"][0]["reason"] = "SchedulingGated".into();
    let text = Cluster::of(&gated, |_| {}).run(&["explain", "pod/new"]);
    assert!(!text.contains("it said"), "{text}");
}

/// Rules of volumes that are not looked at are named.
#[test]
fn rules_that_are_not_looked_at_are_named() {
    let mut pod = pair();
    pod["spec"]["volumes"] = json!([{ "name": "v", "ephemeral": {} }]);
    let text = Cluster::of(&[], |_| {}).of_file("explain", &pod);
    assert!(text.contains("volumes, which may be bound"), "{text}");
}

/// Ports of the node that another pod has keep a pod off it, in whichever field they are.
#[test]
fn ports_in_use_keep_pods_off() {
    let other = json!({
        "kind": "Pod", "metadata": { "name": "other", "namespace": "default" },
        "spec": { "nodeName": NODE, "containers": [
            { "name": "c", "ports": [{ "containerPort": 8080, "hostPort": 8080 }] },
        ] },
    });
    let sidecar = json!([{
        "name": "s", "restartPolicy": "Always",
        "ports": [{ "hostPort": 8080, "containerPort": 1 }],
    }]);
    for (field, value) in [("hostNetwork", json!(true)), ("initContainers", sidecar)] {
        let mut pod = pair();
        pod["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 8080 }]);
        pod["spec"][field] = value;
        let cluster = Cluster::of(std::slice::from_ref(&other), |_| {});
        let text = joined(&cluster.of_file("explain", &pod));
        assert!(text.contains("has host port 8080, which the pod needs"), "{field}: {text}");
        let free = Cluster::of(&[], |_| {}).of_file("explain", &pod);
        assert!(free.contains("fits on 1 of 1 node now"), "{field}: {free}");
    }
}

/// A plan looks at all claims of the pod, as `explain` does.
#[test]
fn a_plan_looks_at_the_pods_other_claims() {
    let mut with_other = pair();
    with_other["spec"]["resourceClaims"] =
        json!([{ "name": "mine", "resourceClaimTemplateName": "one" }]);
    let missing = joined(&Cluster::of(&[], |_| {}).of_file("plan", &with_other));
    assert!(missing.contains("no node takes it now"), "{missing}");
    assert!(missing.contains("there is no ResourceClaimTemplate `default/one`"), "{missing}");
    let there = Cluster::of(&[template("one")], |_| {});
    let plan = joined(&there.of_file("plan", &with_other));
    assert!(plan.contains("on 1 of 1 node now"), "{plan}");
    // The other claim takes all NICs, so none is left for the pod's own.
    let mut all = template("one");
    all["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 4.into();
    let full = joined(&Cluster::of(&[all], |_| {}).of_file("plan", &with_other));
    assert!(full.contains("no node has such devices free now"), "{full}");
    // A claim that has devices elsewhere already.
    let mut shared = template("shared");
    shared["kind"] = "ResourceClaim".into();
    shared["spec"] = shared["spec"]["spec"].take();
    shared["status"] = json!({ "allocation": { "devices": { "results": [{
        "request": "nic", "driver": "dra.net", "pool": "other", "device": "n",
    }] } } });
    with_other["spec"]["resourceClaims"] =
        json!([{ "name": "mine", "resourceClaimName": "shared" }]);
    let elsewhere = joined(&Cluster::of(&[shared], |_| {}).of_file("plan", &with_other));
    assert!(
        elsewhere.contains("its claim shared has devices of node other already"),
        "{elsewhere}"
    );
    assert!(elsewhere.contains(&format!("{NODE}: ")), "{elsewhere}");
}

/// A selector that fails on the devices of one node ends the attempt on all, as in kube-scheduler.
#[test]
fn a_selector_that_fails_on_one_node_fits_nowhere() {
    let mut reads = template("one");
    reads["spec"]["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = json!([{ "cel": {
        "expression": "device.attributes['dra.net'].rdma",
    } }]);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "bare" },
        "status": { "allocatable": { "cpu": "8", "pods": "9" } },
    });
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": { "name": "bare" },
        "spec": {
            "driver": "dra.net", "nodeName": "bare", "devices": [{ "name": "nic" }],
            "pool": { "name": "bare", "generation": 1, "resourceSliceCount": 1 },
        },
    });
    let mut pod = pod(&json!({}), &json!({}));
    pod["spec"]["resourceClaims"] = json!([{ "name": "n", "resourceClaimTemplateName": "one" }]);
    let alone = Cluster::of(std::slice::from_ref(&reads), |_| {}).of_file("explain", &pod);
    assert!(alone.contains("fits on 1 of 1 node now"), "{alone}");
    let cluster = Cluster::of(&[reads, node, slice], |_| {});
    for command in ["explain", "simulate"] {
        let text = joined(&cluster.of_file(command, &pod));
        assert!(text.contains("fits on none of 2 nodes"), "{command}: {text}");
        assert!(text.contains("node bare: stops scheduling on all nodes"), "{command}: {text}");
        assert!(text.contains("would fit, but its claims fail on node bare"), "{command}: {text}");
    }
}

#[test]
fn a_pod_that_kueue_holds_waits_for_what_its_workload_says() {
    let mut held = pair();
    held["metadata"]["labels"] = json!({ "kueue.x-k8s.io/pod-group-name": "w" });
    held["spec"]["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/admission" }]);
    let said = "insufficient unused quota for nvidia.com/gpu in flavor gb300, 2 more needed";
    let workload = |version: &str| {
        json!({
            "apiVersion": version,
            "kind": "Workload",
            "metadata": { "name": "w", "namespace": "default" },
            "status": { "conditions": [
                { "type": "QuotaReserved", "status": "False", "message": said },
            ] },
        })
    };
    for (version, expected) in [
        ("kueue.x-k8s.io/v1beta2", format!("Kueue says of its Workload w: {said}.")),
        ("scheduling.k8s.io/v1alpha3", "scheduling gate kueue.x-k8s.io/admission.".to_owned()),
    ] {
        let text = joined(&Cluster::of(&[workload(version)], |_| {}).of_file("explain", &held));
        assert!(text.contains(&expected) && text.contains("exit code 3"), "{text}");
    }
}
