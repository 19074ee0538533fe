//! Clusters of machines from topology-graph's fixtures.

#![allow(dead_code, reason = "several test crates use it, each in part")]

use cluster_model::names::attribute;
use cluster_model::remembered::Remembered;
use cluster_model::view::{ClusterView, Index};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use publication::attribute::Text;
use publication::cloud::CloudMetadata;
use publication::decision::{decide, decide_with};
use publication::health::taint::TaintArgs;
use publication::judge::{BindNics, Rules};
use publication::machine::Facts;
use publication::network::NetworkFacts;
use publication::sharing::SharingArgs;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use topology_graph::fixture::{machine, plant, with_virtual_functions};
use topology_graph::{
    Gpu, HostRoot, NodeTopology, NodeTopologySpec, PciAddress, Snapshot, Topology, read,
};

/// A machine of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// Name of the fixture. With `+roce` its InfiniBand ports are Ethernet; with `+vfs` each of its
    /// RDMA NICs has two virtual functions. With `trees/` before it, an archive of `topology-graph/tests`.
    pub(crate) fixture: &'static str,
    /// The cloud's name of its size, which selects the overlay of the graph.
    pub(crate) size: Option<&'static str>,
    /// How its GPUs are published.
    pub(crate) gpus: Gpus,
}

/// Drivers of GPUs, by what they publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gpus {
    /// NVIDIA's before v0.5.0: no NUMA node.
    Nvidia,
    /// NVIDIA's from v0.5.0: the standard NUMA node.
    NvidiaWithNuma,
    /// NVIDIA's with the NUMA node of the GPU's own memory.
    NvidiaWithOwnNuma,
    /// AMD's v1.0: a NUMA node in its own domain.
    Amd,
    /// Intel's: neither a kind nor a NUMA node that is known.
    Intel,
    /// No DRA driver, but a device plugin.
    Plugin,
    /// The same, and NICs are bound late.
    PluginLate,
    /// Gaudi 3 instead of NVIDIA's GPUs, by Intel's driver: the root, and the bus ID in the name.
    Gaudi,
    /// Ascend instead of NVIDIA's GPUs, by Huawei's device plugin.
    Ascend,
}

pub(crate) const GB300: Machine = Machine {
    fixture: "azure-gb300",
    size: Some("Standard_ND128isr_GB300_v6"),
    gpus: Gpus::Nvidia,
};
pub(crate) const GB200: Machine =
    Machine { fixture: "oci-gb200", size: None, gpus: Gpus::NvidiaWithOwnNuma };
pub(crate) const H100: Machine = Machine {
    fixture: "azure-ndh100v5",
    size: Some("Standard_ND96isr_H100_v5"),
    gpus: Gpus::NvidiaWithNuma,
};
pub(crate) const A100: Machine =
    Machine { fixture: "azure-nda100v4", size: Some("Standard_ND96asr_v4"), gpus: Gpus::Nvidia };
pub(crate) const MI300X: Machine =
    Machine { fixture: "azure-mi300x", size: Some("Standard_ND96isr_MI300X_v5"), gpus: Gpus::Amd };
pub(crate) const P4D: Machine =
    Machine { fixture: "aws-p4d", size: None, gpus: Gpus::NvidiaWithNuma };
pub(crate) const HGX: Machine =
    Machine { fixture: "x86-one-per-switch", size: None, gpus: Gpus::Nvidia };
pub(crate) const DGX_H100: Machine =
    Machine { fixture: "dgx-h100", size: None, gpus: Gpus::Nvidia };
pub(crate) const DGX_H100_VFS: Machine =
    Machine { fixture: "dgx-h100+vfs", size: None, gpus: Gpus::NvidiaWithNuma };
pub(crate) const HGX_VFS: Machine =
    Machine { fixture: "x86-one-per-switch+vfs", size: None, gpus: Gpus::Nvidia };
