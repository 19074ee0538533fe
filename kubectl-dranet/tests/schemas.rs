//! The documented schemas of `-o json` match what the commands print.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "schemas/types.rs"]
mod types;

use clap::Parser as _;
use kubectl_dranet::args::Args;
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const EXAMPLE: &str = "../deploy/examples/aks-gb300";
const NODE: &str = "aks-gpu-45139532-vmss000081";

/// If the documented schema differs from that of `T`, writes the expected one to a file
/// and returns its path.
fn difference<T: JsonSchema>(command: &str) -> Option<String> {
    let expected = serde_json::to_string_pretty(&schema_for!(T)).unwrap() + "\n";
    // How wide a number is on the machine that prints it is nobody's business.
    let expected = expected.replace(r#""format": "uint""#, r#""format": "uint64""#);
    let name = format!("{command}.json");
    let there = fs::read_to_string(Path::new("../docs/reference/schemas").join(&name));
    if there.unwrap_or_default() == expected {
        return None;
    }
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
    fs::write(&made, expected).unwrap();
    Some(format!("`docs/reference/schemas/{name}` should be `{}`", made.display()))
}

#[test]
fn every_schema_is_documented() {
    let differences = [
        difference::<types::PlanAnswer>("plan"),
        difference::<types::Explain>("explain"),
        difference::<types::Verify>("verify"),
        difference::<types::Capacity>("capacity"),
        difference::<types::Simulate>("simulate"),
        difference::<types::Defrag>("defrag"),
        difference::<types::Bench>("bench"),
        difference::<types::BenchAgainst>("bench-against"),
        difference::<types::Lint>("lint"),
        difference::<types::Doctor>("doctor"),
        difference::<types::Fabrics>("fabric"),
        difference::<types::Top>("top"),
        difference::<types::Pools>("pools"),
        difference::<types::Machines>("machines"),
        difference::<types::Version>("version"),
        difference::<types::Diff>("diff"),
        difference::<types::Migrate>("migrate"),
    ];
    let differences: Vec<_> = differences.into_iter().flatten().collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The example with running and pending pods, and a group.
struct Cluster(TempDir);

impl Cluster {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut objects =
            cluster_model::snapshot::objects(&Path::new(EXAMPLE).join("cluster.yaml")).unwrap();
        for object in objects.iter_mut().filter(|object| object["kind"] == "Node") {
            object["metadata"]["labels"]["topology.dranet.io/fabric"] = "ib-7".into();
            object["status"] = json!({ "allocatable": { "cpu": "8", "pods": "110" } });
        }
        let list = |objects: &[Value]| {
            json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string()
        };
        fs::write(folder.path().join("before.json"), list(&objects)).unwrap();
        let pool = json!({ "ranges": [{ "cidr": "10.9.0.0/24" }] });
        let address = json!({ "pool": "rdma", "address": "10.9.0.1/24", "node": NODE, "device": "d",
            "claim": { "namespace": "default", "name": "held", "uid": "u" } });
        for (kind, name, spec) in
            [("NicPool", "rdma", pool), ("NicAddress", "rdma.10-9-0-1", address)]
        {
            objects.push(json!({ "apiVersion": "topology.dranet.io/v1alpha1", "kind": kind,
                "metadata": { "name": name }, "spec": spec }));
        }
        let result = |driver, device| json!({ "request": "r", "driver": driver, "pool": NODE, "device": device });
        objects.push(json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": { "name": "held", "namespace": "default" },
            "spec": { "devices": { "requests": [
                { "name": "gpu", "exactly": { "deviceClassName": "gpu.nvidia.com" } },
                { "name": "nic", "exactly": { "deviceClassName": "dranet.net" } },
            ] } },
            "status": { "allocation": { "devices": { "results": [
                result("gpu.nvidia.com", "gpu-0"), result("dra.net", "pci-0103-00-00-0"),
            ] } } },
        }));
        objects.push(json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "admission", "namespace": "dranet-system",
                "labels": {
                    "app.kubernetes.io/name": "admission", "app.kubernetes.io/part-of": "dranet",
                },
            },
            "spec": { "replicas": 2, "template": { "spec": { "containers": [{
                "name": "admission", "image": "example.com/admission:1",
                "args": ["--fabric-controller"],
            }] } } },
        }));
        objects.push(pod(
            "runs",
            &json!({ "dranet.io/aligned-nics": "1" }),
            &json!({
                "nodeName": NODE,
                "resourceClaims": [{ "name": "dranet", "resourceClaimName": "held" }],
            }),
        ));
        let mut group = pod(
            "group",
            &grouped(),
            &json!({
                "schedulingGates": [{ "name": "dranet.io/fabric" }],
            }),
        );
        group["metadata"]["labels"] = json!({ "dranet.io/fabric-group": "train" });
        group["metadata"]["uid"] = "u".into();
        group["metadata"]["resourceVersion"] = "1".into();
        group["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        objects.push(group);
        fs::write(folder.path().join("cluster.json"), list(&objects)).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A file with these objects.
    fn file(&self, objects: &[Value]) -> String {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        fs::write(self.path("asked.txt"), list.to_string()).unwrap();
        self.path("asked.txt")
    }

    /// Reads what a command prints as `T`, document by document.
    fn read<T: DeserializeOwned>(&self, args: &[&str]) -> Vec<T> {
        let cluster = self.path("cluster.json");
        read(&[args, &["--snapshot", &cluster]].concat())
    }
}

