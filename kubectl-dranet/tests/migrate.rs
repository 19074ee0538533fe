//! What pods had by device plugins and by their hosts, and what they get after `migrate`: the examples of
//! k8s-rdma-shared-dev-plugin, sriov-network-device-plugin, network-operator and clouds, in the folder
//! `migrate`, on built-in machines.

#![cfg(feature = "machines")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use cluster_model::snapshot;
use kubectl_dranet::Output;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Eight GPUs, each below a switch with its NIC, and four NICs for storage.
const MACHINE: &str = "dgx-h100";

fn run(args: &[&str]) -> Output {
    let args = [&["kubectl-dranet"], args].concat();
    kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap()
}

/// The NICs of a machine and of the pods on it, by the names of their devices.
type Nics = BTreeSet<String>;

/// A node of a machine type whose NICs claims can share, and a folder for what is asked.
struct Cluster {
    folder: TempDir,
    objects: Vec<Value>,
}

impl Cluster {
    fn new(machine: &str) -> Self {
        let text = run(&["machines", "--built-in", machine, "-o", "kwok"]).text;
        let mut objects = snapshot::parse(&text, "machine.yaml".as_ref()).unwrap();
        for object in &mut objects {
            if object["kind"] == "Node" {
                object["status"]["allocatable"] =
                    json!({ "cpu": "64", "memory": "1Ti", "pods": "99" });
            }
            if object["spec"]["driver"] == "dra.net" {
                let devices = object["spec"]["devices"].as_array_mut().unwrap();
                devices.iter_mut().enumerate().for_each(complete);
            }
        }
        for class in [("gpu.nvidia.com", "gpu.nvidia.com"), ("dranet.net", "dra.net")] {
            objects.push(device_class(class));
        }
        Self { folder: tempfile::tempdir().unwrap(), objects }
    }

    /// The devices of the node's NICs, those for storage too: the plugins know no roles.
    fn nics(&self) -> Vec<&Value> {
        let slices = self.objects.iter().filter(|object| object["spec"]["driver"] == "dra.net");
        slices.flat_map(|slice| slice["spec"]["devices"].as_array().unwrap()).collect()
    }

    fn write(&self, name: &str, objects: &[Value]) -> String {
        let path = self.folder.path().join(name).display().to_string();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        fs::write(&path, list.to_string()).unwrap();
        path
    }

    /// What `migrate` makes of objects, and its notes.
    fn migrate(&self, objects: &[Value]) -> (Vec<Value>, Vec<String>) {
        let output = run(&["migrate", "-f", &self.write("before.json", objects)]);
        (snapshot::parse(&output.text, "after.yaml".as_ref()).unwrap(), output.notes)
    }

    /// The NICs that the scheduler would give a pod of migrated objects, each as often as it is given;
    /// the reason if it fits nowhere.
    fn given(&self, migrated: &[Value], pod: &str) -> Result<Vec<String>, String> {
        let (pods, others): (Vec<Value>, Vec<Value>) =
            migrated.iter().cloned().partition(|object| object["kind"] == "Pod");
        let pods: Vec<_> = pods.into_iter().filter(|it| it["metadata"]["name"] == pod).collect();
        let cluster = self.write("cluster.json", &[self.objects.clone(), others].concat());
        let pods = self.write("pods.json", &pods);
        let output = run(&["simulate", "-f", &pods, "--snapshot", &cluster, "-o", "json"]);
        let answer: Value =
            serde_json::from_str(&output.text).map_err(|error| error.to_string())?;
        let Some(placed) = answer["placed"].get(0) else {
            return Err(answer["pending"].to_string());
        };
        let devices = placed["devices"].as_array().unwrap();
        let nics = devices.iter().filter(|device| device["driver"] == "dra.net");
        Ok(nics.map(|device| device["device"].as_str().unwrap().to_owned()).collect())
    }
}

/// The objects of an example.
fn objects(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migrate").join(name);
    snapshot::objects(&path).unwrap()
}

/// As a driver with `--sharing=count` publishes a NIC, with the name of its interface.
fn complete((index, nic): (usize, &mut Value)) {
    nic["attributes"]["dra.net/ifName"] = json!({ "string": format!("eth{index}") });
    nic["allowMultipleAllocations"] = true.into();
    nic["capacity"]["dranet.io/shares"] = json!({ "value": "63", "requestPolicy": {
        "default": "63", "validRange": { "min": "1", "max": "63", "step": "1" },
    } });
}

