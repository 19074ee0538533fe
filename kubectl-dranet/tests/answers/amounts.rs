//! How much is free, and for how many pods: `top` and `capacity`.

use super::{Cluster, NODE, devices, joined, pair, taint_rule};
use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use topology_graph::fixture::{machine, plant, with_virtual_functions};
use topology_graph::{HostRoot, NodeTopology, PciAddress, PciFunction, Topology, read};

/// A rule is followed by every command that knows devices; the taint ends with the rule.
#[test]
fn taint_rules_are_followed() {
    let all = taint_rule(&json!({ "driver": "gpu.nvidia.com", "pool": NODE }));
    let cluster = Cluster::of(&[all], |_| {});
    insta::assert_snapshot!(cluster.run(&["top"]) + &cluster.run(&["capacity"]));
    let mut older = taint_rule(&json!({ "device": "gpu-0" }));
    older["apiVersion"] = "resource.k8s.io/v1beta2".into();
    let one = Cluster::of(&[older], |_| {});
    assert!(one.run(&["top"]).contains("3/4"), "{}", one.run(&["top"]));
    let none = taint_rule(&Value::Null);
    assert!(Cluster::of(&[none], |_| {}).run(&["top"]).contains("4/4"));
}

/// The GPUs as NVIDIA's driver publishes them with `--consumable-shares=2`.
fn publish_shares() -> impl Fn(&mut Value) {
    devices("gpu.nvidia.com", |gpu| {
        gpu["allowMultipleAllocations"] = true.into();
        gpu["capacity"] = json!({
            "memory": { "value": "284208Mi", "requestPolicy": {
                "default": "0", "validRange": { "min": "0", "max": "284208Mi" },
            } },
            "shares": { "value": "2", "requestPolicy": {
                "default": "1", "validRange": { "min": "1", "max": "2", "step": "1" },
            } },
        });
    })
}

/// A GPU of which a partition or a share is in use is not free; what is left of a shared one is said.
#[test]
fn gpus_that_are_in_use_in_part_are_not_free() {
    let mig = "../admission/tests/fleets/mig.gz";
    let args = ["kubectl-dranet", "top", "--snapshot", mig];
    let top = kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap();
    let divided = "MIG\n".to_owned() + &top.text;
    let share = |index: usize, gpu: &str| {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": { "name": format!("share-{index}"), "namespace": "team" },
            "spec": { "devices": { "requests": [
                { "name": "gpu", "exactly": { "deviceClassName": "gpu.nvidia.com" } },
            ] } },
            "status": { "allocation": { "devices": { "results": [{
                "request": "gpu", "driver": "gpu.nvidia.com", "pool": NODE, "device": gpu,
                "shareID": format!("00000000-0000-4000-8000-00000000000{index}"),
                "consumedCapacity": { "memory": "0", "shares": "1" },
            }] } } },
        })
    };
    // GPU 0 has a share left, GPU 1 has none.
    let claims = [share(0, "gpu-0"), share(1, "gpu-1"), share(2, "gpu-1")];
    let shared = Cluster::of(&claims, publish_shares());
    let said = shared.run(&["top"]) + &shared.run(&["top", "-o", "json"]);
    let said = said
        + &shared.run(&["capacity", "--shape", "1gpu:1nic"])
        + &shared.of_file("simulate", &pair());
    // Two claims share GPU 1, and one each of the others.
    let all = [&claims[..], &[share(3, "gpu-2"), share(4, "gpu-3")]].concat();
    let full = Cluster::of(&all, publish_shares());
    let said =
        said + &full.of_file("explain", &pair()) + &full.run(&["capacity", "--shape", "1gpu:1nic"]);
    insta::assert_snapshot!(divided + "shares\n" + &said);
}

/// A node whose ports have two virtual functions each, one of which is in use, and a port both of whose
/// functions are in use.
fn node_with_functions() -> Vec<Value> {
    let root = tempfile::tempdir().unwrap();
    plant(machine("x86-one-per-switch").unwrap(), root.path()).unwrap();
    let snapshot = with_virtual_functions(read(&HostRoot::at(root.path())).unwrap(), 2);
    let (topology, _) = Topology::build(&snapshot, None);
    let graph = serde_json::to_value(NodeTopology::new("vfs", topology.to_spec())).unwrap();
    let functions = snapshot.pci.iter().filter(|it| it.physical_function.is_some());
    let name =
        |address: PciAddress| format!("pci-{}", address.to_string().replace([':', '.'], "-"));
    let device = |function: &PciFunction| {
        json!({ "name": name(function.address), "attributes": {
            "resource.kubernetes.io/pciBusID": { "string": function.address.to_string() },
            "dra.net/rdma": { "bool": true },
        } })
    };
    let all: Vec<_> = functions.collect();
    let held = [all[0], all[2], all[3]].map(|function| {
        json!({ "request": "r", "driver": "dra.net", "pool": "vfs", "device": name(function.address) })
    });
    vec![
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "vfs" } }),
        graph,
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": { "name": "vfs-dra.net" },
            "spec": {
                "driver": "dra.net", "nodeName": "vfs",
                "pool": { "name": "vfs", "generation": 1, "resourceSliceCount": 1 },
                "devices": all.into_iter().map(device).collect::<Vec<_>>(),
            },
        }),
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": { "name": "held", "namespace": "other" },
            "spec": { "devices": { "requests": [] } },
            "status": { "allocation": { "devices": { "results": held } } },
        }),
    ]
}

