//! Lints hand-written claims on live slices: the templates of DRANET's examples on the
//! nodes that they were written for and on others, and faulty claims as other tools
//! create them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use admission::lint::lint;
use admission::plan::STEPS_MAX;
use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index};
use dra_allocator::Budget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimSpec, ResourceSlice};
use serde_json::{Value, json};
use std::cell::Cell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

fn cluster(name: &str) -> ClusterView {
    snapshot::load(&fixture(name)).unwrap().0
}

/// Name and claim of each template of a file.
fn templates(file: &Path) -> Vec<(String, ResourceClaimSpec)> {
    let objects = snapshot::objects(file).unwrap().into_iter();
    let templates = objects.filter(|object| object["kind"] == "ResourceClaimTemplate");
    templates
        .map(|object| {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            (name, serde_json::from_value(object["spec"]["spec"].clone()).unwrap())
        })
        .collect()
}

/// Longest warning that the API server passes on, in characters.
const WARNING_MAX: usize = 256;

fn report(name: &str, claim: &ResourceClaimSpec, view: &ClusterView) -> String {
    within(STEPS_MAX, name, claim, view)
}

fn within(max_steps: u64, name: &str, claim: &ResourceClaimSpec, view: &ClusterView) -> String {
    let mut text = format!("{name}\n");
    let findings = lint(claim, view, max_steps, &Budget::unlimited()).unwrap();
    if findings.is_empty() {
        text.push_str("    nothing\n");
    }
    for finding in findings {
        assert!(finding.to_string().len() <= WARNING_MAX, "{finding}");
        writeln!(text, "    {} {}: {finding}", finding.severity, finding.check.name()).unwrap();
    }
    text
}

/// The templates of every example on the cluster of every example.
#[test]
fn templates_of_the_examples() {
    let clusters = ["aks-gb300", "aks-mi300x", "eks-p4d", "oke-gb200"];
    for cluster_name in clusters {
        let view = cluster(cluster_name);
        let mut text = String::new();
        for example in clusters {
            for (name, claim) in templates(&fixture(example).join("resource-claim-template.yaml")) {
                text.push_str(&report(&format!("{example}/{name}"), &claim, &view));
            }
        }
        insta::assert_snapshot!(cluster_name, text);
    }
}

fn request(name: &str, class: &str, count: u32, selector: &str) -> Value {
    let selectors: Vec<_> = [selector]
        .into_iter()
        .filter(|it| !it.is_empty())
        .map(|it| json!({ "cel": { "expression": it } }))
        .collect();
    json!({ "name": name, "exactly": {
        "deviceClassName": class, "count": count, "selectors": selectors,
    } })
}

fn pairs(count: u32, class: &str, attribute: &str, gpus_first: bool) -> Value {
    let gpus = (0..count).map(|i| request(&format!("gpu-{i}"), "gpu.nvidia.com", 1, ""));
    let nics = (0..count).map(|i| request(&format!("nic-{i}"), class, 1, ""));
    let requests: Vec<_> = if gpus_first {
        gpus.chain(nics).collect()
    } else {
        nics.zip(gpus).flat_map(|(nic, gpu)| [nic, gpu]).collect()
    };
    let constraints: Vec<_> = (0..count)
        .map(|i| json!({ "requests": [format!("gpu-{i}"), format!("nic-{i}")], "matchAttribute": attribute }))
        .collect();
    json!({ "devices": { "requests": requests, "constraints": constraints } })
}

fn aligned(attribute: &str, selector: &str) -> Value {
    json!({ "devices": {
        "requests": [
            request("gpu", "gpu.nvidia.com", 1, ""),
            request("nic", "dranet.net", 1, selector),
        ],
        "constraints": [{ "requests": ["gpu", "nic"], "matchAttribute": attribute }],
    } })
}

