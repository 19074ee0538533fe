//! A claim on a GB300 machine, with its slices as published live, and what a container
//! then reads.

use super::*;
use crate::kernel::attach::AttachMode;
use crate::prepare::cdi;
use crate::prepare::metadata;
use node_files::paths::Paths;
use publication::live;
use serde_json::{Value, json};
use topology_graph::fixture::{machine, plant};
use topology_graph::{HostRoot, Overlay, read};

const NODE: &str = "node-1";

fn topology() -> Topology {
    let facts = live::facts("aks-gb300");
    let overlay = facts.cloud.machine_type().and_then(Overlay::built_in);
    Topology::build(&facts.snapshot, overlay.as_ref()).0
}

/// GPUs 0 and 1 are near NICs 0101 and 0102, GPUs 2 and 3 near 0103 and 0104.
fn published() -> SliceDevices {
    let gpu = |(number, address): (usize, &str)| {
        json!({"name": format!("gpu-{number}"), "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": format!("GPU-0000000{number}")},
            "resource.kubernetes.io/pciBusID": {"string": address},
        }})
    };
    let addresses = ["0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"];
    let gpus: Vec<_> = addresses.into_iter().enumerate().map(gpu).collect();
    let nics: Vec<_> = live::published_by_upstream("aks-gb300");
    let slice = |driver: &str, devices: Value| {
        let slice = json!({"metadata": {}, "spec": {
            "driver": driver, "nodeName": NODE, "devices": devices,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        }});
        serde_json::from_value(slice).unwrap()
    };
    SliceDevices::new(vec![
        slice("gpu.nvidia.com", json!(gpus)),
        slice("dra.net", serde_json::to_value(nics).unwrap()),
    ])
}

fn plan(nics: &[u32], gpus: &[u32]) -> Plan {
    let nic = |number: &u32| {
        json!({
            "request": "nics/near", "pool": NODE, "device": format!("pci-010{number}-00-00-0"),
            "pciBusId": format!("010{number}:00:00.0"), "link": null,
            "rdma": {
                "name": format!("mlx5_{}", number - 1), "ports": [1],
                "chars": [{"name": format!("uverbs{}", number - 1), "major": 231, "minor": number}],
            },
        })
    };
    let gpu = |number: &u32| {
        json!({"request": "gpus", "driver": "gpu.nvidia.com", "pool": NODE,
            "device": format!("gpu-{number}")})
    };
    serde_json::from_value(json!({
        "claim": {"namespace": "team", "name": "train-0-nics-x7x2p", "uid": "u-1"},
        "pods": [], "rdma_cm": null, "podClaimName": "nics",
        "devices": nics.iter().map(nic).collect::<Vec<_>>(),
        "others": gpus.iter().map(gpu).collect::<Vec<_>>(),
    }))
    .unwrap()
}

/// `gpu-0: pci-0101-00-00-0 NODE`, GPU by GPU.
fn map(wiring: &Wiring) -> Vec<String> {
    let line = |gpu: &PlannedGpu| {
        let nics: Vec<_> =
            gpu.nics.iter().map(|nic| format!("{} {}", nic.device, nic.path)).collect();
        format!("{}: {}", gpu.device, nics.join(", "))
    };
    wiring.gpus.iter().map(line).collect()
}

fn paths() -> Paths {
    Paths {
        kubelet: "/var/lib/kubelet".into(),
        driver: "dra.net".into(),
        cdi: "/var/run/cdi".into(),
        run: "/run/dranet".into(),
        netns: "/run/netns".into(),
        sysctl: "/proc/sys/net".into(),
    }
}

fn settings() -> cdi::SpecSettings {
    cdi::SpecSettings {
        runtime_root: "/".into(),
        attach: AttachMode::Hook,
        environment: cdi::Environment::default(),
        locked_memory: true,
    }
}

fn decide(nics: &[u32], gpus: &[u32]) -> Wiring {
    wiring(&plan(nics, gpus), "dra.net", &topology(), &published())
}

