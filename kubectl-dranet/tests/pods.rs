//! `explain`, `verify` and `capacity` for pods on the example's node: four GPUs and four
//! NICs, two of each on each NUMA node.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const EXAMPLE: &str = "../deploy/examples/aks-gb300";
const NODE: &str = "aks-gpu-45139532-vmss000081";
const GPU: &str = "gpu.nvidia.com";
const NIC: &str = "dra.net";

/// A snapshot of the example with additional objects.
struct Cluster(TempDir);

impl Cluster {
    fn with(objects: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(format!("{EXAMPLE}/cluster.yaml"), folder.path().join("cluster.yaml")).unwrap();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        fs::write(folder.path().join("more.json"), list.to_string()).unwrap();
        Self(folder)
    }

    /// The output and whether the exit code is 3.
    fn run(&self, args: &[&str]) -> (String, bool) {
        let path = self.0.path().display().to_string();
        let args = [&["kubectl-dranet"], args, &["--snapshot", &path]].concat();
        let output = kubectl_dranet::run(&Args::try_parse_from(args).unwrap());
        let output = output.map_err(|error| process::exit::one_line(&error)).unwrap();
        (output.text, output.denied)
    }

    fn text(&self, args: &[&str]) -> String {
        let (text, denied) = self.run(args);
        format!("{text}exit code {}\n", if denied { 3 } else { 0 })
    }

    fn explain(&self, pod: &Value) -> (Value, bool) {
        let file = self.0.path().join("pod.txt");
        fs::write(&file, pod.to_string()).unwrap();
        let (text, denied) =
            self.run(&["explain", "-f", &file.display().to_string(), "-o", "json"]);
        (serde_json::from_str(&text).unwrap(), denied)
    }
}

/// A claim that holds these devices for a pod.
fn claim(name: &str, pod: &str, devices: &[(&str, &str)]) -> Value {
    let result = |(driver, device): &(&str, &str)| json!({ "request": "r", "driver": driver, "pool": NODE, "device": device });
    let results: Vec<_> = devices.iter().map(result).collect();
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "devices": { "requests": [
            { "name": "gpu", "exactly": { "deviceClassName": "gpu.nvidia.com" } },
            { "name": "nic", "exactly": { "deviceClassName": "dranet.net" } },
        ] } },
        "status": {
            "allocation": { "devices": { "results": results } },
            "reservedFor": [{ "resource": "pods", "name": pod, "uid": pod }],
        },
    })
}

/// A running pod with a claim.
fn running(name: &str, claim: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "annotations": annotations },
        "spec": {
            "nodeName": NODE,
            "containers": [{ "name": "main", "image": "main" }],
            "resourceClaims": [{ "name": "dranet", "resourceClaimName": claim }],
        },
        "status": { "phase": "Running" },
    })
}

/// A pending pod with annotations.
fn waiting(annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "new", "namespace": "default", "annotations": annotations },
        "spec": { "containers": [{ "name": "main", "image": "main" }] },
    })
}

fn file(folder: &Path, object: &Value) -> String {
    let path = folder.join("asked.txt");
    fs::write(&path, object.to_string()).unwrap();
    path.display().to_string()
}

/// One pod on NUMA node 0 and one on NUMA node 1, so that no two GPUs of a NUMA node are
/// free.
fn half_used() -> Vec<Value> {
    vec![
        claim("one", "train-0", &[(GPU, "gpu-0"), (NIC, "pci-0101-00-00-0")]),
        claim("two", "train-1", &[(GPU, "gpu-2"), (NIC, "pci-0103-00-00-0")]),
    ]
}

#[test]
fn explain_names_what_is_in_use_and_what_would_help() {
    let cluster = Cluster::with(&half_used());
    let asked = json!({
        "dranet.io/aligned-nics": "2", "dranet.io/gpus": "2", "dranet.io/pairing": "group",
    });
    let pod = file(cluster.0.path(), &waiting(&asked));
    insta::assert_snapshot!(cluster.text(&["explain", "-f", &pod]));
}

