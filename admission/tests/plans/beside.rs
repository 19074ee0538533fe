//! Devices besides GPUs and NICs: CPUs and NVMe devices of their NUMA node; and the rail
//! of the pod's job.

use crate::cluster::{GB300, H100, Machine, cluster, pod};
use admission::admit::{AdmitError, admit};
use admission::plan::{Plan, Policy};
use cluster_model::view::{ClusterView, Index};
use dra_allocator::{Claim, ClaimName, Device, Limits, Outcome, allocate};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const GPU: &str = "nvidia.com/gpu";
const NUMA: &str = "resource.kubernetes.io/numaNode";
const RAIL: &str = "dranet.io/rail";

/// CPUs of each NUMA node.
const CPUS: u32 = 64;

/// A machine with the slices of dra-driver-cpu in its mode `grouped`, as its documentation
/// shows them (`docs/user/device-attributes.md` of kubernetes-sigs/dra-driver-cpu).
fn with_cpus(machine: Machine) -> ClusterView {
    let mut view = cluster(&[machine]);
    let class = json!({
        "metadata": { "name": "dra.cpu" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"dra.cpu\"" } }] },
    });
    view.apply(serde_json::from_value::<DeviceClass>(class).unwrap()).unwrap();
    let device = |numa: u32| {
        json!({
            "name": format!("cpudevnuma{numa:03}"),
            "allowMultipleAllocations": true,
            "attributes": {
                "dra.cpu/smtEnabled": { "bool": true },
                "dra.cpu/numCPUs": { "int": CPUS },
                "resource.kubernetes.io/numaNode": { "int": numa },
                "dra.cpu/socketID": { "int": numa },
            },
            "capacity": { "dra.cpu/cpu": { "value": CPUS.to_string() } },
        })
    };
    let slice = json!({ "metadata": { "name": "node-0-dra.cpu" }, "spec": {
        "driver": "dra.cpu", "nodeName": "node-0", "devices": [device(0), device(1)],
        "pool": { "name": "node-0", "generation": 1, "resourceSliceCount": 1 },
    } });
    view.apply(serde_json::from_value::<ResourceSlice>(slice).unwrap()).unwrap();
    view
}

fn pod_with_cpus(gpus: u32, cpus: &str, annotations: &[(&str, &str)]) -> Value {
    let mut pod = pod(GPU, gpus, &[annotations, &[("aligned-cpus", "true")]].concat());
    for list in ["limits", "requests"] {
        pod["spec"]["containers"][0]["resources"][list]["cpu"] = cpus.into();
    }
    pod
}

fn planned(pod: &Value, view: &ClusterView) -> Plan {
    admit(pod, view, &Policy::default()).unwrap().planned.unwrap().plan
}

fn denied(pod: &Value, view: &ClusterView) -> String {
    let error = admit(pod, view, &Policy::default()).unwrap_err();
    assert!(matches!(error, AdmitError::Denied(_)), "{error:?}");
    error.to_string()
}

/// The requests and devices that the scheduler's allocator allocates on the first node.
fn given<'v>(plan: &Plan, view: &'v ClusterView) -> Vec<(String, &'v Device)> {
    let claim = Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap();
    let inventory = view.inventory();
    let limits = Limits::steps(10_000);
    let state = inventory.state();
    let attempt = allocate(inventory, "node-0", &[claim], state, view.settings(), limits);
    let claims = match attempt.outcome {
        Outcome::Allocated(claims) => claims,
        other => {
            assert!(matches!(other, Outcome::NoFit(_)), "{other:?}");
            return Vec::new();
        }
    };
    let devices = inventory.devices_on("node-0", view.settings()).unwrap();
    let results = claims[0].results.iter().map(|result| {
        let device = devices.iter().find(|device| *device.id() == result.device).unwrap();
        (result.request.to_string(), *device)
    });
    results.collect()
}

