//! Preparation finds a published device where the view of the cluster has it, in every form in which drivers
//! publish devices, on every machine.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cluster_model::drivers::{Drivers, DriversFile, accelerators, set};
use cluster_model::node_devices::address_on;
use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use node_driver::prepare::published::SliceDevices;
use publication::cloud::CloudMetadata;
use publication::decision::decide;
use publication::machine::Facts;
use publication::network::NetworkFacts;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use topology_graph::fixture::{self, MACHINES, plant};
use topology_graph::{Gpu, HostRoot, Nic, NodeTopology, PciAddress, Snapshot, Topology, read};

const NODE: &str = "node-0";
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures");

/// Drivers that are entries of the operator's file. The second publishes interfaces.
const ENTRIES: &str = "
accelerators:
- {driver: gaudi.intel.com, class: gaudi.intel.com, pciVendor: 1da3, pciClasses: ['1200'], address: deviceName}
nics:
- {driver: interfaces.example.com, classes: [interfaces], address: {interfaceAttribute: interfaces.example.com/ifName}}
";

/// A driver, the name of a device, its attributes, and whether its address is known.
type Form = (&'static str, String, Value, bool);

/// The forms of a GPU.
fn of_gpu(gpu: &Gpu) -> Vec<Form> {
    let at = json!({ "string": gpu.address.to_string() });
    let standard = "resource.kubernetes.io/pciBusID";
    let name = gpu.address.to_string().replace([':', '.'], "-");
    let plain = |driver, kind: &str, attribute: &str| {
        let attributes = json!({ "type": { "string": kind }, attribute: at });
        (driver, format!("{kind}-{name}-{}", attribute.replace('/', "-")), attributes, true)
    };
    let uuid = gpu.uuid.as_ref().map(|uuid| {
        let attributes = json!({ "type": { "string": "gpu" }, "uuid": { "string": uuid } });
        ("gpu.nvidia.com", format!("uuid-{name}"), attributes, true)
    });
    let mut forms = vec![
        plain("gpu.nvidia.com", "gpu", standard),
        plain("gpu.nvidia.com", "gpu", "pcieBusID"),
        plain("gpu.nvidia.com", "gpu", "gpu.nvidia.com/pcieBusID"),
        plain("gpu.nvidia.com", "mig", standard),
        plain("gpu.nvidia.com", "mig", "pcieBusID"),
        plain("gpu.amd.com", "amdgpu", standard),
        plain("gpu.amd.com", "amdgpu", "pciAddr"),
        plain("gpu.amd.com", "amdgpu-partition", "parentPciAddr"),
        plain("gpu.amd.com", "amdgpu-partition", "pciAddr"),
        plain("gpu.intel.com", "unknown", standard),
        plain("unknown.example.com", "any", standard),
        plain("unknown.example.com", "any", "dra.net/pciAddress"),
        ("gaudi.intel.com", format!("{name}-0x1060"), json!({}), true),
        ("gpu.intel.com", format!("{name}-0x0bda"), json!({}), false),
        (
            "gpu.nvidia.com",
            format!("other-{name}"),
            json!({ "uuid": { "string": "GPU-0" } }),
            false,
        ),
        ("gpu.nvidia.com", format!("bad-{name}"), json!({ standard: { "string": "bad" } }), false),
        ("gpu.nvidia.com", format!("int-{name}"), json!({ standard: { "int": 1 } }), false),
    ];
    forms.extend(uuid);
    forms
}

/// The forms of a NIC.
fn of_nic(nic: &Nic) -> Vec<Form> {
    let at = json!({ "string": nic.address.to_string() });
    let name = format!("pci-{}", nic.address.to_string().replace([':', '.'], "-"));
    let plain = |driver, attribute: &str| {
        let name = format!("{name}-{}", attribute.replace('/', "-"));
        (driver, name, json!({ attribute: at }), true)
    };
    let mut forms = vec![
        plain("dra.net", "resource.kubernetes.io/pciBusID"),
        plain("dra.net", "dra.net/pciAddress"),
        plain("dra.net", "pciAddress"),
        plain("sriovnetwork.k8snetworkplumbingwg.io", "pciAddress"),
        plain("networkdriver.cilium.io", "networkdriver.cilium.io/pciAddr"),
        plain("mrdma.google.com", "dra.net/pciAddress"),
        ("dra.net", name.clone(), json!({}), false),
        ("dra.networking.k8s.aws", format!("none-{name}"), json!({}), false),
    ];
    let rdma = nic.rdma_device.clone();
    forms.extend(rdma.map(|device| ("dra.networking.k8s.aws", device, json!({}), true)));
    forms.extend(nic.netdevs.iter().map(|interface| {
        let attributes = json!({ "ifName": { "string": interface } });
        ("interfaces.example.com", interface.clone(), attributes, true)
    }));
    forms
}

fn slice(driver: &str, devices: &[Value]) -> ResourceSlice {
    serde_json::from_value(json!({ "metadata": { "name": format!("{NODE}-{driver}") }, "spec": {
        "driver": driver, "nodeName": NODE, "devices": devices,
        "pool": { "name": NODE, "generation": 1, "resourceSliceCount": 1 },
    } }))
    .unwrap()
}

/// A machine as its node has it, and the view of the cluster with it and these slices.
fn seen(snapshot: Snapshot, slices: &[ResourceSlice]) -> (Topology, ClusterView) {
    let (topology, _) = Topology::build_with(&snapshot, None, accelerators());
    let (network, cloud) = (NetworkFacts::default(), CloudMetadata::default());
    let decision = decide(&Facts { snapshot, network, cloud, rails: None });
    let mut view = ClusterView::default();
    let node = json!({ "metadata": { "name": NODE } });
    view.apply(serde_json::from_value::<Node>(node).unwrap()).unwrap();
    view.apply(NodeTopology::new(NODE, decision.topology)).unwrap();
    for slice in slices {
        view.apply(slice.clone()).unwrap();
    }
    (topology, view)
}

/// The addresses of the devices of a view, each compared with that of preparation.
fn compared(
    (topology, view): &(Topology, ClusterView),
    slices: Vec<ResourceSlice>,
) -> BTreeMap<String, Option<PciAddress>> {
    let published = SliceDevices::new(slices);
    let devices = view.inventory().slices().flat_map(|slice| &slice.devices);
    let places = devices.map(|device| {
        let id = device.id();
        let address = address_on(view, NODE, device);
        let (found, _) = published.place([&id.driver, &id.pool, &id.device], topology);
        assert_eq!(found, address, "{id}");
        (id.to_string(), address)
    });
    places.collect()
}

fn use_entries() {
    set(&Drivers::with(DriversFile::parse(ENTRIES).unwrap())).unwrap();
}

fn planted(text: &str) -> Snapshot {
    let root = tempfile::tempdir().unwrap();
    plant(text, root.path()).unwrap();
    read(&HostRoot::at(root.path())).unwrap()
}

#[test]
fn preparation_finds_devices_where_the_view_has_them() {
    use_entries();
    let mut number = 0;
    for (machine, text) in MACHINES {
        let snapshot = planted(text);
        let (topology, _) = Topology::build_with(&snapshot, None, accelerators());
        let gpus = topology.gpus().iter().map(|gpu| (gpu.address, of_gpu(gpu)));
        let nics = topology.nics().iter().map(|nic| (nic.address, of_nic(nic)));
        let mut devices: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        let mut expected = BTreeMap::new();
        for (address, forms) in gpus.chain(nics) {
            for (driver, name, attributes, is_known) in forms {
                expected.insert(format!("{driver}/{NODE}/{name}"), is_known.then_some(address));
                let device = json!({ "name": name, "attributes": attributes });
                devices.entry(driver).or_default().push(device);
            }
        }
        let slices = devices.iter().map(|(driver, devices)| slice(driver, devices));
        let slices: Vec<_> = slices.collect();
        let found = compared(&seen(snapshot, &slices), slices);
        number += found.len();
        assert_eq!(found, expected, "{machine}");
    }
    assert!(number > 1000, "{number} devices");
}

/// Slices as drivers published them, with the graph of some machine.
#[test]
fn the_same_for_slices_of_live_clusters() {
    use_entries();
    for folder in ["nic-drivers", "nvidia-h200", "aks-gb300", "aks-mi300x", "oke-gb200", "eks-p4d"]
    {
        let files = fs::read_dir(Path::new(FIXTURES).join(folder)).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let paths = paths.filter(|path| path.extension().is_some_and(|it| it == "yaml"));
        let objects = paths.flat_map(|path| snapshot::objects(&path).unwrap());
        let slices = objects.filter(|object| object["kind"] == "ResourceSlice");
        let slices: Vec<ResourceSlice> =
            slices.map(|object| serde_json::from_value(object).unwrap()).collect();
        assert!(!slices.is_empty(), "{folder}");
        for machine in ["gb200-nvl72", "dgx-h100"] {
            let snapshot = planted(fixture::machine(machine).unwrap());
            compared(&seen(snapshot, &slices), slices.clone());
        }
    }
}
