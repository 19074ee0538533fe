//! Converts the examples in the operator's own repository. `tests/network-operator/README.md` has
//! their sources.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use cluster_model::network_config::NetworkConfig;
use cluster_model::nic_pool::NicPoolSpec;
use migration::{Migration, Options, migrate};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

fn read(files: &[&str]) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network-operator");
    let of_file = |file: &&str| {
        let path = folder.join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_saphyr::from_multiple::<Value>(&text).unwrap()
    };
    files.iter().flat_map(of_file).collect()
}

/// The output that a person reads.
fn shown(migration: &Migration) -> String {
    let mut out = format!("# values\n{}", serde_saphyr::to_string(&migration.values).unwrap());
    for document in &migration.documents {
        out.push_str("---\n");
        out.push_str(&serde_saphyr::to_string(document).unwrap());
    }
    out.push_str("# notes\n");
    for note in &migration.notes {
        writeln!(out, "{}: {}", note.object, note.text).unwrap();
    }
    out
}

/// Collects the driver's parameters from all levels of a value.
fn parameters(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Object(map) => {
            if map.get("driver").is_some_and(|driver| driver == "dra.net") {
                found.extend(map.get("parameters").cloned());
            }
            if let Some(text) = map.get("dranet.io/nic-config").and_then(Value::as_str) {
                found.push(serde_json::from_str(text).unwrap());
            }
            map.values().for_each(|value| parameters(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| parameters(value, found)),
        _ => {}
    }
}

#[test]
fn examples_of_the_operator_are_converted() {
    for (name, files) in [
        (
            "shared-macvlan",
            &["nicclusterpolicy-full.yaml", "net-attach-def-whereabouts.yaml", "macvlan-pod.yaml"]
                [..],
        ),
        ("gpu", &["nicclusterpolicy-full.yaml", "net-attach-def-whereabouts.yaml", "gpu-pod.yaml"]),
        (
            "host-device",
            &[
                "nicclusterpolicy-full.yaml",
                "hostdevicenetwork.yaml",
                "ippool.yaml",
                "hostdevice-pod.yaml",
            ],
        ),
        ("ipoib", &["nicclusterpolicy-full.yaml", "ipoibnetwork.yaml", "ipoib-pod.yaml"]),
        (
            "sriov",
            &["sriovnetworknodepolicy.yaml", "sriovnetwork.yaml", "ippool.yaml", "sriov-pod.yaml"],
        ),
        ("whereabouts-exclusions", &["macvlannetwork-whereabouts.yaml", "macvlannetwork.yaml"]),
    ] {
        let migration = migrate(&read(files), &Options::default());
        let mut found = Vec::new();
        migration.documents.iter().for_each(|document| parameters(document, &mut found));
        for parameters in found {
            let parsed = NetworkConfig::parse(&parameters);
            assert!(parsed.is_ok(), "{name}: {parameters}: {parsed:?}");
        }
        let pools = migration.documents.iter().filter(|document| document["kind"] == "NicPool");
        for pool in pools {
            let spec: NicPoolSpec = serde_json::from_value(pool["spec"].clone()).unwrap();
            assert_eq!(spec.check(), Ok(()), "{name}: {pool}");
        }
        insta::assert_snapshot!(name, shown(&migration));
    }
}

/// Settings of virtual functions and partitions become fields of the network configuration.
#[test]
fn virtual_functions_and_partitions_are_set_by_the_claim() {
    let sriov = serde_json::json!({"kind": "SriovNetwork", "metadata": {"name": "vf"}, "spec": {
        "networkNamespace": "default", "resourceName": "vfs", "vlan": 100, "vlanQoS": 3,
        "trust": "on", "spoofChk": "off", "minTxRate": 0, "maxTxRate": 4000, "linkState": "enable",
        "ipam": r#"{"type": "dhcp"}"#}});
    let ipoib = serde_json::json!({"kind": "IPoIBNetwork", "metadata": {"name": "ib"}, "spec": {
        "networkNamespace": "default", "master": "ib0.8001",
        "ipam": r#"{"type": "whereabouts", "range": "10.5.0.0/16"}"#}});
    let pod = |network: &str| {
        serde_json::json!({"kind": "Pod", "metadata": {"name": format!("pod-{network}"),
            "annotations": {"k8s.v1.cni.cncf.io/networks": network}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"rdma/x": 1}}}]}})
    };
    let migration = migrate(&[sriov, ipoib, pod("vf"), pod("ib")], &Options::default());
    let mut found = Vec::new();
    migration.documents.iter().for_each(|document| parameters(document, &mut found));
    for parameters in &found {
        NetworkConfig::parse(parameters).unwrap();
    }
    insta::assert_json_snapshot!(found);
}

/// Unknown objects are neither changed nor mentioned.
#[test]
fn other_objects_are_left_out() {
    let objects = [
        serde_json::json!({"kind": "Pod", "spec": {"containers": [{"name": "a"}]}}),
        serde_json::json!({"kind": "ConfigMap", "data": {"a": "b"}}),
        Value::Null,
        serde_json::json!([1, 2]),
    ];
    assert_eq!(migrate(&objects, &Options::default()).documents, Vec::<Value>::new());
}

/// Settings of a pod besides the network's name get a note. A pod that cannot be read is not
/// changed.
#[test]
fn settings_that_are_not_converted_get_a_note() {
    let pod = |name: &str, networks: &str| {
        serde_json::json!({
            "kind": "Pod",
            "metadata": {"name": name, "annotations": {"k8s.v1.cni.cncf.io/networks": networks}},
            "spec": {
                "initContainers": [{"name": "i", "resources": {"limits": {"rdma/x": 1}}}],
                "containers": [{"name": "c", "resources": {"limits": {"rdma/x": 1}}}],
            },
        })
    };
    let list = r#"[{"name": "n", "ips": ["10.0.0.1/24"]}]"#;
    let objects = [pod("own", list), pod("named", "n@net7"), pod("broken", "[{")];
    let migration = migrate(&objects, &Options::default());
    let pods: Vec<_> = migration.documents.iter().filter(|it| it["kind"] == "Pod").collect();
    assert_eq!(pods.len(), 2, "the third is left as it is");
    let none = serde_json::json!([{"name": "nics"}]);
    for container in ["containers", "initContainers"] {
        assert_eq!(pods[0]["spec"][container][0]["resources"]["claims"], none);
        assert_eq!(pods[0]["spec"][container][0]["resources"].get("limits"), None);
    }
    let of = |pod: &str, part: &str| {
        let mut notes = migration.notes.iter().filter(|note| note.object == format!("Pod {pod}"));
        assert!(notes.any(|note| note.text.contains(part)), "{pod}: {:?}", migration.notes);
    };
    of("own", r#"`ips: ["10.0.0.1/24"]`"#);
    of("named", "`interface: net7`");
    of("broken", "is not a list of networks");
}

/// The limit by which a device plugin gives a host device goes, as its network says whose it is; a
/// limit that nothing explains stays, and a note says so.
#[test]
fn limits_of_networks_are_removed_and_others_are_named() {
    let network = serde_json::json!({
        "kind": "NetworkAttachmentDefinition",
        "metadata": {
            "name": "hostdev", "namespace": "default",
            "annotations": {"k8s.v1.cni.cncf.io/resourceName": "nvidia.com/hostdev"},
        },
        "spec": {"config": r#"{"cniVersion": "0.3.1", "type": "host-device"}"#},
    });
    let limits = serde_json::json!({
        "nvidia.com/hostdev": 1, "nvidia.com/gpu": 1, "example.com/card": 1, "cpu": 1,
    });
    let pod = serde_json::json!({
        "kind": "Pod",
        "metadata": {
            "name": "train", "annotations": {"k8s.v1.cni.cncf.io/networks": "hostdev"},
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    });
    let migration = migrate(&[network, pod], &Options::default());
    let pod = migration.documents.iter().find(|it| it["kind"] == "Pod").unwrap();
    assert_eq!(
        pod["spec"]["containers"][0]["resources"]["limits"],
        serde_json::json!({ "nvidia.com/gpu": 1, "example.com/card": 1, "cpu": 1 }),
    );
    let notes: Vec<_> = migration.notes.iter().map(|note| note.text.as_str()).collect();
    for part in ["`nvidia.com/hostdev` is not in the input", "limit on `example.com/card` stays"] {
        assert!(notes.iter().any(|note| note.contains(part)), "{notes:?}");
    }
    assert!(!notes.iter().any(|note| note.contains("`nvidia.com/gpu`")), "{notes:?}");
}

/// A pod of a Deployment with as many GPUs as NICs is rewritten in place, with NICs per GPU.
#[test]
fn a_pod_with_as_many_gpus_as_nics_gets_pairs() {
    let limits = serde_json::json!({"nvidia.com/gpu": 2, "nvidia.com/hostdev": 2});
    let objects = [
        serde_json::json!({
            "kind": "NicClusterPolicy",
            "spec": {"sriovDevicePlugin": {"config":
                r#"{"resourceList": [{"resourcePrefix": "nvidia.com", "resourceName": "hostdev"}]}"#}},
        }),
        serde_json::json!({
            "kind": "Deployment",
            "metadata": {"name": "train"},
            "spec": {"template": {
                "metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "a,b"}},
                "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
            }},
        }),
    ];
    let migration = migrate(&objects, &Options::default());
    let template = &migration.documents[1]["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"]["dranet.io/aligned-nics"], "per-gpu");
    assert_eq!(
        template["spec"]["containers"][0]["resources"]["limits"],
        serde_json::json!({"nvidia.com/gpu": 2})
    );
}