#[test]
fn every_gpu_gets_its_nearest_nics() {
    assert_eq!(
        map(&decide(&[4, 3, 2, 1], &[0, 1, 2, 3])),
        [
            "gpu-0: pci-0101-00-00-0 NODE",
            "gpu-1: pci-0102-00-00-0 NODE",
            "gpu-2: pci-0103-00-00-0 NODE",
            "gpu-3: pci-0104-00-00-0 NODE",
        ]
    );
    let two_each = decide(&[1, 2], &[0]);
    assert_eq!(map(&two_each), ["gpu-0: pci-0101-00-00-0 NODE, pci-0102-00-00-0 NODE"]);
    let shared = decide(&[3], &[2, 3]);
    assert_eq!(map(&shared), ["gpu-2: pci-0103-00-00-0 NODE", "gpu-3: pci-0103-00-00-0 NODE"]);
    // None of the claim's NICs is near it.
    assert_eq!(map(&decide(&[1], &[3])), ["gpu-3: "]);
}

#[test]
fn the_nccl_file_has_only_the_claims_devices() {
    let nccl = decide(&[3, 4], &[2]).nccl.expect("a graph");
    for (address, is_held) in [
        ("0103:00:00.0", true),
        ("0104:00:00.0", true),
        ("0018:06:00.0", true),
        ("0101:00:00.0", false),
        ("0008:06:00.0", false),
        ("0019:06:00.0", false),
    ] {
        assert_eq!(nccl.contains(&format!("busid=\"{address}\"")), is_held, "{address}:\n{nccl}");
    }
    topology_graph::NcclXml::parse(&nccl).expect("a file for NCCL");
}

/// A machine with AMD's GPUs: of a GPU the address, and that of a NIC near it.
fn amd() -> (Topology, PciAddress, PciAddress) {
    let root = tempfile::tempdir().unwrap();
    plant(machine("azure-mi300x").unwrap(), root.path()).unwrap();
    let topology = Topology::build(&read(&HostRoot::at(root.path())).unwrap(), None).0;
    let gpus: Vec<_> = topology.gpus().iter().map(|gpu| gpu.address).collect();
    let nics: Vec<_> = topology.nics().iter().map(|nic| nic.address).collect();
    let pair = topology.pairs_of(&gpus, &nics)[0];
    (topology, pair.gpu, pair.nic)
}

/// AMD's driver publishes the address of a partition's GPU in attributes of its own (ROCm/k8s-gpu-dra-driver,
/// commit 2622427, `cmd/gpu-kubeletplugin/deviceinfo.go`; its documentation names another one).
#[test]
fn a_partition_gets_the_nics_near_its_gpu() {
    let (topology, gpu, nic) = amd();
    for (kind, attribute) in [
        ("amdgpu-partition", "parentPciAddr"),
        ("amdgpu-partition", "pciAddr"),
        ("amdgpu", "pciAddr"),
    ] {
        let slice = json!({"metadata": {}, "spec": {
            "driver": "gpu.amd.com", "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-1-129", "attributes": {
                "type": {"string": kind}, attribute: {"string": gpu.to_string()},
            }}],
        }});
        let published = SliceDevices::new(vec![serde_json::from_value(slice).unwrap()]);
        let mut plan = plan(&[1], &[1]);
        plan.devices[0].pci_bus_id = nic.to_string();
        plan.others[0].driver = "gpu.amd.com".to_owned();
        plan.others[0].device = "gpu-1-129".to_owned();
        let wiring = wiring(&plan, "dra.net", &topology, &published);
        assert_eq!(wiring.gpus[0].pci_bus_id, Some(gpu.to_string()), "{kind} {attribute}");
        assert_eq!(wiring.gpus[0].nics.len(), 1, "{kind} {attribute}");
        let nccl = wiring.nccl.expect("a graph");
        for address in [gpu, nic] {
            assert!(nccl.contains(&format!("busid=\"{address}\"")), "{address}:\n{nccl}");
        }
        assert_eq!(
            nccl.matches("vendor=\"0x1002\"").count(),
            1,
            "the GPUs of the claim only:\n{nccl}"
        );
    }
}