fn device_class((name, driver): (&str, &str)) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": name },
        "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == \"{driver}\"") } }] },
    })
}

/// The NICs of a machine that a plugin's resource has, by its selectors.
fn of_resource(entry: &Value, machine: &[&Value]) -> Nics {
    let names = entry["selectors"]["ifNames"].as_array();
    let is_meant = |nic: &&&Value| {
        names.is_none_or(|names| names.contains(&nic["attributes"]["dra.net/ifName"]["string"]))
    };
    let nics = machine.iter().filter(is_meant);
    nics.map(|nic| nic["name"].as_str().unwrap().to_owned()).collect()
}

/// The NICs among which a pod had its own before, and how many of them, by each plugin's own `Allocate`:
/// the shared plugin gives all of the resource, the SR-IOV plugin as many as units.
fn had(objects: &[Value], pod: &str, machine: &[&Value]) -> (Nics, usize) {
    let pod = objects.iter().find(|it| it["metadata"]["name"] == pod).unwrap();
    let limits = pod["spec"]["containers"][0]["resources"]["limits"].as_object().unwrap();
    let config = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    let config: Value =
        serde_json::from_str(config["data"]["config.json"].as_str().unwrap()).unwrap();
    let (mut nics, mut number) = (Nics::new(), 0);
    for (resource, units) in limits {
        let is_meant = |entry: &&Value| {
            resource.ends_with(&format!("/{}", entry["resourceName"].as_str().unwrap()))
        };
        if let Some(shared) = config["configList"].as_array().into_iter().flatten().find(is_meant) {
            let of_resource = of_resource(shared, machine);
            number += of_resource.len();
            nics.extend(of_resource);
        }
        if let Some(own) = config["resourceList"].as_array().into_iter().flatten().find(is_meant) {
            number += usize::try_from(units.as_u64().unwrap()).unwrap();
            nics.extend(of_resource(own, machine));
        }
    }
    (nics, number)
}

/// A pod gets the NICs that it had, or as many of them as it has GPUs, each another one.
#[test]
fn pods_get_the_nics_that_their_device_plugin_gave_them() {
    let cluster = Cluster::new(MACHINE);
    assert_eq!(cluster.nics().len(), 12);
    for (example, pods) in [
        ("shared.yaml", &["train", "infer", "rping"][..]),
        ("shared-named.yaml", &["of-each", "of-two", "two-of-eight", "far", "both"]),
        ("sriov.yaml", &["train", "two"]),
    ] {
        let before = objects(example);
        let (after, notes) = cluster.migrate(&before);
        for name in pods {
            let (nics, number) = had(&before, name, &cluster.nics());
            let pod = before.iter().find(|it| it["metadata"]["name"] == *name).unwrap();
            let gpus =
                pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"].as_u64();
            let gpus = gpus.map_or(usize::MAX, |gpus| usize::try_from(gpus).unwrap());
            let given = cluster.given(&after, name);
            let given = given.unwrap_or_else(|why| panic!("{example}, {name}: {why}; {notes:?}"));
            let distinct: Nics = given.iter().cloned().collect();
            assert_eq!(distinct.len(), number.min(gpus), "{example}, {name}: {given:?}");
            assert_eq!(distinct.len(), given.len(), "{example}, {name}: {given:?}");
            assert!(distinct.is_subset(&nics), "{example}, {name}: {given:?} of {nics:?}");
        }
    }
}

/// A resource with a condition becomes the class of the pod's NICs. Several cannot, and a note says so.
#[test]
fn pods_with_gpus_get_nics_of_their_resource() {
    let named = ["dranet.io/nic-class", "dranet.io/alignment-policy"];
    for (example, pod, expected, told) in [
        (
            "shared.yaml",
            "train",
            [Some("rdma-shared-ib"), None],
            "gets NICs of `rdma/shared_ib` only",
        ),
        ("sriov.yaml", "train", [Some("rdma-ib"), None], "gets NICs of `rdma/ib` only"),
        (
            "shared-named.yaml",
            "far",
            [Some("rdma-two"), Some("preferred")],
            "next to its GPUs if they are",
        ),
        (
            "shared-named.yaml",
            "eight",
            [None, None],
            "had NICs of `rdma/hca_0`, `rdma/hca_1`, and gets those next to its GPUs, of whatever resource",
        ),
    ] {
        let (_, pod, notes) = asked(example, pod);
        let found = named.map(|key| pod["metadata"]["annotations"][key].as_str());
        assert_eq!(found, expected, "{example}: {notes}");
        assert!(notes.contains(told), "{told}\n{notes}");
    }
}

