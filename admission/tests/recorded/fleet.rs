//! Random fleets: machines of every kind, with what drivers of several versions publish of them.

use crate::cluster::*;
use crate::random::Random;
use cluster_model::compute_domain::ComputeDomain;
use cluster_model::names::attribute;
use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index};
use dra_allocator::{FeatureGates, MinorVersion, Settings};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Node, ResourceQuota};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use publication::sharing::{Sharing, SharingArgs};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock, Mutex};
use topology_graph::{Gpu, NodeTopology};

const fn fixture(fixture: &'static str) -> Machine {
    Machine { fixture, size: None, gpus: Gpus::NvidiaWithNuma }
}

const MACHINES: [Machine; 28] = [
    GB300,
    GB200,
    H100,
    A100,
    MI300X,
    P4D,
    HGX,
    DGX_H100,
    DGX_H100_VFS,
    DGX_H100_ROCE,
    DGX_B200,
    NVL72,
    LENOVO,
    A3,
    H200_VM,
    fixture("aws-p5"),
    fixture("broken"),
    fixture("epyc-nps4"),
    fixture("gb300-data-direct"),
    fixture("gcp-a4"),
    fixture("gh200-quad"),
    fixture("h200-vm-8gpu"),
    fixture("intel-vmd"),
    fixture("l40s-4gpu"),
    fixture("numa-unknown"),
    fixture("pxb-tie"),
    fixture("x86-pcie-l40s"),
    fixture("x86-snc2"),
];

/// What is special about the devices of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Special {
    Nothing,
    LostGpu,
    LostNic,
    LostBoth,
    ByBandwidth,
    ByNumber,
    /// GPUs are all divided.
    Parts,
    /// The GPU driver's own name of the bus ID.
    OwnBusId,
    NoBusId,
    /// A bus ID that a file system and a cloud's adapter have: its domain has five digits.
    LargeDomain,
    /// NICs without an address, as of another driver.
    NoNicBusId,
    LargeNicDomain,
    /// Claims can share GPUs.
    SharedGpus,
    /// NUMA nodes in lists.
    Lists,
    /// The driver publishes no roles.
    NoRoles,
    /// NICs as upstream publishes them, beside the graph.
    Upstream,
}

use Special::*;

/// Half of the nodes are like the first one.
const SPECIAL: [Special; 26] = [
    Nothing,
    Nothing,
    Nothing,
    Nothing,
    Nothing,
    Nothing,
    Nothing,
    LostGpu,
    LostNic,
    LostNic,
    LostBoth,
    ByBandwidth,
    ByBandwidth,
    ByNumber,
    Parts,
    OwnBusId,
    NoBusId,
    LargeDomain,
    NoNicBusId,
    LargeNicDomain,
    SharedGpus,
    Lists,
    NoRoles,
    Nothing,
    Upstream,
    Upstream,
];

const BUS_ID: &str = "resource.kubernetes.io/pciBusID";
const NUMA: &str = "resource.kubernetes.io/numaNode";

/// The name, the driver of the GPUs, and what is special.
type Key = (&'static str, u8, Special);

/// Machines that were read before.
static BUILT: LazyLock<Mutex<BTreeMap<Key, Arc<Built>>>> = LazyLock::new(Mutex::default);

fn built(machine: Machine, special: Special) -> Arc<Built> {
    let key = (machine.fixture, machine.gpus as u8, special);
    if let Some(built) = BUILT.lock().unwrap().get(&key) {
        return Arc::clone(built);
    }
    let built = Arc::new(build(machine, special));
    BUILT.lock().unwrap().insert(key, Arc::clone(&built));
    built
}

fn build(machine: Machine, special: Special) -> Built {
    let mut sharing = SharingArgs::default();
    match special {
        ByBandwidth => sharing.sharing = Sharing::Bandwidth,
        ByNumber => {
            sharing.sharing = Sharing::Count;
            sharing.rdma_hca_max = NonZeroU32::new(4);
        }
        _ => {}
    }
    let built = Built::new(machine, &[], &sharing);
    let topology = built.topology();
    let gpus = topology.gpus().iter().map(|gpu| gpu.address);
    let nics = topology.nics().iter().map(|nic| nic.address);
    match special {
        LostGpu => Built::new(machine, &gpus.take(1).collect::<Vec<_>>(), &sharing),
        LostNic => Built::new(machine, &nics.take(1).collect::<Vec<_>>(), &sharing),
        LostBoth => {
            let lost: Vec<_> = gpus.skip(1).take(1).chain(nics.skip(1).take(2)).collect();
            Built::new(machine, &lost, &sharing)
        }
        Parts if topology.gpus().iter().all(|gpu: &Gpu| gpu.numa.is_some()) => built.with_parts(),
        OwnBusId => built.with_gpus(|gpu| {
            gpu["attributes"]["gpu.nvidia.com/pcieBusID"] = gpu["attributes"][BUS_ID].take();
            remove(gpu, BUS_ID);
        }),
        NoBusId => built.with_gpus(|gpu| remove(gpu, BUS_ID)),
        LargeDomain => built.with_gpus(large_domain),
        NoNicBusId => built.with_nics(|_, nic| remove(nic, BUS_ID)),
        Upstream => built.with_nics(|_, nic| {
            let attributes = nic["attributes"].as_object_mut().unwrap();
            attributes.retain(|name, _| name.starts_with("dra.net/") || name == BUS_ID);
        }),
        LargeNicDomain => built.with_nics(|_, nic| large_domain(nic)),
        SharedGpus => built.with_gpus(|gpu| {
            gpu["allowMultipleAllocations"] = true.into();
            gpu["capacity"] = json!({ "shares": { "value": "4", "requestPolicy": {
                "default": "1", "validRange": { "min": "1", "max": "4", "step": "1" },
            } } });
        }),
        Lists => built.with_gpus(|gpu| {
            if let Some(node) = gpu["attributes"][NUMA]["int"].as_i64() {
                gpu["attributes"][NUMA] = json!({ "ints": [node] });
            } else {
                remove(gpu, NUMA);
            }
        }),
        _ => built,
    }
}

fn remove(device: &mut Value, attribute: &str) {
    device["attributes"].as_object_mut().unwrap().remove(attribute);
}

fn large_domain(device: &mut Value) {
    if let Some(address) = device["attributes"][BUS_ID]["string"].as_str() {
        device["attributes"][BUS_ID] = json!({ "string": format!("1{address}") });
    }
}

/// A random fleet.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    nodes: Vec<(Machine, Special)>,
    remembered: Vec<(Machine, Special)>,
    is_beside_upstream: bool,
}

impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self
            .nodes
            .iter()
            .map(|node| (node, ""))
            .chain(self.remembered.iter().map(|node| (node, " (remembered)")));
        for ((machine, special), is) in all {
            writeln!(f, "{} {:?} {special:?}{is}", machine.fixture, machine.gpus)?;
        }
        Ok(())
    }
}

fn machine(random: &mut Random) -> Machine {
    use Gpus::{Amd, Intel, Nvidia, NvidiaWithNuma, NvidiaWithOwnNuma, Plugin, PluginLate};
    let machine = *random.pick(&MACHINES);
    let gpus = match machine.gpus {
        Amd => *random.pick(&[Amd, Amd, Amd, Plugin, PluginLate]),
        own => *random.pick(&[
            own,
            own,
            own,
            own,
            own,
            Nvidia,
            NvidiaWithNuma,
            NvidiaWithOwnNuma,
            Intel,
            Plugin,
            Plugin,
            PluginLate,
            PluginLate,
        ]),
    };
    machine.with(gpus)
}

impl Fleet {
    /// One type of machines, or several.
    pub(crate) fn new(random: &mut Random) -> Self {
        let types: Vec<_> = (0..*random.pick(&[1, 1, 1, 2, 3])).map(|_| machine(random)).collect();
        let first = *random.pick(&SPECIAL);
        let node = |random: &mut Random| {
            let special = if random.below(2) == 0 { first } else { *random.pick(&SPECIAL) };
            (*random.pick(&types), special)
        };
        let nodes = (0..=random.below(4)).map(|_| node(random)).collect();
        let remembered = (0..random.below(8).saturating_sub(5)).map(|_| node(random)).collect();
        if random.below(30) == 0 {
            let nodes = vec![(GB300, Upstream)];
            return Self { nodes, remembered: Vec::new(), is_beside_upstream: true };
        }
        Self { nodes, remembered, is_beside_upstream: false }
    }

    /// A machine of the fleet.
    pub(crate) fn machine(&self, random: &mut Random) -> Machine {
        random.pick(&self.nodes).0
    }

    /// True if GPUs of a node are divided.
    pub(crate) fn has_parts(&self) -> bool {
        self.nodes.iter().any(|(_, special)| *special == Parts)
    }

    /// The cluster, with other claims and settings.
    pub(crate) fn view(&self, random: &mut Random) -> ClusterView {
        let mut view = if self.is_beside_upstream { beside_upstream() } else { cluster(&[]) };
        view.apply(mig_class()).unwrap();
        for (index, (machine, special)) in self.nodes.iter().enumerate() {
            let name = format!("node-{index}");
            if self.is_beside_upstream {
                break;
            }
            if *special == NoRoles {
                add_without_roles(&mut view, &name, *machine);
            } else {
                let built = built(*machine, *special);
                let fabric = random.below(3);
                let on_fabric = |built: Built| {
                    built.with_nics(|_, nic| {
                        let name = format!("fabric-{fabric}");
                        nic["attributes"][attribute::FABRIC] = json!({ "string": name });
                    })
                };
                let own = if fabric < 2 { on_fabric((*built).clone()) } else { (*built).clone() };
                own.put(&mut view, &name, index);
            }
            if random.below(4) == 0 {
                add_cpus_and_nvmes(&mut view, &name);
            }
        }
        self.remember(&mut view);
        if random.below(2) == 0 {
            hold(&mut view, random);
        }
        set(&mut view, random);
        view
    }