#[test]
fn cpus_are_on_the_numa_node_of_the_nics() {
    for (machine, gpus, cpus, annotations) in [
        (GB300, 1, 16, &[("aligned-nics", "1")][..]),
        (GB300, 2, 64, &[("aligned-nics", "2"), ("pairing", "group")]),
        (GB300, 4, 64, &[("aligned-nics", "4")]),
        (H100, 1, 8, &[("aligned-nics", "1")]),
        (H100, 2, 16, &[("aligned-nics", "2")]),
    ] {
        let view = with_cpus(machine);
        let plan = planned(&pod_with_cpus(gpus, &cpus.to_string(), annotations), &view);
        let what = format!("{} {gpus} {annotations:?}: {:?}", machine.fixture, plan.claim);
        let given = given(&plan, &view);
        let of_cpus: Vec<_> = given.iter().filter(|(name, _)| name.starts_with("cpu")).collect();
        assert!(!of_cpus.is_empty(), "{what}");
        for (request, cpus) in of_cpus {
            let block = request.strip_prefix("cpu-");
            let is_own = |name: &str| {
                name.starts_with("nic")
                    && block.is_none_or(|block| {
                        name.split('/').next() == Some(&*format!("nic-{block}"))
                    })
            };
            let own: Vec<_> = given.iter().filter(|(name, _)| is_own(name)).collect();
            assert!(!own.is_empty(), "no NICs beside {request}: {what}");
            for (_, nic) in own {
                assert_eq!(nic.attribute(NUMA), cpus.attribute(NUMA), "{what}");
            }
        }
        let note = plan.note("…");
        assert!(note.contains(&format!("with {cpus} CPUs of the same NUMA node")), "{note}");
        let asked = plan.claim.devices.unwrap().requests.unwrap();
        let amounts = asked.iter().filter_map(|it| it.exactly.as_ref()?.capacity.as_ref());
        let amounts = amounts.map(|it| it.requests.as_ref().unwrap()["dra.cpu/cpu"].0.clone());
        assert_eq!(amounts.map(|it| it.parse::<u32>().unwrap()).sum::<u32>(), cpus);
    }
}