pub(crate) const DGX_H100_ROCE: Machine =
    Machine { fixture: "dgx-h100+roce", size: None, gpus: Gpus::NvidiaWithNuma };
pub(crate) const DGX_B200: Machine =
    Machine { fixture: "dgx-b200", size: None, gpus: Gpus::NvidiaWithNuma };
pub(crate) const NVL72: Machine =
    Machine { fixture: "gb200-nvl72", size: None, gpus: Gpus::NvidiaWithOwnNuma };
pub(crate) const NVL72_ROCE: Machine =
    Machine { fixture: "gb200-nvl72+roce", size: None, gpus: Gpus::NvidiaWithOwnNuma };
pub(crate) const LENOVO: Machine =
    Machine { fixture: "lenovo-sr680a-v3", size: None, gpus: Gpus::NvidiaWithNuma };
pub(crate) const A3: Machine =
    Machine { fixture: "x86-two-per-switch", size: None, gpus: Gpus::NvidiaWithNuma };
/// Four EFA adapters at each GPU, and ENA adapters without RDMA.
pub(crate) const P5: Machine =
    Machine { fixture: "trees/aws-p5", size: None, gpus: Gpus::NvidiaWithNuma };
/// Two EFA adapters at each GPU.
pub(crate) const P5EN: Machine =
    Machine { fixture: "trees/aws-p5en", size: None, gpus: Gpus::NvidiaWithNuma };
/// MI355X, each with a Pollara 400 whose own switch is between it and the board's.
pub(crate) const POLLARA: Machine =
    Machine { fixture: "trees/mi355x-pollara", size: None, gpus: Gpus::Amd };
/// A virtual machine whose only NIC has no RDMA.
pub(crate) const H200_VM: Machine =
    Machine { fixture: "h200-vm-1gpu", size: None, gpus: Gpus::NvidiaWithNuma };

impl Machine {
    /// The same machine with another GPU driver.
    pub(crate) const fn with(self, gpus: Gpus) -> Self {
        Self { gpus, ..self }
    }

    /// What the production reader finds. Each machine is planted once, since that is hundreds of files.
    pub(crate) fn snapshot(self) -> Snapshot {
        static READ: Mutex<BTreeMap<(&str, Option<&str>), Snapshot>> = Mutex::new(BTreeMap::new());
        let other = match self.gpus {
            Gpus::Gaudi => Some("Gaudi"),
            Gpus::Ascend => Some("Ascend"),
            _ => None,
        };
        let mut read = READ.lock().unwrap();
        read.entry((self.fixture, other)).or_insert_with(|| self.planted()).clone()
    }

    fn planted(self) -> Snapshot {
        if self.fixture.starts_with("trees/") {
            return in_archive(self.fixture);
        }
        let root = tempfile::tempdir().unwrap();
        let (name, variant) = self.fixture.split_once('+').unwrap_or((self.fixture, ""));
        let layer = if variant == "roce" { "Ethernet" } else { "InfiniBand" };
        let text = machine(name).unwrap();
        let text = text.replace("link_layer = InfiniBand", &format!("link_layer = {layer}"));
        let text = match self.gpus {
            Gpus::Gaudi => processors(&text, "0x1da3", "0x1060"),
            Gpus::Ascend => processors(&text, "0x19e5", "0xd802"),
            _ => text,
        };
        plant(&text, root.path()).unwrap();
        let snapshot = read(&HostRoot::at(root.path())).unwrap();
        if variant == "vfs" { with_virtual_functions(snapshot, 2) } else { snapshot }
    }
}

/// A machine that topology-graph keeps as an archive.
fn in_archive(name: &str) -> Snapshot {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topology-graph/tests");
    let archive = tests.join(format!("{name}.tar.gz"));
    read(&HostRoot::in_archive(&archive, &fs::read(&archive).unwrap()).unwrap()).unwrap()
}