    fn remember(&self, view: &mut ClusterView) {
        let entries = self.remembered.iter().enumerate().map(|(index, (machine, special))| {
            let entry = built(*machine, *special).remembered(100 + index).encode().unwrap();
            (format!("m{index}"), ByteString(entry))
        });
        let map = ConfigMap { binary_data: Some(entries.collect()), ..ConfigMap::default() };
        view.apply(map).unwrap();
    }
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A GB300 node as published live by upstream's driver, with a graph beside it: claims are pinned to cells.
fn beside_upstream() -> ClusterView {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut view = snapshot::load(format!("{root}/tests/fixtures/aks-gb300").as_ref()).unwrap().0;
    let node = view.inventory().slices().find_map(|slice| slice.node_name()).unwrap().to_string();
    view.apply(from::<Node>(json!({ "metadata": { "name": node } }))).unwrap();
    let example = format!("{root}/deploy/examples/aks-gb300/cluster.yaml");
    let objects = snapshot::objects(example.as_ref()).unwrap();
    let graph = objects.into_iter().find(|object| object["kind"] == "NodeTopology").unwrap();
    let mut graph: NodeTopology = from(graph);
    graph.metadata.name = Some(node);
    view.apply(graph).unwrap();
    view
}

/// CPUs and NVMe devices of two NUMA nodes, as their drivers publish them.
fn add_cpus_and_nvmes(view: &mut ClusterView, node: &str) {
    for driver in ["dra.cpu", "dra.nvme"] {
        let class = json!({ "metadata": { "name": driver }, "spec": { "selectors": [
            { "cel": { "expression": format!("device.driver == {driver:?}") } },
        ] } });
        view.apply(from::<DeviceClass>(class)).unwrap();
        let device = |index: i64| {
            let mut device = json!({
                "name": format!("d{index}"), "attributes": { NUMA: { "int": index / 4 } },
            });
            if driver == "dra.cpu" {
                device["allowMultipleAllocations"] = true.into();
                device["attributes"][NUMA] = json!({ "int": index });
                device["capacity"] = json!({ "dra.cpu/cpu": { "value": "64" } });
            }
            device
        };
        let number = if driver == "dra.cpu" { 2 } else { 8 };
        let slice = json!({ "metadata": { "name": format!("{node}-{driver}") }, "spec": {
            "driver": driver, "nodeName": node, "devices": (0..number).map(device).collect::<Vec<_>>(),
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
        } });
        view.apply(from::<ResourceSlice>(slice)).unwrap();
    }
}

/// Claims hold a third of all devices.
fn hold(view: &mut ClusterView, random: &mut Random) {
    let mut held = Vec::new();
    for slice in view.inventory().slices() {
        for device in &slice.devices {
            let id = device.id();
            held.push(json!({ "request": "r", "driver": *id.driver, "pool": *id.pool,
                              "device": *id.device }));
        }
    }
    held.sort_by_key(Value::to_string);
    held.retain(|_| random.below(3) == 0);
    for (index, result) in held.into_iter().enumerate() {
        let claim = json!({
            "metadata": { "name": format!("held-{index}"), "namespace": "other" }, "spec": {},
            "status": { "allocation": { "devices": { "results": [result] } } },
        });
        view.apply(from::<ResourceClaim>(claim)).unwrap();
    }
}

/// Settings of the cluster that few have, one at a time.
fn set(view: &mut ClusterView, random: &mut Random) {
    if random.below(2) == 0 {
        Index::<ComputeDomain>::served(view);
    }
    let mut gates = FeatureGates::defaults_of(MinorVersion::V1_37);
    match random.below(14) {
        0 => view.set_settings(Settings::defaults_of(MinorVersion::V1_36)),
        1 => {
            assert!(gates.set("DRAConsumableCapacity", false));
            view.set_settings(Settings::with_gates(MinorVersion::V1_37, gates));
        }
        2 => {
            assert!(gates.set("DRAListTypeAttributes", true));
            view.set_settings(Settings::with_gates(MinorVersion::V1_37, gates));
        }
        3 => Index::<PodGroup>::served(view),
        4 => {
            let key = *random.pick(&[
                "requests.nvidia.com/gpu",
                "count/resourceclaims.resource.k8s.io",
                "gpu.nvidia.com.deviceclass.resource.k8s.io/devices",
            ]);
            let quota = json!({
                "metadata": { "name": "team", "namespace": "default" },
                "spec": { "hard": { key: "2" } }, "status": { "used": { key: "0" } },
            });
            view.apply(from::<ResourceQuota>(quota)).unwrap();
        }
        _ => {}
    }
}