#[test]
fn explain_of_pods_that_fit_run_or_are_refused() {
    let mut objects = half_used();
    objects.push(running("train-0", "one", &json!({})));
    objects.push(running("lost", "no-such-claim", &json!({})));
    objects.last_mut().unwrap()["spec"]["nodeName"] = Value::Null;
    let cluster = Cluster::with(&objects);
    let one = file(
        cluster.0.path(),
        &waiting(&json!({ "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1" })),
    );
    let mut text = cluster.text(&["explain", "-f", &one]);
    let nine = json!({ "dranet.io/aligned-nics": "9", "dranet.io/gpus": "1" });
    let nine = file(cluster.0.path(), &waiting(&nine));
    text += &cluster.text(&["explain", "-f", &nine]);
    for name in ["pod/train-0", "lost"] {
        text += &cluster.text(&["explain", name]);
    }
    let mut gated = waiting(&json!({ "dranet.io/aligned-nics": "1", "dranet.io/gpus": "1" }));
    gated["spec"]["schedulingGates"] = json!([{ "name": "example.com/quota" }]);
    let gated = file(cluster.0.path(), &gated);
    text += &cluster.text(&["explain", "-f", &gated]);
    insta::assert_snapshot!(text);
}

#[test]
fn explain_of_a_claim_written_by_hand() {
    let hand_written = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": { "name": "hand", "namespace": "default" },
        "spec": { "spec": { "devices": {
            "requests": [
                { "name": "gpu", "exactly": { "deviceClassName": "gpu.nvidia.com" } },
                { "name": "nic", "exactly": {
                    "deviceClassName": "dranet.net",
                    "selectors": [{ "cel": { "expression": "device.attributes[\"dra.net\"].ifName == \"eth7\"" } }],
                } },
            ],
        } } },
    });
    let cluster = Cluster::with(&[hand_written]);
    let mut pod = waiting(&json!({}));
    pod["spec"]["resourceClaims"] =
        json!([{ "name": "devices", "resourceClaimTemplateName": "hand" }]);
    let pod = file(cluster.0.path(), &pod);
    insta::assert_snapshot!(cluster.text(&["explain", "-f", &pod]));
}

/// A file with a pod and the claim, or the template, that it uses, as in the tutorial of ai-on-gke/website
/// 211. A claim that the cluster has already stays as it is.
#[test]
fn claims_beside_a_pod_count() {
    let requests = json!([{ "name": "nic", "exactly": { "deviceClassName": "dranet.net" } }]);
    let spec = json!({ "devices": { "requests": requests } });
    let object = |kind: &str, spec: &Value| json!({ "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": { "name": "hand" }, "spec": spec });
    let template = object("ResourceClaimTemplate", &json!({ "spec": spec }));
    let mut none = spec.clone();
    none["devices"]["requests"][0]["exactly"]["count"] = 5.into();
    let mut known = object("ResourceClaim", &none);
    known["metadata"]["namespace"] = "default".into();
    let cases = [
        ("resourceClaimTemplateName", template, vec![], true),
        ("resourceClaimName", object("ResourceClaim", &spec), vec![], true),
        ("resourceClaimName", object("ResourceClaim", &spec), vec![known], false),
    ];
    for (field, beside, objects, fits) in cases {
        let cluster = Cluster::with(&objects);
        let mut pod = waiting(&json!({}));
        pod["spec"]["resourceClaims"] = json!([{ "name": "devices", field: "hand" }]);
        let both = json!({ "apiVersion": "v1", "kind": "List", "items": [beside, pod] });
        for command in ["explain", "simulate"] {
            let (text, denied) = cluster.run(&[command, "-f", &file(cluster.0.path(), &both)]);
            assert_eq!(denied, !fits, "{command} {field}: {text}");
        }
    }
}

/// Each suggested annotation change makes the pod fit, on the stated number of nodes,
/// whichever devices are in use.
#[test]
fn a_change_that_explain_names_lets_the_pod_run() {
    let gpus = ["gpu-0", "gpu-1", "gpu-2", "gpu-3"];
    let nics = ["pci-0101-00-00-0", "pci-0102-00-00-0", "pci-0103-00-00-0", "pci-0104-00-00-0"];
    let mut tried = 0;
    for used in 0..256_u32 {
        let taken = |names: [&'static str; 4], driver, shift: u32| {
            let is_used = move |number: &usize| used >> shift >> number & 1 == 1;
            (0..4).filter(is_used).map(move |number| (driver, names[number])).collect::<Vec<_>>()
        };
        let devices = [taken(gpus, GPU, 0), taken(nics, NIC, 4)].concat();
        let cluster = Cluster::with(&[claim("used", "other", &devices)]);
        let pod = waiting(&json!({ "dranet.io/aligned-nics": "2", "dranet.io/gpus": "2" }));
        let (answer, denied) = cluster.explain(&pod);
        assert_eq!(denied, answer["fits"] == json!([]), "{used}: {answer}");
        for change in answer["changes"].as_array().unwrap() {
            let text = change["change"].as_str().unwrap();
            let Some((key, value)) = text.split_once(": \"") else { continue };
            let mut changed = pod.clone();
            changed["metadata"]["annotations"][key] = value.trim_end_matches('"').into();
            let (answer, denied) = cluster.explain(&changed);
            assert!(!denied, "{used}: {text}: {answer}");
            assert_eq!(answer["fits"].as_array().unwrap().len(), change["nodes"], "{used}: {text}");
            tried += 1;
        }
    }
    assert!(tried >= 50, "{tried} changes were tried");
}