/// The machine with other accelerators in the places of NVIDIA's GPUs. Class and IDs are those that
/// `lspci` prints.
fn processors(text: &str, vendor: &str, device: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut is_gpu = false;
    for line in text.lines().filter(|line| !line.contains("/proc/driver/nvidia")) {
        is_gpu = line == "class = 0x030200" || is_gpu && !line.starts_with('[');
        lines.push(match line.split_once(" = ") {
            Some(("class", _)) if is_gpu => "class = 0x120000".to_owned(),
            Some(("vendor", _)) if is_gpu => format!("vendor = {vendor}"),
            Some(("device", _)) if is_gpu => format!("device = {device}"),
            _ => line.to_owned(),
        });
    }
    lines.join("\n") + "\n"
}

/// A cluster with one node for each machine, `node-0` and on.
pub(crate) fn cluster(machines: &[Machine]) -> ClusterView {
    let mut view = ClusterView::default();
    for class in classes() {
        view.apply(class).unwrap();
    }
    for (index, machine) in machines.iter().enumerate() {
        add(&mut view, &format!("node-{index}"), *machine);
    }
    view
}

/// Adds a node.
pub(crate) fn add(view: &mut ClusterView, name: &str, machine: Machine) {
    add_all(view, &[name.to_owned()], machine);
}

/// Adds equal nodes.
pub(crate) fn add_all(view: &mut ClusterView, names: &[String], machine: Machine) {
    add_shared(view, names, machine, &SharingArgs::default());
}

/// Adds equal nodes whose NICs claims can share.
pub(crate) fn add_shared(
    view: &mut ClusterView,
    names: &[String],
    machine: Machine,
    sharing: &SharingArgs,
) {
    let built = Built::new(machine, &[], sharing);
    for (index, name) in names.iter().enumerate() {
        built.put(view, name, index);
    }
}

/// What the drivers of a machine publish.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    machine: Machine,
    spec: NodeTopologySpec,
    nics: Value,
    gpus: Option<(&'static str, Value)>,
}

impl Built {
    /// A machine without these devices, which it has lost.
    pub(crate) fn new(machine: Machine, lost: &[PciAddress], sharing: &SharingArgs) -> Self {
        let mut snapshot = machine.snapshot();
        snapshot.pci.retain(|function| !lost.contains(&function.address));
        let facts = Facts {
            snapshot: snapshot.clone(),
            network: NetworkFacts::default(),
            cloud: cloud(machine),
            rails: None,
        };
        let is_late = machine.gpus == Gpus::PluginLate;
        let rules = Rules {
            sharing: sharing.clone(),
            bind_nics: if is_late { BindNics::Late } else { BindNics::Named },
            taints: Some(TaintArgs::default()),
            one_function_per_port: true,
            ..Rules::default()
        };
        let decision = decide_with(&facts, &rules);
        let topology = Topology::from_spec(&decision.topology).unwrap();
        let nics = serde_json::to_value(&decision.devices).unwrap();
        let gpus = gpus(&topology, &snapshot, machine.gpus);
        Self { machine, spec: decision.topology, nics, gpus }
    }

    /// Adds a node with such a machine. `index` makes its UUIDs unique.
    pub(crate) fn put(&self, view: &mut ClusterView, name: &str, index: usize) {
        view.apply(node(name, self.machine, self.topology().gpus())).unwrap();
        let mut published = NodeTopology::new(name, self.spec.clone());
        published.metadata.name = Some(name.to_owned());
        view.apply(published).unwrap();
        view.apply(slice(name, "dra.net", &own(&self.nics, index))).unwrap();
        if let Some((driver, gpus)) = &self.gpus {
            view.apply(slice(name, driver, &own(gpus, index))).unwrap();
        }
    }