/// Virtual functions of one port are one NIC: their pods share its link.
#[test]
fn top_counts_ports() {
    let cluster = Cluster::of(&node_with_functions(), |_| {});
    let line = |text: String| text.lines().find(|it| it.starts_with("vfs")).unwrap().to_owned();
    let words = line(cluster.run(&["top"]));
    assert!(words.contains("8/9 (15/18 functions)"), "{words}");
    let text = cluster.run(&["top", "-o", "json"]);
    let json: Value = serde_json::from_str(text.split("exit code").next().unwrap()).unwrap();
    let nodes = json["nodes"].as_array().unwrap();
    let of = |name: &str| nodes.iter().find(|it| it["name"] == name).unwrap()["nics"].clone();
    assert_eq!(
        of("vfs"),
        json!({ "free": 8, "partly": 0, "unusable": 0, "all": 9,
                "functions": { "free": 15, "partly": 0, "unusable": 0, "all": 18 } })
    );
    assert_eq!(of(NODE)["functions"], Value::Null);
}

/// GPUs of two vendors are counted separately.
#[test]
fn capacity_counts_gpus_of_each_driver() {
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": { "name": "amd" },
        "spec": {
            "driver": "gpu.amd.com",
            "nodeName": "amd-0",
            "pool": { "name": "amd-0", "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": "gpu-0", "attributes": {
                "type": { "string": "amdgpu" },
                "resource.kubernetes.io/pciBusID": { "string": "0000:05:00.0" },
            } }],
        },
    });
    let expression = "device.driver == \"gpu.amd.com\"";
    let class = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": { "name": "gpu.amd.com" },
        "spec": { "selectors": [{ "cel": { "expression": expression } }] },
    });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "amd-0" } });
    let cluster = Cluster::of(&[slice, class, node], |_| {});
    let one = ["capacity", "--shape", "1gpu:1nic"];
    let text = cluster.run(&one);
    assert!(text.contains("1gpu:1nic of gpu.nvidia.com"), "{text}");
    insta::assert_snapshot!(text);
    let named = cluster.run(&[&one[..], &["--gpu-class", "gpu.nvidia.com"]].concat());
    assert!(named.contains("largest aligned pod with GPUs of gpu.nvidia.com"), "{named}");
}

/// Nothing fits on a node that takes no pods, as its taint or condition says: the control plane sets the
/// taint a moment after the condition. `capacity` and `top` say so, also where pods of DaemonSets run there.
#[test]
fn closed_nodes_have_no_capacity_now() {
    let shape = ["capacity", "--shape", "1gpu:1nic"];
    let serving = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "serving", "namespace": "kube-system", "ownerReferences": [
            { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "serving", "uid": "1" } ] },
        "spec": { "nodeName": NODE, "containers": [{ "name": "main", "image": "main" }],
            "tolerations": [
                { "key": "node.kubernetes.io/disk-pressure", "operator": "Exists" },
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists" } ] },
    });
    let of = |spec: &Value, ready: &str| {
        let change = |object: &mut Value| {
            if object["kind"] == "Node" {
                object["spec"] = spec.clone();
                object["status"] = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
            }
        };
        Cluster::of(std::slice::from_ref(&serving), change)
    };
    let tainted = |key: &str| json!({ "taints": [{ "key": key, "effect": "NoSchedule" }] });
    let (none, not_ready) = (json!({}), tainted("node.kubernetes.io/not-ready"));
    let open = of(&none, "True").run(&shape);
    assert!(!open.contains("no pod fits"), "{open}");
    for (spec, ready, closed) in [
        (&json!({ "unschedulable": true }), "True", "cordoned"),
        (&none, "False", "not ready"),
        (&none, "Unknown", "not ready"),
        (&not_ready, "False", "not ready"),
        (&not_ready, "True", "not ready"),
        (&tainted("node.kubernetes.io/disk-pressure"), "True", "under pressure"),
    ] {
        let cluster = of(spec, ready);
        let text = cluster.run(&shape);
        assert!(
            joined(&text).contains(&format!("is {closed}, so no pod fits there now")),
            "{text}"
        );
        let json: Value = serde_json::from_str(
            cluster.run(&[&shape[..], &["-o", "json"]].concat()).rsplit_once("exit").unwrap().0,
        )
        .unwrap();
        assert_eq!(json["shapes"][0]["fitNow"], 0, "{json}");
        assert!(json["shapes"][0]["fitEmpty"].as_u64() > Some(0), "{json}");
        let text = cluster.run(&["top"]);
        let total = "1 node, 0 GPUs and 0 NICs free; 1 node takes no pods";
        assert!(text.contains(&format!("{closed}; ok")) && text.contains(total), "{text}");
        let text = cluster.of_file("plan", &pair());
        assert!(joined(&text).contains(&format!("1 is {closed}")), "{text}");
    }
}

/// Pods of a shape are assumed to tolerate taints that pods with GPUs tolerate; the answer says so.
#[test]
fn capacity_names_tainted_nodes() {
    let tainted = |object: &mut Value| {
        if object["kind"] == "Node" {
            object["spec"]["taints"] = json!([{ "key": "amd.com/gpu", "effect": "NoSchedule" }]);
        }
    };
    let text = Cluster::of(&[], tainted).run(&["capacity"]);
    let line = format!("node {NODE}: has the taint amd.com/gpu; only pods that tolerate it");
    assert!(joined(&text).contains(&line) && text.contains("largest aligned pod"), "{text}");
    let text = Cluster::of(&[], |_| {}).run(&["capacity"]);
    assert!(!text.contains("taint"), "{text}");
}