#[test]
fn verify_reports_pods_with_less_than_promised() {
    let numa = json!({ "dranet.io/aligned-nics": "1" });
    let preferred =
        json!({ "dranet.io/aligned-nics": "1", "dranet.io/alignment-policy": "preferred" });
    let objects = [
        claim("one", "aligned", &[(GPU, "gpu-0"), (NIC, "pci-0101-00-00-0")]),
        running("aligned", "one", &numa),
        claim("two", "far", &[(GPU, "gpu-1"), (NIC, "pci-0103-00-00-0")]),
        running("far", "two", &numa),
        claim("three", "any", &[(GPU, "gpu-2"), (NIC, "pci-0102-00-00-0")]),
        running("any", "three", &preferred),
    ];
    let cluster = Cluster::with(&objects);
    let mut text = cluster.text(&["verify", "-A"]);
    text += &cluster.text(&["verify", "aligned", "-n", "default", "-o", "json"]);
    text += &cluster.text(&["verify", "-n", "empty"]);
    insta::assert_snapshot!(text);
}

/// An annotation that is changed on a pod has no effect, so nothing was promised by it.
#[test]
fn verify_knows_no_promise_of_changed_annotations() {
    let changed = json!({
        "dranet.io/aligned-nics": "1", "dranet.io/alignment": "switch", "dranet.io/plan": "1 GPU and 1 NIC",
        "dranet.io/request-hash": "0000000000000000",
    });
    let objects = [
        claim("one", "changed", &[(GPU, "gpu-0"), (NIC, "pci-0101-00-00-0")]),
        running("changed", "one", &changed),
    ];
    let (text, denied) = Cluster::with(&objects).run(&["verify", "-n", "default"]);
    assert!(
        text.contains("default/changed") && text.contains(" 0 worse than") && !denied,
        "{text}"
    );
}

#[test]
fn verify_reports_pairs_with_gpu_direct() {
    let mut graph = graph();
    let nic = |at: &str, acs: &str, verdict: &str| json!({ "at": at, "role": "compute", "acs": acs, "gpuDirect": [{ "verdict": verdict, "gpus": [0, 1, 2, 3] }] });
    graph["spec"]["nics"] = json!([
        nic("0101:00:00.0", "direct", "ok"),
        nic("0102:00:00.0", "redirect", "acs-redirect"),
    ]);
    let objects = [
        graph,
        claim("one", "works", &[(GPU, "gpu-0"), (NIC, "pci-0101-00-00-0")]),
        running("works", "one", &json!({})),
        claim("two", "stopped", &[(GPU, "gpu-1"), (NIC, "pci-0102-00-00-0")]),
        running("stopped", "two", &json!({})),
        claim("three", "unknown", &[(GPU, "gpu-2"), (NIC, "pci-0103-00-00-0")]),
        running("unknown", "three", &json!({})),
    ];
    let cluster = Cluster::with(&objects);
    let mut text = cluster.text(&["verify", "-A", "--gpudirect"]);
    text += &cluster.text(&["verify", "stopped", "-n", "default", "--gpudirect", "-o", "json"]);
    insta::assert_snapshot!(text);
}

/// The topology of the example's node.
fn graph() -> Value {
    let objects = cluster_model::snapshot::objects(&Path::new(EXAMPLE).join("cluster.yaml"));
    let mut objects = objects.unwrap().into_iter();
    objects.find(|object| object["kind"] == "NodeTopology").unwrap()
}

#[test]
fn capacity_counts_what_fits_and_what_would_have_to_move() {
    let mut text = Cluster::with(&[]).text(&["capacity"]);
    let cluster = Cluster::with(&half_used());
    text += &cluster.text(&["capacity"]);
    text += &cluster.text(&[
        "capacity",
        "--shape",
        "2gpu:2nic",
        "--shape",
        "1gpu:1nic:switch",
        "-o",
        "json",
    ]);
    insta::assert_snapshot!(text);
}