fn read<T: DeserializeOwned>(args: &[&str]) -> Vec<T> {
    let args = [&["kubectl-dranet"], args, &["-o", "json"]].concat();
    let text = kubectl_dranet::run(&Args::try_parse_from(&args).unwrap()).unwrap().text;
    let documents = serde_json::Deserializer::from_str(&text).into_iter();
    let documents: Result<Vec<T>, _> = documents.collect();
    documents.unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
}

fn grouped() -> Value {
    json!({
        "dranet.io/aligned-nics": "2", "dranet.io/gpus": "1",
        "dranet.io/fabric": "train", "dranet.io/fabric-size": "3",
    })
}

fn pod(name: &str, annotations: &Value, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "annotations": annotations },
        "spec": spec,
    });
    pod["spec"]["containers"] = json!([{ "name": "main", "image": "main" }]);
    pod
}

/// Pods that cover every kind of answer.
fn asked() -> [Value; 5] {
    let aligned = |nics: &str| json!({ "dranet.io/aligned-nics": nics, "dranet.io/gpus": "1" });
    [
        pod("fits", &aligned("2"), &json!({})),
        pod("denied", &aligned("9"), &json!({})),
        pod("plain", &json!({}), &json!({})),
        pod("selects", &aligned("1"), &json!({ "nodeSelector": { "a": "b" } })),
        pod("group", &grouped(), &json!({})),
    ]
}

#[test]
fn plans_and_explanations_match_their_schema() {
    let cluster = Cluster::new();
    let pods = cluster.file(&asked());
    let plans: Vec<types::PlanAnswer> = cluster.read(&["plan", "-f", &pods]);
    let sorts = plans.iter().map(|plan| match plan {
        types::PlanAnswer::Planned(plan) if plan.fabric.is_some() => "group",
        types::PlanAnswer::Planned(_) => "planned",
        types::PlanAnswer::Unchanged(_) => "unchanged",
        types::PlanAnswer::Denied(_) => "denied",
    });
    let expected = ["planned", "denied", "unchanged", "denied", "group"];
    assert_eq!(sorts.collect::<Vec<_>>(), expected, "{plans:?}");
    let answers: Vec<types::Explain> = cluster.read(&["explain", "-f", &pods]);
    let sorts = answers.iter().map(|answer| match answer {
        types::Explain::Nodes(_) => "nodes",
        types::Explain::Fine(_) => "fine",
        types::Explain::Refused(_) => "refused",
    });
    let expected = ["nodes", "refused", "fine", "refused", "nodes"];
    assert_eq!(sorts.collect::<Vec<_>>(), expected, "{answers:?}");
}

#[test]
fn answers_about_the_cluster_match_their_schema() {
    let cluster = Cluster::new();
    let pods = cluster.file(&asked());
    let simulated: Vec<types::Simulate> = cluster.read(&["simulate", "-f", &pods]);
    assert!(!simulated[0].placed.is_empty() && !simulated[0].pending.is_empty(), "{simulated:?}");
    let moved: Vec<types::Defrag> = cluster.read(&["defrag", "-f", &cluster.file(&asked()[..1])]);
    assert!(moved[0].moves.is_some(), "{moved:?}");
    let verified: Vec<types::Verify> = cluster.read(&["verify", "-A"]);
    assert!(!verified[0].pods.is_empty(), "{verified:?}");
    let capacities: Vec<types::Capacity> =
        cluster.read(&["capacity", "--shape", "3gpu:3nic", "--shape", "1gpu:9nic"]);
    assert!(capacities[0].shapes[1].denied.is_some(), "{capacities:?}");
    let linted: Vec<types::Lint> = cluster.read(&["lint", "-A"]);
    assert!(linted[0].claims.iter().any(|it| !it.findings.is_empty()), "{linted:?}");
    let doctors: Vec<types::Doctor> = cluster.read(&["doctor"]);
    assert!(!doctors[0].findings.is_empty() && !doctors[0].machines.is_empty(), "{doctors:?}");
    let fabrics: Vec<types::Fabrics> = cluster.read(&["fabric"]);
    assert!(!fabrics[0].fabrics.is_empty() && !fabrics[0].waiting.is_empty(), "{fabrics:?}");
    let pools: Vec<types::Pools> = cluster.read(&["pools"]);
    assert!(!pools[0].pools[0].addresses.is_empty(), "{pools:?}");
    let tops: Vec<types::Top> = cluster.read(&["top"]);
    assert!(!tops[0].nodes.is_empty(), "{tops:?}");
    let versions: Vec<types::Version> = cluster.read(&["version"]);
    assert!(!versions[0].components.is_empty(), "{versions:?}");
}

#[test]
fn answers_about_files_match_their_schema() {
    let cluster = Cluster::new();
    let diffs: Vec<types::Diff> =
        read(&["diff", &cluster.path("before.json"), &cluster.path("cluster.json")]);
    assert!(!diffs[0].objects.is_empty(), "{diffs:?}");
    let network = "../migration/tests/network-operator/hostdevicenetwork.yaml";
    let pod = "../migration/tests/network-operator/hostdevice-pod.yaml";
    let migrated: Vec<types::Migrate> = read(&["migrate", "-f", network, "-f", pod]);
    assert!(!migrated[0].documents.is_empty(), "{migrated:?}");
}