    /// The machine as admission remembers it when its nodes are gone. `index` makes its UUIDs unique.
    pub(crate) fn remembered(&self, index: usize) -> Remembered {
        let name = "gone";
        let gpus = self.gpus.iter();
        let gpus = gpus.map(|(driver, gpus)| slice(name, driver, &own(gpus, index)));
        let nics = slice(name, "dra.net", &own(&self.nics, index));
        Remembered::new(
            node(name, self.machine, self.topology().gpus()),
            std::iter::once(nics).chain(gpus).collect(),
            NodeTopology::new(name, self.spec.clone()),
        )
    }

    /// The same with GPUs that are published otherwise.
    pub(crate) fn with_gpus(mut self, change: impl Fn(&mut Value)) -> Self {
        for gpu in self.gpus.iter_mut().flat_map(|(_, gpus)| gpus.as_array_mut().unwrap()) {
            change(gpu);
        }
        self
    }

    /// The same with NICs that are published otherwise.
    pub(crate) fn with_nics(mut self, change: impl Fn(usize, &mut Value)) -> Self {
        let nics = self.nics.as_array_mut().unwrap();
        for (index, nic) in nics.iter_mut().enumerate() {
            change(index, nic);
        }
        self
    }

    /// The same with GPUs that are all divided, whichever it had.
    pub(crate) fn with_parts(mut self) -> Self {
        self.gpus = Some(("gpu.nvidia.com", parts(&self.topology())));
        self
    }

    /// The same with GPUs of NVIDIA's driver that are all divided.
    pub(crate) fn in_parts(mut self) -> Self {
        let parts = parts(&self.topology());
        for (_, gpus) in self.gpus.iter_mut().filter(|(driver, _)| *driver == "gpu.nvidia.com") {
            gpus.clone_from(&parts);
        }
        self
    }

    pub(crate) fn spec(&self) -> &NodeTopologySpec {
        &self.spec
    }

    pub(crate) fn topology(&self) -> Topology {
        Topology::from_spec(&self.spec).unwrap()
    }
}

/// Adds a node whose driver publishes no roles.
pub(crate) fn add_without_roles(view: &mut ClusterView, name: &str, machine: Machine) {
    let snapshot = machine.snapshot();
    let (network, cloud) = (NetworkFacts::default(), cloud(machine));
    let decision = decide(&Facts { snapshot: snapshot.clone(), network, cloud, rails: None });
    let mut spec = decision.topology;
    for nic in &mut spec.nics {
        (nic.role_reason, nic.rate, nic.state) = (None, None, None);
    }
    let mut nics = decision.devices;
    for attributes in nics.iter_mut().filter_map(|nic| nic.attributes.as_mut()) {
        attributes.remove(attribute::ROLE);
        attributes.remove(attribute::LINK_TYPE);
    }
    let topology = Topology::from_spec(&spec).unwrap();
    view.apply(node(name, machine, topology.gpus())).unwrap();
    view.apply(NodeTopology::new(name, spec)).unwrap();
    view.apply(slice(name, "dra.net", &serde_json::to_value(&nics).unwrap())).unwrap();
    if let Some((driver, gpus)) = gpus(&topology, &snapshot, machine.gpus) {
        view.apply(slice(name, driver, &gpus)).unwrap();
    }
}

/// The devices with different UUIDs on each node.
fn own(devices: &Value, index: usize) -> Value {
    if index == 0 {
        return devices.clone();
    }
    let text = devices.to_string().replace("\"GPU-", &format!("\"GPU-{index}-"));
    serde_json::from_str(&text).unwrap()
}

fn cloud(machine: Machine) -> CloudMetadata {
    let azure = machine.size.filter(|_| machine.fixture.starts_with("azure"));
    let group = azure.map(|_| (attribute::AZURE_PLACEMENT_GROUP, "c6c749e8"));
    let size = machine.size.map(|size| (attribute::AZURE_VM_SIZE, size));
    let texts = group.into_iter().chain(size);
    texts.map(|(name, value)| (name.to_owned(), Text::new(value).unwrap())).collect()
}