#[test]
fn cpus_that_cannot_be_aligned_are_denied() {
    let (view, without) = (with_cpus(GB300), cluster(&[GB300]));
    let nics = ("aligned-nics", "1");
    let one = |cpus: &str| pod_with_cpus(1, cpus, &[nics]);
    let mut off = one("8");
    off["metadata"]["annotations"]["dranet.io/aligned-cpus"] = "yes".into();
    let mut unequal = one("8");
    unequal["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4".into();
    let mut two = one("8");
    let mut second = two["spec"]["containers"][0].clone();
    second["name"] = "second".into();
    two["spec"]["containers"].as_array_mut().unwrap().push(second);
    for (pod, view, expected) in [
        (off, &view, "invalid value; allowed values: \"true\""),
        (one("7500m"), &view, "requests no whole CPUs"),
        (unequal, &view, "requests no whole CPUs"),
        (two, &view, "a claim for CPUs serves one container, and 2 containers of the pod"),
        (one("65"), &view, "asks for 65 CPUs on the NUMA node of its NICs"),
        (one("8"), &without, "install dra-driver-cpu with cpuDeviceMode: grouped"),
        (
            pod_with_cpus(2, "9", &[("aligned-nics", "2")]),
            &view,
            "9 CPUs cannot be divided evenly among 2 GPUs",
        ),
        (
            pod_with_cpus(1, "8", &[nics, ("alignment-policy", "preferred")]),
            &view,
            "so they cannot be combined with dranet.io/alignment-policy: \"preferred\"",
        ),
    ] {
        let denial = denied(&pod, view);
        assert!(denial.contains(expected), "`{expected}` is not in: {denial}");
        assert!(denial.starts_with("dranet.io/aligned-cpus: \""), "{denial}");
    }
}

/// NVMe devices of each NUMA node.
const NVMES: u32 = 4;

/// A machine with the slice of dra-driver-nvme, as its code makes it
/// (`cmd/nvme-kubeletplugin/deviceinfo.go` of johnahull/dra-driver-nvme).
fn with_nvmes(machine: Machine) -> ClusterView {
    let mut view = cluster(&[machine]);
    let class = json!({
        "metadata": { "name": "dra.nvme" },
        "spec": { "selectors": [{ "cel": { "expression": "device.driver == \"dra.nvme\"" } }] },
    });
    view.apply(serde_json::from_value::<DeviceClass>(class).unwrap()).unwrap();
    let device = |index: u32| {
        let numa = index / NVMES;
        json!({
            "name": format!("nvme{index}"),
            "attributes": {
                "dra.nvme/model": { "string": "SAMSUNG MZQL21T9HCJR" },
                "dra.nvme/serial": { "string": format!("S64GNE{index}") },
                "dra.nvme/transport": { "string": "pcie" },
                "dra.nvme/numaNode": { "int": numa },
                "resource.kubernetes.io/numaNode": { "int": numa },
                "resource.kubernetes.io/cpuSocketID": { "int": numa },
                "resource.kubernetes.io/pciBusID": { "string": format!("0000:{index:02x}:00.0") },
                "resource.kubernetes.io/pcieRoot": { "string": format!("pci0000:{index:02x}") },
            },
            "capacity": { "dra.nvme/size": { "value": "1920383410176" } },
        })
    };
    let devices: Vec<_> = (0..2 * NVMES).map(device).collect();
    let slice = json!({ "metadata": { "name": "node-0-dra.nvme" }, "spec": {
        "driver": "dra.nvme", "nodeName": "node-0", "devices": devices,
        "pool": { "name": "node-0", "generation": 1, "resourceSliceCount": 1 },
    } });
    view.apply(serde_json::from_value::<ResourceSlice>(slice).unwrap()).unwrap();
    view
}

fn pod_with_nvmes(gpus: u32, nvmes: &str, annotations: &[(&str, &str)]) -> Value {
    pod(GPU, gpus, &[annotations, &[("aligned-nvmes", nvmes)]].concat())
}

#[test]
fn nvme_devices_are_on_the_numa_node_of_the_nics() {
    for (machine, gpus, nvmes, annotations) in [
        (GB300, 1, 1, &[("aligned-nics", "1")][..]),
        (GB300, 2, 4, &[("aligned-nics", "2"), ("pairing", "group")]),
        (GB300, 4, 8, &[("aligned-nics", "4")]),
        (H100, 1, 4, &[("aligned-nics", "1")]),
        (H100, 8, 8, &[("aligned-nics", "8")]),
    ] {
        let view = with_nvmes(machine);
        let plan = planned(&pod_with_nvmes(gpus, &nvmes.to_string(), annotations), &view);
        let what = format!("{} {gpus} {annotations:?}: {:?}", machine.fixture, plan.claim);
        let given = given(&plan, &view);
        let of_nvmes: Vec<_> = given.iter().filter(|(name, _)| name.starts_with("nvme")).collect();
        assert_eq!(of_nvmes.len(), nvmes, "{what}");
        for (request, nvme) in of_nvmes {
            let block = request.strip_prefix("nvme-");
            let is_own = |name: &str| {
                name.starts_with("nic")
                    && block.is_none_or(|block| {
                        name.split('/').next() == Some(&*format!("nic-{block}"))
                    })
            };
            let own: Vec<_> = given.iter().filter(|(name, _)| is_own(name)).collect();
            assert!(!own.is_empty(), "no NICs beside {request}: {what}");
            for (_, nic) in own {
                assert_eq!(nic.attribute(NUMA), nvme.attribute(NUMA), "{what}");
            }
        }
        let note = plan.note("…");
        let devices = if nvmes == 1 { "device" } else { "devices" };
        let expected = format!("with {nvmes} NVMe {devices} of the same NUMA node");
        assert!(note.contains(&expected), "{note}");
    }
}

#[test]
fn nvme_devices_that_cannot_be_aligned_are_denied() {
    let (view, without) = (with_nvmes(GB300), cluster(&[GB300]));
    let nics = ("aligned-nics", "1");
    let one = |nvmes: &str| pod_with_nvmes(1, nvmes, &[nics]);
    let mut two = one("1");
    let mut second = two["spec"]["containers"][0].clone();
    second["name"] = "second".into();
    two["spec"]["containers"].as_array_mut().unwrap().push(second);
    for (pod, view, expected) in [
        (one("some"), &view, "invalid value: not a number of NVMe devices"),
        (one("0"), &view, "invalid value: zero asks for nothing"),
        (one("31"), &view, "too many beside 2 GPUs and NICs"),
        (two, &view, "NVMe devices go to one container, and 2 containers of the pod get devices"),
        (one("5"), &view, "no NUMA node in this cluster has more than 4"),
        (one("1"), &without, "install dra-driver-nvme"),
        (
            pod_with_nvmes(2, "3", &[("aligned-nics", "2")]),
            &view,
            "3 NVMe devices cannot be divided evenly among 2 GPUs",
        ),
        (
            pod_with_nvmes(1, "1", &[nics, ("alignment-policy", "preferred")]),
            &view,
            "so they cannot be combined with dranet.io/alignment-policy: \"preferred\"",
        ),
    ] {
        let denial = denied(&pod, view);
        assert!(denial.contains(expected), "`{expected}` is not in: {denial}");
        assert!(denial.starts_with("dranet.io/aligned-nvmes: \""), "{denial}");
    }
}

/// A pod of a job.
fn pod_of(job: usize, name: &str) -> Value {
    let mut pod = pod(GPU, 1, &[("aligned-nics", "1"), ("rail", "same")]);
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job.to_string(),
        "controller": true,
    }]);
    pod
}

