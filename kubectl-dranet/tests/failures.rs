//! The text for each kind of failure: the example cluster with one problem. Each text is
//! a snapshot.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";
const GPU: &str = "gpu.nvidia.com";
const NIC: &str = "dra.net";

/// One problem.
struct Failure {
    name: &'static str,
    objects: Vec<Value>,
    pod: Value,
    args: Vec<&'static str>,
}

fn example() -> Vec<Value> {
    cluster_model::snapshot::objects(Path::new(EXAMPLE)).unwrap()
}

/// A pod with annotations that asks for one GPU.
fn annotated(annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "new", "namespace": "default", "annotations": annotations },
        "spec": { "containers": [
            { "name": "main", "image": "main", "resources": { "limits": { "nvidia.com/gpu": 1 } } },
        ] },
    })
}

/// A pod of the cluster with a claim that is made from template `hand`.
fn with_template() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "new", "namespace": "default" },
        "spec": {
            "containers": [{ "name": "main", "image": "main" }],
            "resourceClaims": [{ "name": "devices", "resourceClaimTemplateName": "hand" }],
        },
    })
}

fn template(devices: &Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": { "name": "hand", "namespace": "default" },
        "spec": { "spec": { "devices": devices } },
    })
}

/// Requests for one GPU and for one NIC with a selector.
fn selected(expression: &str) -> Value {
    json!({ "requests": [
        { "name": "gpu", "exactly": { "deviceClassName": GPU } },
        { "name": "nic", "exactly": {
            "deviceClassName": "dranet.net", "selectors": [{ "cel": { "expression": expression } }],
        } },
    ] })
}

/// A claim that holds devices for a pod.
fn claim(name: &str, pod: &str, devices: &[(&str, String)]) -> Value {
    let result = |(driver, device): &(&str, String)| json!({ "request": "r", "driver": driver, "pool": NODE, "device": device });
    let results: Vec<_> = devices.iter().map(result).collect();
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "devices": { "requests": [
            { "name": "gpu", "exactly": { "deviceClassName": GPU } },
        ] } },
        "status": {
            "allocation": { "devices": { "results": results } },
            "reservedFor": [{ "resource": "pods", "name": pod, "uid": pod }],
        },
    })
}

fn aligned(nics: &str) -> Value {
    annotated(&json!({ "dranet.io/aligned-nics": nics }))
}

/// The example with additional objects.
fn and(more: impl IntoIterator<Item = Value>) -> Vec<Value> {
    example().into_iter().chain(more).collect()
}

/// The example without some objects.
fn without(gone: impl Fn(&Value) -> bool) -> Vec<Value> {
    example().into_iter().filter(|object| !gone(object)).collect()
}

/// The example with each slice of a driver changed.
fn slices(driver: &str, change: impl Fn(&mut Value)) -> Vec<Value> {
    let mut objects = example();
    let of_driver = |object: &&mut Value| {
        object["kind"] == "ResourceSlice" && object["spec"]["driver"] == driver
    };
    objects.iter_mut().filter(of_driver).for_each(|object| change(&mut object["spec"]));
    objects
}

/// Denials because of an annotation's value, shown by `plan`.
fn wrong_annotations() -> Vec<Failure> {
    let plan = |name, annotations: Value| Failure {
        name,
        objects: example(),
        pod: annotated(&annotations),
        args: vec!["plan"],
    };
    vec![
        plan("nics_are_no_number", json!({ "dranet.io/aligned-nics": "two" })),
        plan("more_nics_than_a_cell_has", json!({ "dranet.io/aligned-nics": "3" })),
        plan(
            "level_is_unknown",
            json!({ "dranet.io/aligned-nics": "1", "dranet.io/alignment": "near" }),
        ),
        plan(
            "policy_is_unknown",
            json!({ "dranet.io/aligned-nics": "1", "dranet.io/alignment-policy": "maybe" }),
        ),
        plan(
            "pairing_is_unknown",
            json!({ "dranet.io/aligned-nics": "1", "dranet.io/pairing": "all" }),
        ),
        plan(
            "gpu_class_is_not_there",
            json!({ "dranet.io/aligned-nics": "1", "dranet.io/gpu-class": "none-such" }),
        ),
        plan(
            "nic_class_is_not_there",
            json!({ "dranet.io/aligned-nics": "1", "dranet.io/nic-class": "none-such" }),
        ),
        plan(
            "container_is_not_there",
            json!({ "dranet.io/aligned-nics": "1", "dranet.io/containers": "other" }),
        ),
        plan(
            "addresses_may_not_be_set",
            json!({
                "dranet.io/aligned-nics": "1",
                "dranet.io/nic-config": "{\"interface\":{\"addresses\":[\"10.0.0.1/24\"]}}",
            }),
        ),
        plan("annotation_is_misspelt", json!({ "dranet.io/aligned-nic": "1" })),
    ]
}