fn node(name: &str, machine: Machine, gpus: &[Gpu]) -> Node {
    let is_amd = gpus.iter().any(|gpu| gpu.vendor == 0x1002);
    let resource = match machine.gpus {
        Gpus::Ascend => "huawei.com/Ascend910",
        _ if is_amd => "amd.com/gpu",
        _ => "nvidia.com/gpu",
    };
    let is_plugin = matches!(machine.gpus, Gpus::Plugin | Gpus::PluginLate | Gpus::Ascend);
    let offered = if is_plugin { gpus.len() } else { 0 };
    let amounts = json!({ resource: offered.to_string() });
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "machine": machine.fixture } },
        "status": { "allocatable": amounts, "capacity": amounts },
    }))
    .unwrap()
}

fn slice(node: &str, driver: &str, devices: &Value) -> ResourceSlice {
    serde_json::from_value(json!({
        "metadata": { "name": format!("{node}-{driver}") },
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            "devices": devices,
        },
    }))
    .unwrap()
}

/// The GPUs of a machine as a driver publishes them.
fn gpus(topology: &Topology, snapshot: &Snapshot, gpus: Gpus) -> Option<(&'static str, Value)> {
    let (driver, kind) = match gpus {
        Gpus::Plugin | Gpus::PluginLate | Gpus::Ascend => return None,
        Gpus::Gaudi => return Some(("gaudi.intel.com", gaudis(topology, snapshot))),
        Gpus::Amd => ("gpu.amd.com", "amdgpu"),
        Gpus::Intel => ("gpu.intel.com", "unknown"),
        _ => ("gpu.nvidia.com", "gpu"),
    };
    let devices = topology.gpus().iter().enumerate().map(|(index, gpu)| {
        let function = snapshot.pci.iter().find(|function| function.address == gpu.address);
        let root = function.filter(|function| function.path.starts_with("devices/pci"));
        let mut attributes = json!({
            "type": { "string": kind },
            "resource.kubernetes.io/pciBusID": { "string": gpu.address.to_string() },
        });
        if let Some(root) = root.and_then(|function| function.root) {
            attributes["resource.kubernetes.io/pcieRoot"] = json!({ "string": root.to_string() });
        }
        if gpus != Gpus::Amd && gpus != Gpus::Intel {
            let synthetic = || format!("GPU-{}-{index}", gpu.address);
            let uuid = gpu.uuid.clone().unwrap_or_else(synthetic);
            attributes["uuid"] = json!({ "string": uuid });
        }
        let numa = gpu.numa.map(|numa| i64::from(numa.0));
        match (gpus, numa) {
            (Gpus::NvidiaWithNuma, Some(numa)) => {
                attributes["resource.kubernetes.io/numaNode"] = json!({ "int": numa });
            }
            // HBM nodes of GB200 have been seen to be 2, 10, 18 and 26. The worst case is that one
            // of them equals the number of a CPU's node.
            (Gpus::NvidiaWithOwnNuma, _) => {
                let own = i64::try_from(index % 2).unwrap();
                attributes["resource.kubernetes.io/numaNode"] = json!({ "int": own });
            }
            (Gpus::Amd, Some(numa)) => attributes["numaNode"] = json!({ "int": numa }),
            _ => {}
        }
        json!({ "name": format!("gpu-{index}"), "attributes": attributes })
    });
    Some((driver, devices.collect()))
}

/// Gaudi as Intel's driver publishes them (`cmd/kubelet-gaudi-plugin/node_state.go`).
fn gaudis(topology: &Topology, snapshot: &Snapshot) -> Value {
    let devices = topology.gpus().iter().enumerate().map(|(index, gpu)| {
        let function = snapshot.pci.iter().find(|function| function.address == gpu.address);
        let root = function.and_then(|function| function.root).unwrap().to_string();
        let name = gpu.address.to_string().replace([':', '.'], "-");
        json!({ "name": format!("{name}-0x{:04x}", gpu.device), "attributes": {
            "model": { "string": "Gaudi3" },
            "serial": { "string": format!("AN{index:08}") },
            "healthy": { "bool": true },
            "pciRoot": { "string": root.rsplit(':').next().unwrap() },
            "resource.kubernetes.io/pcieRoot": { "string": root },
        } })
    });
    devices.collect()
}