/// The number of NICs that a pod asks for after `migrate`, and the notes.
fn asked(example: &str, pod: &str) -> (Option<String>, Value, String) {
    let cluster = Cluster::new(MACHINE);
    let (after, notes) = cluster.migrate(&objects(example));
    let pod = after.into_iter().find(|it| it["metadata"]["name"] == pod).unwrap_or_default();
    let nics = pod["metadata"]["annotations"]["dranet.io/aligned-nics"].as_str().map(str::to_owned);
    (nics, pod, notes.join("\n"))
}

#[test]
fn pods_of_clouds_get_the_nics_that_their_plugin_counts() {
    let (nics, pod, notes) = asked("gke.yaml", "train");
    assert_eq!(nics.as_deref(), Some("per-gpu"), "four networks for four GPUs: {notes}");
    let annotations = pod["metadata"]["annotations"].as_object().unwrap();
    assert!(!annotations.keys().any(|key| key.contains("gke")), "{annotations:?}");
    let limits = &pod["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(*limits, json!({ "nvidia.com/gpu": 4 }));
    // A claim has at most 32 devices.
    let (nics, _, notes) = asked("efa.yaml", "train");
    assert_eq!(nics.as_deref(), Some("24"), "{notes}");
    assert!(notes.contains("had 32 NICs, and gets 24"), "{notes}");
}

#[test]
fn pods_that_use_the_nics_of_their_host_are_not_dropped() {
    let (nics, pod, notes) = asked("host.yaml", "train");
    assert_eq!(nics.as_deref(), Some("per-gpu"));
    let spec = &pod["spec"];
    for removed in ["hostNetwork", "dnsPolicy"] {
        assert!(spec[removed].is_null(), "{removed}: {spec}");
    }
    let container = &spec["containers"][0];
    assert_eq!(spec["volumes"].as_array().unwrap().len(), 1, "{spec}");
    assert_eq!(container["volumeMounts"][0]["name"], "shm", "{spec}");
    let variables: Vec<_> =
        container["env"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(variables, ["NCCL_SOCKET_IFNAME", "NCCL_DEBUG"], "{spec}");
    for told in [
        "Pod default/train: had all NICs of its node, by `hostNetwork`, `privileged`, the volume `devinf`; \
         gets one for each GPU by `dranet.io/aligned-nics: per-gpu`",
        "`privileged` stays",
        "`NCCL_IB_HCA=mlx5_0,mlx5_1` of container `train` is removed",
        "`NCCL_SOCKET_IFNAME==ens300` of container `train` stays",
        "Pod default/monitor: unchanged: had all NICs of its node",
    ] {
        assert!(notes.contains(told), "{told}\n{notes}");
    }
    assert!(!notes.contains("agent"), "it has no GPUs and no device files: {notes}");
    let cluster = Cluster::new(MACHINE);
    let (after, _) = cluster.migrate(&objects("host.yaml"));
    let given: Nics = cluster.given(&after, "train").unwrap().into_iter().collect();
    assert_eq!(given.len(), 8, "all NICs of the node, as before");
}

/// Pods without anything to convert are told of, and are no error.
#[test]
fn notes_alone_are_an_answer() {
    let cluster = Cluster::new(MACHINE);
    let mut objects = objects("host.yaml");
    objects.retain(|object| object["metadata"]["name"] == "monitor");
    let output = run(&["migrate", "-f", &cluster.write("before.json", &objects)]);
    assert_eq!((output.text.as_str(), output.notes.len()), ("", 1), "{:?}", output.notes);
}

#[test]
fn lists_of_nics_in_all_templates_of_a_job_are_told() {
    let (_, job, notes) = asked("mpi.yaml", "nccl");
    let worker = &job["spec"]["mpiReplicaSpecs"]["Worker"]["template"];
    assert_eq!(worker["metadata"]["annotations"]["dranet.io/aligned-nics"], "per-gpu");
    assert!(worker["spec"]["containers"][0]["env"].is_null(), "{worker}");
    for told in [
        "command of container `launcher` sets `NCCL_IB_HCA=mlx5_0,mlx5_1`: remove it",
        "`UCX_NET_DEVICES=mlx5_0:1` of container `worker` is removed: the driver sets it",
    ] {
        assert!(notes.contains(told), "{told}\n{notes}");
    }
}