/// NCCL and RCCL read sysfs by themselves, and aws-ofi-nccl writes a better file.
#[test]
fn a_file_that_has_nothing_more_is_given_on_request_only() {
    for (hidden, setting, is_given) in [
        (true, cdi::NcclTopoFile::Auto, true),
        (false, cdi::NcclTopoFile::Auto, false),
        (false, cdi::NcclTopoFile::True, true),
        (true, cdi::NcclTopoFile::False, false),
    ] {
        let mut plan = plan(&[1], &[0]);
        plan.wiring = wiring(&plan, "dra.net", &topology(), &published());
        assert!(plan.wiring.nccl.is_some() && plan.wiring.nccl_on_request, "sysfs shows all");
        plan.wiring.nccl_on_request = !hidden;
        let environment = cdi::Environment { nccl_topo_file: setting, ..Default::default() };
        let settings = cdi::SpecSettings { environment, ..settings() };
        let text = serde_json::to_string(&cdi::spec(&plan, &paths(), &settings)).unwrap();
        assert_eq!(text.contains("NCCL_TOPO_FILE="), is_given, "{setting:?}");
        assert_eq!(text.contains("nccl-topology.xml"), is_given, "{setting:?}");
    }
}

/// A device plugin may give the pod GPUs that are in no claim.
#[test]
fn the_nccl_file_of_a_claim_without_gpus_has_all_gpus() {
    let nccl = decide(&[3], &[]).nccl.expect("a graph");
    let listed = |address: &str| nccl.contains(&format!("busid=\"{address}\""));
    for gpu in ["0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"] {
        assert!(listed(gpu), "{gpu}:\n{nccl}");
    }
    assert!(listed("0103:00:00.0") && !listed("0101:00:00.0"), "{nccl}");
}

#[test]
fn an_unpublished_gpu_is_named_without_its_address() {
    let plan = plan(&[1], &[0]);
    let wiring = wiring(&plan, "dra.net", &topology(), &SliceDevices::default());
    assert_eq!((map(&wiring), &wiring.gpus[0].pci_bus_id), (vec!["gpu-0: ".to_owned()], &None));
    assert_eq!(wiring.attributes["pci-0101-00-00-0"].len(), 0);
}

#[test]
fn a_gpu_without_a_published_address_is_found_by_its_uuid() {
    let topology = topology();
    let Some((uuid, address)) =
        topology.gpus().iter().find_map(|gpu| Some((gpu.uuid.clone()?, gpu.address)))
    else {
        panic!("the machine reports no UUIDs");
    };
    let slice = json!({"metadata": {}, "spec": {
        "driver": "gpu.nvidia.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": uuid}}}],
    }});
    let published = SliceDevices::new(vec![serde_json::from_value(slice).unwrap()]);
    let place = published.place(["gpu.nvidia.com", "p", "gpu-0"], &topology);
    assert_eq!(place, (Some(address), Some(uuid)));
}

#[test]
fn what_a_container_reads() {
    let mut plan = plan(&[1, 2], &[0]);
    plan.wiring = wiring(&plan, "dra.net", &topology(), &published());
    let stream = metadata::stream(&plan, "dra.net", "nics");
    let objects: Vec<Value> =
        serde_json::Deserializer::from_str(&stream).into_iter().collect::<Result<_, _>>().unwrap();
    let versions: Vec<_> = objects.iter().map(|object| object["apiVersion"].as_str()).collect();
    let expected = ["metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"];
    assert_eq!(versions, expected.map(Some));
    insta::assert_snapshot!("metadata", format!("{:#}", objects[0]));
    insta::assert_snapshot!("nccl", plan.wiring.nccl.clone().unwrap());
    assert_eq!(
        metadata::container_path(&plan, "dra.net", "nics").unwrap(),
        "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/nics/nics/dra.net-metadata.json"
    );
    plan.pod_claim_name = None;
    assert_eq!(
        metadata::container_path(&plan, "dra.net", "nics").unwrap(),
        "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/train-0-nics-x7x2p/nics/dra.net-metadata.json"
    );
}