/// Other denials by admission, shown by `plan`.
fn denials() -> Vec<Failure> {
    let no_gpu = {
        let mut pod = aligned("1");
        pod["spec"]["containers"][0]["resources"] = json!({});
        pod
    };
    let quota = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": { "name": "gpus", "namespace": "default" },
        "spec": { "hard": { "requests.nvidia.com/gpu": "8" } },
    });
    vec![
        Failure {
            name: "no_gpu_is_asked_for",
            objects: example(),
            pod: no_gpu,
            args: vec!["plan"],
        },
        Failure {
            name: "fabric_controller_is_off",
            objects: example(),
            pod: annotated(&json!({ "dranet.io/aligned-nics": "1", "dranet.io/fabric": "same" })),
            args: vec!["plan", "--fabric-controller=false"],
        },
        Failure {
            name: "search_takes_too_long",
            objects: example(),
            pod: aligned("2"),
            args: vec!["plan", "--max-steps=1"],
        },
        Failure {
            name: "quota_does_not_count_the_claim",
            objects: and([quota]),
            pod: aligned("1"),
            args: vec!["plan"],
        },
        Failure {
            name: "no_driver_publishes_nics",
            objects: without(|it| it["spec"]["driver"] == NIC),
            pod: aligned("1"),
            args: vec!["plan"],
        },
        Failure {
            name: "gpu_driver_is_not_installed",
            objects: without(|it| it["spec"]["driver"] == GPU || it["metadata"]["name"] == GPU),
            pod: aligned("1"),
            args: vec!["plan"],
        },
        Failure {
            name: "no_driver_publishes_gpus",
            objects: without(|it| it["spec"]["driver"] == GPU),
            pod: aligned("1"),
            args: vec!["plan"],
        },
        Failure {
            name: "no_graph_is_published",
            objects: without(|it| it["kind"] == "NodeTopology"),
            pod: aligned("2"),
            args: vec!["plan"],
        },
    ]
}

/// Hand-written claims that no node can satisfy, shown by `explain`.
fn by_hand() -> Vec<Failure> {
    let of = |name, devices: Value| Failure {
        name,
        objects: and([template(&devices)]),
        pod: with_template(),
        args: vec!["explain"],
    };
    vec![
        of("selector_that_nothing_meets", selected("device.attributes[\"dra.net\"].rdma == false")),
        of("attribute_that_is_missing", selected("has(device.attributes[\"example.com\"].color)")),
        of(
            "expression_that_fails",
            selected("device.attributes[\"example.com\"].color == \"red\""),
        ),
        of("expression_that_is_none", selected("device.attributes[")),
        of("constraint_that_cannot_hold", {
            let mut devices = selected("true");
            devices["constraints"] =
                json!([{ "requests": ["gpu", "nic"], "matchAttribute": "dra.net/ifName" }]);
            devices
        }),
        of("class_that_is_not_there", {
            json!({ "requests": [{ "name": "gpu", "exactly": { "deviceClassName": "none-such" } }] })
        }),
        of("more_devices_than_a_node_has", {
            json!({ "requests": [{ "name": "gpu", "exactly": {
                "deviceClassName": GPU, "allocationMode": "ExactCount", "count": 9,
            } }] })
        }),
        // No GPU of the node is of the first alternative's product, so its failure is not shown.
        of("alternative_for_another_machine", {
            let product = "device.attributes[\"gpu.nvidia.com\"].productName == \"other\"";
            json!({ "requests": [{ "name": "gpu", "firstAvailable": [
                { "name": "other", "deviceClassName": GPU,
                  "selectors": [{ "cel": { "expression": product } }] },
                { "name": "nine", "deviceClassName": GPU, "count": 9 },
            ] }] })
        }),
    ]
}

