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

/// Rules of volumes and ports that are not looked at are named, in whichever field they are.
#[test]
fn rules_that_are_not_looked_at_are_named() {
    let ports = json!([{ "containerPort": 8080 }]);
    for (field, value, named) in [
        ("volumes", json!([{ "name": "v", "ephemeral": {} }]), "volumes, which may be bound"),
        ("hostNetwork", json!(true), "host ports"),
        (
            "initContainers",
            json!([{ "name": "s", "restartPolicy": "Always", "ports": [{ "hostPort": 1, "containerPort": 1 }] }]),
            "host ports",
        ),
    ] {
        let mut pod = pair();
        pod["spec"]["containers"][0]["ports"] = ports.clone();
        pod["spec"][field] = value;
        let text = Cluster::of(&[], |_| {}).of_file("explain", &pod);
        assert!(text.contains(named), "{field}: {text}");
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
