//! Finds machines in a view that should be remembered: those that no entry describes yet.
//! [`crate::retention`] decides how long entries are kept.

use crate::layout::Layout;
use crate::names::attribute;
use crate::node_devices::NodeDevices;
use crate::plugin_machines::with_plugin_gpus;
use crate::remembered;
use crate::view::ClusterView;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use topology_graph::{PciAddress, ShapeHash};

/// Labels with which clouds and autoscalers name a node pool. Pods select the pool by them, and new
/// nodes of the pool have them too.
const POOL_LABELS: &[&str] = &[
    "node.kubernetes.io/instance-type",
    "kubernetes.azure.com/agentpool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "karpenter.sh/nodepool",
    "oci.oraclecloud.com/node-pool-id",
];

/// The present machines by key: for each layout, GPU driver and pool with GPUs and NICs, the first
/// node by name. A machine that lost devices is not remembered beside a complete one of its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// The keys of all present machines.
    pub keys: BTreeSet<String>,
    /// The nodes to remember now: those without an entry, or whose entry describes a machine that a
    /// plan could distinguish from them.
    pub unremembered: BTreeMap<String, String>,
}

/// Finds the present machines, and those to remember now.
pub fn present(view: &ClusterView) -> Present {
    let mut nodes: Vec<&str> = view.present_nodes().collect();
    nodes.sort_unstable();
    let mut layouts: BTreeMap<ShapeHash, Arc<Layout>> = BTreeMap::new();
    let mut first: BTreeMap<String, PoolMachine<'_>> = BTreeMap::new();
    for name in nodes {
        let Some(devices) = with_plugin_gpus(view, name) else { continue };
        if devices.gpus.is_empty() || devices.nics.is_empty() {
            continue;
        }
        let shape = devices.topology.shape();
        let layout =
            layouts.entry(shape).or_insert_with(|| Arc::new(Layout::new(devices.topology)));
        let pool = pool(view, &devices);
        first.entry(key(layout, &pool)).or_insert_with(|| PoolMachine {
            layout: layout.clone(),
            pool,
            devices,
        });
    }
    let complete = complete(first);
    let keys = complete.keys().cloned().collect();
    let unknown = complete.into_iter().filter(|(key, devices)| {
        let known = remembered::name(key);
        let known = with_plugin_gpus(view, &known).map(|known| appearance(&known));
        known != Some(appearance(devices))
    });
    let unremembered = unknown.map(|(key, devices)| (key, devices.node.to_owned())).collect();
    Present { keys, unremembered }
}

/// A kind of machine in a pool, with its first node.
struct PoolMachine<'a> {
    layout: Arc<Layout>,
    pool: Vec<String>,
    devices: NodeDevices<'a>,
}

impl PoolMachine<'_> {
    fn size(&self) -> usize {
        self.devices.gpus.len() + self.devices.nics.len()
    }
}

/// The machines without those that are another one of their pool without lost devices.
fn complete(kinds: BTreeMap<String, PoolMachine<'_>>) -> BTreeMap<String, NodeDevices<'_>> {
    let kept = kinds.iter().filter(|(_, kind)| {
        !kinds.values().any(|other| {
            kind.pool == other.pool
                && kind.size() < other.size()
                && kind.layout.is_condition_of(&other.layout)
        })
    });
    let kept: BTreeSet<String> = kept.map(|(key, _)| key.clone()).collect();
    let kinds = kinds.into_iter().filter(|(key, _)| kept.contains(key));
    kinds.map(|(key, kind)| (key, kind.devices)).collect()
}

/// What defines the pool of a node, and the drivers of its GPUs.
fn pool(view: &ClusterView, devices: &NodeDevices<'_>) -> Vec<String> {
    let drivers: BTreeSet<&str> = devices.gpus.values().map(|gpu| &*gpu.id().driver).collect();
    let node = view.inventory().node(devices.node);
    let drivers = drivers.into_iter().map(str::to_owned);
    drivers
        .chain(POOL_LABELS.iter().map(|label| {
            node.and_then(|node| node.labels.get(*label)).map_or(String::new(), ToString::to_string)
        }))
        .collect()
}

/// The hash of everything that defines a kind of machine and a pool.
fn key(layout: &Layout, pool: &[String]) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{layout:?}"));
    for part in pool {
        hash.update([0]);
        hash.update(part);
    }
    let digest = hash.finalize();
    let digits = digest.iter().take(8).fold(0, |sum: u64, byte| (sum << 8) | u64::from(*byte));
    format!("{digits:016x}")
}