#[test]
fn all_pods_of_a_job_get_the_same_rail() {
    let small = cluster(&[H100]);
    let large = cluster(&[H100, H100, H100]);
    let mut rails = BTreeSet::new();
    for job in 0..24 {
        let plan = planned(&pod_of(job, "a"), &small);
        let rail = plan.rails[0];
        for (name, view) in [("b", &small), ("c", &large)] {
            let other = planned(&pod_of(job, name), view);
            assert_eq!(other.rails, [rail], "job {job}");
            let given = given(&other, view);
            let nic = given.iter().find(|(name, _)| name.starts_with("nic")).unwrap();
            assert_eq!(nic.1.attribute(RAIL).unwrap().to_string(), rail.to_string());
        }
        let note = plan.note("…");
        assert!(note.contains(&format!("on rail {rail} as all pods of the job")), "{note}");
        rails.insert(rail);
    }
    assert!(rails.len() > 4, "24 jobs are on rails {rails:?}");
}

/// Prefill with two GPUs and decode with four, each GPU with its NIC: the rails of the first are among
/// those of the second, on every node, also where another NIC is missing.
#[test]
fn pods_with_several_nics_share_a_set_of_rails() {
    let view = cluster(&[H100, H100]);
    let role = |job: usize, gpus: u32| {
        let mut pod =
            pod(GPU, gpus, &[("aligned-nics", "per-gpu"), ("rail", "same"), ("fabric", "same")]);
        pod["metadata"]["annotations"].as_object_mut().unwrap().remove("dranet.io/fabric");
        pod["metadata"]["labels"] = json!({"jobset.sigs.k8s.io/jobset-name": format!("j{job}")});
        pod
    };
    let mut sets = BTreeSet::new();
    for job in 0..8 {
        let [prefill, decode] = [2, 4].map(|gpus| planned(&role(job, gpus), &view));
        assert_eq!((prefill.rails.len(), decode.rails.len()), (2, 4), "job {job}");
        assert!(prefill.rails.iter().all(|rail| decode.rails.contains(rail)), "job {job}");
        for plan in [&prefill, &decode] {
            let given = given(plan, &view);
            let nics = given.iter().filter(|(_, it)| it.attribute(RAIL).is_some());
            let rails: BTreeSet<_> =
                nics.map(|(_, nic)| nic.attribute(RAIL).unwrap().to_string()).collect();
            let expected: BTreeSet<_> = plan.rails.iter().map(i64::to_string).collect();
            assert_eq!(rails, expected, "job {job}");
        }
        let note = decode.note("…");
        assert!(note.contains("on rails "), "{note}");
        sets.insert(decode.rails.clone());
    }
    assert!(sets.len() > 1, "8 jobs are on rails {sets:?}");
}

#[test]
fn a_rail_that_cannot_be_kept_is_denied() {
    let view = cluster(&[H100]);
    let mut value = pod_of(1, "a");
    value["metadata"]["annotations"]["dranet.io/rail"] = "3".into();
    let mut alone = pod_of(1, "a");
    alone["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    for (pod, expected) in [
        (value, "invalid value; allowed values: \"same\""),
        (alone, "the pod has no controller and no job label, so no other pod shares its rail"),
    ] {
        let denial = denied(&pod, &view);
        assert!(denial.contains(expected), "`{expected}` is not in: {denial}");
    }
}