/// The variables of vLLM and NVSHMEM in a container.
fn mappings(mut plan: Plan) -> Vec<String> {
    plan.wiring = wiring(&plan, "dra.net", &topology(), &published());
    let spec = serde_json::to_value(cdi::spec(&plan, &paths(), &settings())).unwrap();
    let all = spec["containerEdits"]["env"].as_array().into_iter().flatten();
    let all = all.map(|variable| variable.as_str().unwrap().to_owned());
    all.filter(|it| it.starts_with("VLLM") || it.starts_with("NVSHMEM")).collect()
}

/// Each GPU with its nearest NIC, for libraries that do not find it.
#[test]
fn vllm_and_nvshmem_get_the_nic_of_each_gpu() {
    let variables = |nics: &[u32], gpus: &[u32]| mappings(plan(nics, gpus));
    let all = variables(&[1, 2, 3], &[0, 2]);
    let [vllm, selection, enabled, nvshmem] = &all[..] else { panic!("{all:?}") };
    assert!(vllm.starts_with("VLLM_GPU_NIC_PCIE_MAPPING="), "{vllm}");
    assert!(vllm.contains("=0101:00:00.0,") && vllm.ends_with("=0103:00:00.0"), "{vllm}");
    assert_eq!(selection, "VLLM_NIC_SELECTION_VARS=UCX_NET_DEVICES:1");
    assert_eq!(enabled, "NVSHMEM_ENABLE_NIC_PE_MAPPING=1");
    assert_eq!(nvshmem, "NVSHMEM_HCA_PE_MAPPING=mlx5_0:1:1,mlx5_2:1:1");
    // A GPU without a NIC would stop both libraries.
    assert_eq!(variables(&[], &[0]), [""; 0]);
    assert_eq!(variables(&[1], &[]), [""; 0]);
}

/// NVSHMEM takes the NICs in the order of libibverbs, whatever the order of the variable is.
#[test]
fn nvshmem_gets_a_mapping_only_if_the_order_of_devices_is_that_of_the_gpus() {
    let of = |prefix: &str, chars: [&str; 2], ports: [u32; 2]| {
        let mut plan = plan(&[1, 3], &[0, 1, 2]);
        for ((device, char), port) in plan.devices.iter_mut().zip(chars).zip(ports) {
            let rdma = device.rdma.as_mut().unwrap();
            rdma.chars[0].name = char.to_owned();
            rdma.ports = vec![port];
        }
        let all = mappings(plan).into_iter().filter(|it| it.starts_with(prefix));
        all.filter_map(|it| Some(it.split_once('=')?.1.to_owned())).collect::<Vec<_>>()
    };
    let nvshmem = |chars, ports| of("NVSHMEM_HCA_PE_MAPPING", chars, ports);
    assert_eq!(nvshmem(["uverbs0", "uverbs2"], [1, 1]), ["mlx5_0:1:2,mlx5_2:1:1"]);
    assert_eq!(nvshmem(["uverbs9", "uverbs10"], [1, 2]), ["mlx5_0:1:2,mlx5_2:2:1"]);
    assert_eq!(nvshmem(["uverbs2", "uverbs0"], [1, 1]), [""; 0]);
    assert_eq!(nvshmem(["umad0", "umad2"], [1, 1]), [""; 0]);
    let vllm = |ports| of("VLLM_NIC_SELECTION_VARS", ["uverbs2", "uverbs0"], ports);
    assert_eq!(vllm([2, 2]), ["UCX_NET_DEVICES:2"]);
    assert_eq!(vllm([1, 2]), [""; 0]);
}

#[test]
fn a_request_of_two_devices_has_one_metadata_file() {
    let plan = plan(&[1, 2], &[]);
    let spec = serde_json::to_value(cdi::spec(&plan, &paths(), &settings())).unwrap();
    let mounts = |device: usize| spec["devices"][device]["containerEdits"]["mounts"].clone();
    assert_eq!(mounts(1), Value::Null);
    assert_eq!(
        mounts(0)[0]["hostPath"],
        "/var/lib/kubelet/plugins/dra.net/claims/u-1/metadata-nics.json"
    );
}