/// Faults of claims from other tools: `dra.net/numaNode` hard-coded for GPU and NIC, the
/// PCIe root although there is none, an IPv4 prefix read without a guard
/// (`dra-rail-admission-webhook`, commit 19262fc), and similar ones.
fn faulty() -> Vec<(&'static str, Value)> {
    let nics = |selector, count| json!([request("nic", "dranet.net", count, selector)]);
    let devices = |requests| json!({ "devices": { "requests": requests } });
    let with_constraint = |mut claim: Value, constraint| {
        claim["devices"]["constraints"] = json!([constraint]);
        claim
    };
    let placement =
        json!({ "requests": ["nic"], "matchAttribute": "azure.dra.net/placementGroupId" });
    let everything = json!({ "matchAttribute": "azure.dra.net/placementGroupId" });
    let unlike = json!({ "requests": ["nic"], "distinctAttribute": "dra.net/pciVendor" });
    let mut configured = devices(nics("", 1));
    configured["devices"]["config"] = json!([{ "opaque": {
        "driver": "dra.net", "parameters": { "interface": { "mtu": "9000" } },
    } }]);
    vec![
        ("numaNode of DRANET over GPU and NIC", aligned("dra.net/numaNode", "")),
        ("PCIe root over GPU and NIC", aligned("resource.kubernetes.io/pcieRoot", "")),
        (
            "a rail by its IPv4 prefix",
            aligned(
                "resource.kubernetes.io/pcieRoot",
                r#"device.attributes["dra.net"].rdma == true && device.attributes["dra.net"].ipv4.startsWith("10.0.")"#,
            ),
        ),
        ("placement group over NICs", with_constraint(devices(nics("", 2)), placement)),
        ("placement group over all", with_constraint(aligned("", ""), everything)),
        ("unlike vendors", with_constraint(devices(nics("", 2)), unlike)),
        ("too many NICs", devices(nics("", 12))),
        (
            "no such interface",
            devices(nics(r#"device.attributes["dra.net"].?ifName.orValue("") == "gpu2rdma0""#, 1)),
        ),
        ("no expression", devices(nics("device.attributes[", 1))),
        ("no such class", devices(json!([request("nic", "rdma", 1, "")]))),
        ("a wrong configuration", configured),
        ("nothing wrong", devices(nics(r#"device.attributes["dra.net"].?rdma.orValue(false)"#, 2))),
    ]
}

#[test]
fn claims_of_other_tools() {
    let view = cluster("aks-gb300");
    let mut text = String::new();
    for (name, claim) in faulty() {
        text.push_str(&report(name, &serde_json::from_value(claim).unwrap(), &view));
    }
    insta::assert_snapshot!(text);
}

/// One node with eight GPUs and eight NICs, two of each below a root.
fn eight_and_eight() -> ClusterView {
    let mut view = ClusterView::default();
    for (driver, kind, class) in
        [("gpu.nvidia.com", "gpu", "gpu.nvidia.com"), ("dra.net", "nic", "dranet.net")]
    {
        let device = |i: u32| {
            json!({ "name": format!("{kind}-{i}"), "attributes": {
                "resource.kubernetes.io/pcieRoot": { "string": format!("pci0000:{:02x}", i / 2) },
            } })
        };
        let slice = json!({ "metadata": { "name": driver }, "spec": {
            "driver": driver, "nodeName": "node", "devices": (0..8).map(device).collect::<Vec<_>>(),
            "pool": { "name": "node", "generation": 1, "resourceSliceCount": 1 },
        } });
        let class = json!({ "metadata": { "name": class }, "spec": { "selectors": [
            { "cel": { "expression": format!("device.driver == \"{driver}\"") } },
        ] } });
        let slice: ResourceSlice = serde_json::from_value(slice).unwrap();
        let class: DeviceClass = serde_json::from_value(class).unwrap();
        view.apply(slice).unwrap();
        view.apply(class).unwrap();
    }
    view
}

/// Nodes of a simulator publish GPUs without `type`, which the class of the real driver reads
/// (run-ai/fake-gpu-operator, pull request 199).
#[test]
fn a_class_that_tests_the_driver_is_told_to_guard_the_attribute() {
    let mut view = eight_and_eight();
    let expression =
        r#"device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu""#;
    let class = json!({ "metadata": { "name": "gpu.nvidia.com" }, "spec": { "selectors": [
        { "cel": { "expression": expression } },
    ] } });
    view.apply(serde_json::from_value::<DeviceClass>(class).unwrap()).unwrap();
    let claim = json!({ "devices": { "requests": [request("gpu", "gpu.nvidia.com", 1, "")] } });
    let text = report("a GPU", &serde_json::from_value(claim).unwrap(), &view);
    assert!(text.contains("which aborts scheduling of the pod on every node"), "{text}");
    assert!(text.contains("; write `.?name.orValue(…)` there"), "{text}");
}

#[test]
fn searches_over_the_budget() {
    let view = eight_and_eight();
    let root = "resource.kubernetes.io/pcieRoot";
    let mut text = String::new();
    for (name, max_steps, claim) in [
        ("four pairs, pair by pair", STEPS_MAX, pairs(4, "dranet.net", root, false)),
        ("four pairs, GPUs first, on a small budget", 1_000, pairs(4, "dranet.net", root, true)),
        ("eight pairs", STEPS_MAX, pairs(8, "dranet.net", root, true)),
    ] {
        let claim = serde_json::from_value(claim).unwrap();
        text.push_str(&within(max_steps, name, &claim, &view));
    }
    insta::assert_snapshot!(text);
}

/// Without a constraint the scheduler gives a pod any NIC. Nothing is said where the claim leaves no
/// choice, where selectors may have chosen, or where the graph says that all are near.
#[test]
fn nothing_keeps_gpus_and_nics_near() {
    let found = |view: &ClusterView, requests: Value| {
        let claim = json!({ "devices": { "requests": requests } });
        let claim = serde_json::from_value(claim).unwrap();
        let findings = lint(&claim, view, STEPS_MAX, &Budget::unlimited()).unwrap();
        let near = findings.iter().find(|finding| finding.check.name() == "not-near");
        near.map(|finding| format!("{}: {finding}", finding.severity))
    };
    let two = |gpus, nics, selector| {
        let nic = request("nic", "dranet.net", nics, selector);
        json!([request("gpu", "gpu.nvidia.com", gpus, ""), nic])
    };
    let by_root = eight_and_eight();
    let expected = "warning: claim: nothing keeps the NICs near the GPUs, so a pod can get NICs of \
                    another NUMA node; add a constraint with `matchAttribute: \
                    resource.kubernetes.io/pcieRoot` on both";
    assert_eq!(found(&by_root, two(1, 1, "")).as_deref(), Some(expected));
    assert_eq!(found(&by_root, two(8, 8, "")), None);
    let gb300 = cluster("aks-gb300");
    let expected = "warning: claim: nothing keeps the NICs near the GPUs, so a pod can get NICs of \
                    another NUMA node; no attribute here says which are near: use the annotation \
                    dranet.io/aligned-nics instead of a claim";
    assert_eq!(found(&gb300, two(1, 2, "")).as_deref(), Some(expected));
    let first = r#"device.attributes["dra.net"].?rdmaDevice.orValue("") == "mlx5_0""#;
    assert_eq!(found(&gb300, two(1, 1, first)), None);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples/aks-gb300");
    let example = snapshot::load(&example.join("cluster.yaml")).unwrap().0;
    let is_rdma = r#"device.attributes["dra.net"].?rdma.orValue(false)"#;
    assert_eq!(found(&example, two(1, 2, is_rdma)).as_deref(), Some(expected));
    // Its NICs name the GPU that they are partners of.
    let one = found(&example, two(1, 1, is_rdma)).unwrap();
    assert!(one.ends_with("add a constraint with `matchAttribute: gpu.nvidia.com/uuid` on both"));
    assert_eq!(found(&example, two(1, 2, first)), None, "never enough");
    let nics = json!([request("nic", "dranet.net", 2, "")]);
    assert_eq!(found(&example, nics), None);
}

/// kube-apiserver accepts it. Half of the devices are no basis for a finding.
#[test]
fn a_claim_with_expensive_expressions_is_not_checked() {
    let heavy = "!lists.range(400).all(a, lists.range(400).all(b, a + b >= 0))";
    let claim: ResourceClaimSpec = serde_json::from_value(json!({"devices": {"requests": [
        {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 100,
            "selectors": [{"cel": {"expression": heavy}}]}},
    ]}}))
    .unwrap();
    let view = cluster("aks-gb300");
    let asked = Cell::new(0);
    let stop = || asked.replace(asked.get() + 1) >= 10;
    let findings = lint(&claim, &view, STEPS_MAX, &Budget::until(&stop)).unwrap();
    let checks: Vec<_> = findings.iter().map(|finding| finding.check.name()).collect();
    assert_eq!(checks, ["not-checked"], "{findings:?}");
}