/// Other reasons why the scheduler does not place a pod, shown by `explain`.
fn pending() -> Vec<Failure> {
    let all_taken = (0..4).map(|gpu| (GPU, format!("gpu-{gpu}"))).collect::<Vec<_>>();
    let reserved = claim("shared", "other", &[(GPU, "gpu-0".to_owned())]);
    let mut shared = with_template();
    shared["spec"]["resourceClaims"] =
        json!([{ "name": "devices", "resourceClaimName": "shared" }]);
    shared["spec"]["nodeSelector"] = json!({ "zone": "other" });
    let mut no_webhook = aligned("1");
    no_webhook["metadata"]["uid"] = "4a0ff6f2".into();
    let mut gated = aligned("1");
    gated["spec"]["schedulingGates"] = json!([{ "name": "example.com/quota" }]);
    let mut elsewhere = aligned("1");
    elsewhere["spec"]["nodeSelector"] = json!({ "zone": "other" });
    let mut scheduler = aligned("1");
    scheduler["spec"]["schedulerName"] = "volcano".into();
    let bare = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "bare" } });
    let pair = selected("true");
    let mut nic_first = selected("has(device.attributes[\"example.com\"].color)");
    nic_first["requests"].as_array_mut().unwrap().reverse();
    let explain = |name, objects: Vec<Value>, pod: Value| Failure {
        name,
        objects,
        pod,
        args: vec!["explain"],
    };
    vec![
        explain("template_that_is_not_there", example(), with_template()),
        explain("all_devices_are_taken", and([claim("a", "train", &all_taken)]), aligned("1")),
        explain(
            "nic_whose_port_is_down",
            slices(NIC, |spec| {
                for device in spec["devices"].as_array_mut().unwrap() {
                    device["taints"] = json!([{
                        "key": "dranet.io/port-down", "value": "true", "effect": "NoSchedule",
                    }]);
                }
            })
            .into_iter()
            .chain([template(&pair)])
            .collect(),
            with_template(),
        ),
        explain(
            "pool_that_is_not_whole",
            slices(NIC, |spec| spec["pool"]["resourceSliceCount"] = 2.into())
                .into_iter()
                .chain([template(&pair)])
                .collect(),
            with_template(),
        ),
        explain(
            "pool_of_which_a_newer_version_is_coming",
            {
                let mut objects = and([template(&pair)]);
                let of_nics = |it: &&Value| it["spec"]["driver"] == NIC;
                let mut newer = objects.iter().find(of_nics).unwrap().clone();
                newer["metadata"]["name"] = "newer".into();
                newer["spec"]["pool"]["generation"] = 99.into();
                newer["spec"]["pool"]["resourceSliceCount"] = 3.into();
                objects.push(newer);
                objects
            },
            with_template(),
        ),
        // The cause is told first, though its request is the second.
        explain(
            "gpu_driver_that_publishes_nothing",
            slices(GPU, |spec| spec["driver"] = "example.com".into())
                .into_iter()
                .chain([template(&nic_first)])
                .collect(),
            with_template(),
        ),
        explain("claim_that_another_pod_has", and([reserved]), shared),
        explain("webhook_was_not_called", example(), no_webhook),
        explain("gate_of_somebody_else", example(), gated),
        explain("node_selector_leaves_no_node", example(), elsewhere),
        explain("scheduler_is_another", example(), scheduler),
        explain(
            "driver_is_absent_on_a_node",
            and([bare, claim("a", "train", &all_taken)]),
            aligned("1"),
        ),
    ]
}

#[test]
fn every_failure_has_its_text() {
    let failures: Vec<_> = wrong_annotations()
        .into_iter()
        .chain(denials())
        .chain(by_hand())
        .chain(pending())
        .collect();
    assert!(failures.len() >= 30, "{} failures", failures.len());
    for Failure { name, objects, pod, args } in failures {
        let folder = tempfile::tempdir().unwrap();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        let (cluster, asked) = (folder.path().join("cluster.json"), folder.path().join("pod.json"));
        fs::write(&cluster, list.to_string()).unwrap();
        fs::write(&asked, pod.to_string()).unwrap();
        let (cluster, asked) = (cluster.display().to_string(), asked.display().to_string());
        let more = ["-f", &asked, "--snapshot", &cluster];
        let args = [&["kubectl-dranet"], args.as_slice(), &more].concat();
        let output = kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap();
        let code = if output.denied { 3 } else { 0 };
        insta::assert_snapshot!(name, format!("{}exit code {code}\n", output.text));
    }
}