/// What a plan can see of a machine: which devices have which attributes, and the values that tie
/// devices together. Names and addresses of single devices differ between nodes and are not
/// included.
fn appearance(devices: &NodeDevices<'_>) -> Vec<(PciAddress, Vec<String>)> {
    let tying = [attribute::NUMA_NODE, attribute::PCIE_ROOT];
    let all = devices.gpus.iter().chain(&devices.nics);
    all.map(|(address, device)| {
        let names = device.attributes().map(|(name, _)| name.to_string());
        let values = tying.iter().map(|name| format!("{:?}", device.attribute(name)));
        let is_shared = device.allows_multiple_allocations();
        let shared = device.capacity().iter().filter(|_| is_shared);
        let shared = shared.map(|(name, capacity)| format!("{name} {capacity:?}"));
        (*address, names.chain(values).chain(shared).collect())
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remembered::Remembered;
    use crate::snapshot;
    use crate::view::{Index, ObjectKey};
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use k8s_openapi::api::resource::v1::ResourceSlice;
    use serde::de::DeserializeOwned;
    use std::path::Path;
    use topology_graph::NodeTopology;

    const EXAMPLE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/examples/aks-gb300/cluster.yaml");

    fn unremembered(view: &ClusterView) -> BTreeMap<String, String> {
        present(view).unremembered
    }

    fn view() -> ClusterView {
        snapshot::load(Path::new(EXAMPLE)).unwrap().0
    }

    fn all<K: DeserializeOwned>(kind: &str) -> Vec<K> {
        let objects = snapshot::objects(Path::new(EXAMPLE)).unwrap().into_iter();
        let of_kind = objects.filter(|object| object["kind"] == kind);
        of_kind.map(|object| serde_json::from_value(object).unwrap()).collect()
    }

    fn machine() -> Remembered {
        let node = all("Node").remove(0);
        Remembered::new(node, all("ResourceSlice"), all("NodeTopology").remove(0))
    }

    fn map(key: &str, bytes: Vec<u8>) -> ConfigMap {
        let entries = BTreeMap::from([(key.to_owned(), ByteString(bytes))]);
        ConfigMap { binary_data: Some(entries), ..ConfigMap::default() }
    }

    fn counts(view: &ClusterView, node: &str) -> Option<(usize, usize)> {
        NodeDevices::new(view, node).map(|devices| (devices.gpus.len(), devices.nics.len()))
    }

    #[test]
    fn remembered_machines_round_trip() {
        let machine = machine();
        assert_eq!(Remembered::decode(&machine.encode().unwrap()).unwrap(), machine);
        let labels = machine.node.metadata.labels.as_ref().unwrap();
        assert!(!labels.contains_key("kubernetes.io/hostname"));
        assert!(machine.encode().unwrap().len() < 4096, "hundreds fit into a ConfigMap of 1 MiB");
    }

    #[test]
    fn a_remembered_machine_outlives_its_nodes() {
        let mut view = view();
        let new: Vec<_> = unremembered(&view).into_keys().collect();
        let [key] = new.as_slice() else { panic!("{new:?}") };
        let name = remembered::name(key);
        view.apply(map(key, machine().encode().unwrap())).unwrap();
        assert!(unremembered(&view).is_empty(), "it is remembered now");
        for node in all::<Node>("Node") {
            Index::<Node>::delete(&mut view, &ObjectKey::new(&node.metadata));
        }
        for slice in all::<ResourceSlice>("ResourceSlice") {
            Index::<ResourceSlice>::delete(&mut view, &ObjectKey::new(&slice.metadata));
        }
        for graph in all::<NodeTopology>("NodeTopology") {
            Index::<NodeTopology>::delete(&mut view, &ObjectKey::new(&graph.metadata));
        }
        assert_eq!(counts(&view, &name), Some((4, 4)));
        Index::<ConfigMap>::delete(&mut view, &ObjectKey::cluster_wide("any"));
        assert_eq!(counts(&view, &name), None);
        assert_eq!(view.inventory().slices().count(), 0);
    }

    /// No DRA driver publishes its GPUs.
    #[test]
    fn a_machine_with_a_device_plugin_is_remembered() {
        let resource = "nvidia.com/gpu";
        let mut node: Node = all("Node").remove(0);
        let amounts = BTreeMap::from([(resource, "4"), ("cpu", "64")]);
        let status = serde_json::json!({ "allocatable": amounts, "capacity": amounts });
        node.status = serde_json::from_value(status).unwrap();
        let mut slices: Vec<ResourceSlice> = all("ResourceSlice");
        slices.retain(|slice| slice.spec.driver == crate::names::DRIVER);
        let graph: NodeTopology = all("NodeTopology").remove(0);
        let mut view = ClusterView::default();
        view.apply(node.clone()).unwrap();
        view.apply(graph.clone()).unwrap();
        slices.iter().cloned().for_each(|slice| view.apply(slice).unwrap());
        let new: Vec<_> = unremembered(&view).into_keys().collect();
        let [key] = new.as_slice() else { panic!("{new:?}") };

        let machine = Remembered::new(node.clone(), slices, graph);
        view.apply(map(key, machine.encode().unwrap())).unwrap();
        assert!(unremembered(&view).is_empty(), "it is remembered now");
        Index::<Node>::delete(&mut view, &ObjectKey::new(&node.metadata));
        let name = remembered::name(key);
        assert_eq!(view.plugin_units(&name, resource), Some(4));
        assert_eq!(view.nodes_with_plugin(resource).count(), 0, "no node has it now");
        let devices = with_plugin_gpus(&view, &name).unwrap();
        assert_eq!((devices.gpus.len(), devices.nics.len()), (4, 4));
    }

    #[test]
    fn a_broken_entry_is_reported_and_others_are_kept() {
        let mut view = view();
        let mut both = map("good", machine().encode().unwrap());
        both.binary_data.as_mut().unwrap().insert("bad".into(), ByteString(b"text".to_vec()));
        let error = view.apply(both).unwrap_err();
        assert!(error.to_string().contains("`bad`"), "{error}");
        assert_eq!(counts(&view, &remembered::name("good")), Some((4, 4)));
    }

    #[test]
    fn a_driver_that_publishes_more_makes_the_machine_new() {
        let mut view = view();
        let key = unremembered(&view).into_keys().next().unwrap();
        let mut old = machine();
        for device in old.slices.iter_mut().flat_map(|it| it.spec.devices.iter_mut().flatten()) {
            let attributes = device.attributes.as_mut().unwrap();
            attributes.remove(attribute::NUMA_NODE);
        }
        view.apply(map(&key, old.encode().unwrap())).unwrap();
        assert_eq!(unremembered(&view).into_keys().collect::<Vec<_>>(), [key]);
    }
}