pub(crate) fn classes() -> Vec<DeviceClass> {
    let class = |name: &str, expression: &str| -> DeviceClass {
        serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": { "selectors": [{ "cel": { "expression": expression } }] },
        }))
        .unwrap()
    };
    vec![
        class(
            "gpu.nvidia.com",
            r#"device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu""#,
        ),
        class(
            "gpu.amd.com",
            r#"device.driver == "gpu.amd.com" && device.attributes["gpu.amd.com"].type == "amdgpu""#,
        ),
        class("gpu.intel.com", r#"device.driver == "gpu.intel.com""#),
        class("dranet.net", r#"device.driver == "dra.net""#),
    ]
}

/// A pod with a GPU limit and these annotations, which are given without their domain.
pub(crate) fn pod(resource: &str, gpus: u32, annotations: &[(&str, &str)]) -> Value {
    let annotations: serde_json::Map<String, Value> =
        annotations.iter().map(|(key, value)| (format!("dranet.io/{key}"), json!(value))).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "a", "namespace": "default", "annotations": annotations },
        "spec": { "containers": [{
            "name": "nccl",
            "resources": {
                "limits": { resource: gpus.to_string() },
                "requests": { resource: gpus.to_string() },
            },
            "securityContext": { "capabilities": { "add": ["IPC_LOCK"] } },
        }] },
    })
}

/// The class of parts of GPUs that NVIDIA's driver installs.
pub(crate) fn mig_class() -> DeviceClass {
    let expression =
        r#"device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "mig""#;
    serde_json::from_value(json!({ "metadata": { "name": "mig.nvidia.com" },
                      "spec": { "selectors": [{ "cel": { "expression": expression } }] } }))
    .unwrap()
}

/// The profiles of the parts of each GPU (NVIDIA's driver of August 2026: `type`, `profile`,
/// `parentUUID`, and the standard attributes of the GPU).
const PROFILES: [&str; 3] = ["1g.10gb", "1g.10gb", "1g.10gb+me"];

/// A node whose GPUs are all divided.
pub(crate) fn divided(machine: Machine) -> ClusterView {
    let mut view = ClusterView::default();
    for class in classes() {
        view.apply(class).unwrap();
    }
    view.apply(mig_class()).unwrap();
    let built = Built::new(machine, &[], &SharingArgs::default());
    built.put(&mut view, "node-0", 0);
    let slice = json!({ "metadata": { "name": "node-0-gpu.nvidia.com" }, "spec": {
        "driver": "gpu.nvidia.com", "nodeName": "node-0", "devices": parts(&built.topology()),
        "pool": { "name": "node-0", "generation": 2, "resourceSliceCount": 1 },
    } });
    view.apply(serde_json::from_value::<ResourceSlice>(slice).unwrap()).unwrap();
    view
}

fn parts(topology: &Topology) -> Value {
    let gpus = topology.gpus().iter().enumerate();
    let parts = gpus.flat_map(|(index, gpu)| {
        PROFILES.iter().enumerate().map(move |(number, profile)| {
            json!({ "name": format!("gpu-{index}-mig-{number}"), "attributes": {
                "type": { "string": "mig" },
                "profile": { "string": profile },
                "parentUUID": { "string": format!("GPU-{index}") },
                "uuid": { "string": format!("MIG-{index}-{number}") },
                "resource.kubernetes.io/pciBusID": { "string": gpu.address.to_string() },
                "resource.kubernetes.io/numaNode": { "int": gpu.numa.unwrap().0 },
            } })
        })
    });
    parts.collect()
}
