//! A month of a cluster: nodes, pods, claims and what else a view has come and go, each with a name
//! that was never there before. The view and the room hold no more of them in the last days than in
//! the first, and nothing of a cluster that is empty.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use cluster_model::nic_pool::NicPool;
use cluster_model::room::Nodes;
use cluster_model::snapshot;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use k8s_openapi::api::core::v1::{
    LimitRange, Namespace, Node, PersistentVolumeClaim, Pod, ResourceQuota, Service,
};
use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use peak_alloc::PeakAlloc;
use proptest::test_runner::Config as ProptestConfig;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::Path;
use topology_graph::NodeTopology;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// A machine with four GPUs and four NICs.
const MACHINE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/examples/aks-gb300/cluster.yaml");

const HOURS: usize = 30 * 24;
/// The nodes of the cluster, and how many are replaced in an hour.
const NODES: usize = 12;
const REPLACED: usize = 5;
/// Pods, each with a claim, that come in an hour, and for how many hours they run.
const PODS: usize = 12;
const PODS_RUN: usize = 6;
/// Hours over which what is held is compared. Values that are not used any more are tidied up from time
/// to time, so that it goes up and down.
const WINDOW: usize = 8 * 24;
/// What may be left of an empty cluster: values that are tidied up when others come.
const LEFT: usize = 2 << 20;

/// The number of months; `PROPTEST_CASES` gives one for each thousand.
fn months() -> usize {
    (ProptestConfig::default().cases as usize / 1000).clamp(1, 24)
}

fn object<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// The objects of a kind that the machine's file has.
fn published<K: DeserializeOwned>(kind: &str) -> Vec<K> {
    let objects = snapshot::objects(Path::new(MACHINE)).unwrap().into_iter();
    objects.filter(|object| object["kind"] == kind).map(object).collect()
}

/// The objects of the machine.
struct Machine {
    node: Node,
    slices: Vec<ResourceSlice>,
    topology: NodeTopology,
}

impl Machine {
    fn read() -> Self {
        Self {
            node: published("Node").remove(0),
            slices: published("ResourceSlice"),
            topology: published("NodeTopology").remove(0),
        }
    }

    /// A machine of the same kind with other identities.
    fn named(&self, name: &str) -> Self {
        let (mut node, mut slices) = (self.node.clone(), self.slices.clone());
        let mut topology = self.topology.clone();
        node.metadata.name = Some(name.to_owned());
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
        topology.metadata.name = Some(name.to_owned());
        for identity in &mut topology.spec.identities {
            identity.uuid = identity.uuid.as_ref().map(|uuid| format!("{uuid}-{name}"));
        }
        for (index, slice) in slices.iter_mut().enumerate() {
            slice.metadata.name = Some(format!("{name}-{index}"));
            slice.spec.node_name = Some(name.to_owned());
            name.clone_into(&mut slice.spec.pool.name);
            for device in slice.spec.devices.iter_mut().flatten() {
                let uuid =
                    device.attributes.iter_mut().flatten().find(|(key, _)| key.ends_with("uuid"));
                if let Some((_, uuid)) = uuid {
                    uuid.string = Some(format!("{}-{name}", device.name));
                }
            }
        }
        Self { node, slices, topology }
    }
}

/// The indices of a program, and what they have.
struct Cluster {
    machine: Machine,
    view: ClusterView,
    room: Nodes,
    nodes: VecDeque<Machine>,
    pods: VecDeque<usize>,
    made: usize,
}

impl Cluster {
    fn new() -> Self {
        let machine = Machine::read();
        let mut view = ClusterView::default();
        for class in published::<DeviceClass>("DeviceClass") {
            view.apply(class).unwrap();
        }
        let room = Nodes::default();
        Self { machine, view, room, nodes: VecDeque::new(), pods: VecDeque::new(), made: 0 }
    }

    /// An hour in which nodes are replaced, and pods come and go.
    fn hour(&mut self) {
        let gone = (self.nodes.len() + REPLACED).saturating_sub(NODES);
        (0..gone).for_each(|_| self.remove_node());
        (0..NODES.min(REPLACED.max(NODES - self.nodes.len()))).for_each(|_| self.add_node());
        for _ in 0..PODS {
            self.add_pod();
        }
        while self.pods.len() > PODS * PODS_RUN {
            self.remove_pod();
        }
    }

    fn empty(&mut self) {
        while !self.pods.is_empty() {
            self.remove_pod();
        }
        while !self.nodes.is_empty() {
            self.remove_node();
        }
    }

    fn add_node(&mut self) {
        self.made += 1;
        let machine = self.machine.named(&format!("gpu-pool-vmss{:06}", self.made));
        self.room.apply(&machine.node);
        self.view.apply(machine.node.clone()).unwrap();
        self.view.apply(machine.topology.clone()).unwrap();
        for slice in &machine.slices {
            self.view.apply(slice.clone()).unwrap();
        }
        self.nodes.push_back(machine);
    }

    /// As when a node is scaled down: the kubelet's object first, then what its owner reference has.
    fn remove_node(&mut self) {
        let Some(machine) = self.nodes.pop_front() else { return };
        let key = ObjectKey::new(&machine.node.metadata);
        self.room.delete(&key.name);
        Index::<Node>::delete(&mut self.view, &key);
        Index::<NodeTopology>::delete(&mut self.view, &key);
        for slice in &machine.slices {
            Index::<ResourceSlice>::delete(&mut self.view, &ObjectKey::new(&slice.metadata));
        }
    }

    /// A pod with a claim on the newest node, in a namespace of its own with all that namespaces have.
    fn add_pod(&mut self) {
        self.made += 1;
        let number = self.made;
        self.pods.push_back(number);
        let node = self.nodes[number % self.nodes.len()].node.metadata.name.clone().unwrap();
        let (name, namespace) = (format!("train-{number}-x7k2p"), format!("ci-{number}"));
        let metadata = json!({"name": name, "namespace": namespace, "uid": format!("{number:032}"),
            "labels": {"app": "train", "job": name}});
        let selector = json!({"matchLabels": {"job": name}});
        let pod: Pod = object(json!({"metadata": metadata,
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {
                "requests": {"cpu": format!("{}m", 100 + number % 8)}, "limits": {"nvidia.com/gpu": "1"}}}],
                "resourceClaims": [{"name": "nics", "resourceClaimName": name}],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}]}}},
            "status": {"phase": "Running"}}));
        self.room.apply_pod(&pod);
        self.view.apply(pod).unwrap();
        let expression = format!("device.driver == 'gpu.nvidia.com' && {number} > 0");
        let requests = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com",
            "selectors": [{"cel": {"expression": expression}}]}}]);
        let share = json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": "gpu-0",
            "shareID": format!("{number:032}"), "consumedCapacity": {"memory": number.to_string()}});
        let view = &mut self.view;
        view.apply(object::<ResourceClaim>(json!({"metadata": metadata,
            "spec": {"devices": {"requests": requests}},
            "status": {"allocation": {"devices": {"results": [share]}}}})))
            .unwrap();
        view.apply(object::<ResourceClaimTemplate>(json!({"metadata": metadata,
            "spec": {"spec": {"devices": {"requests": requests}}}})))
            .unwrap();
        view.apply(object::<Namespace>(
            json!({"metadata": {"name": namespace, "labels": {"a": name}}}),
        ))
        .unwrap();
        view.apply(object::<ResourceQuota>(
            json!({"metadata": metadata, "spec": {"hard": {"pods": "9"}}}),
        ))
        .unwrap();
        view.apply(object::<LimitRange>(json!({"metadata": metadata,
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "9"}}]}})))
            .unwrap();
        view.apply(object::<Service>(
            json!({"metadata": metadata, "spec": {"selector": {"job": name}}}),
        ))
        .unwrap();
        view.apply(object::<PersistentVolumeClaim>(
            json!({"metadata": metadata, "spec": {"volumeName": name}}),
        ))
        .unwrap();
        view.apply(object::<PodGroup>(json!({"metadata": metadata,
            "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}})))
            .unwrap();
        view.apply(object::<NicPool>(json!({"metadata": {"name": name},
            "spec": {"ranges": [{"cidr": "10.0.0.0/29"}]}})))
            .unwrap();
        view.apply(object::<DeviceTaintRule>(json!({"metadata": {"name": name}, "spec": {
            "deviceSelector": {"pool": node, "device": "gpu-1"},
            "taint": {"key": "kept", "value": name, "effect": "NoSchedule"}}})))
            .unwrap();
    }

    fn remove_pod(&mut self) {
        let Some(number) = self.pods.pop_front() else { return };
        let (name, namespace) = (format!("train-{number}-x7k2p"), format!("ci-{number}"));
        let (own, alone) = (
            ObjectKey { namespace: namespace.clone(), name: name.clone() },
            ObjectKey::cluster_wide(&name),
        );
        let view = &mut self.view;
        self.room.delete_pod(&own);
        Index::<Pod>::delete(view, &own);
        Index::<ResourceClaim>::delete(view, &own);
        Index::<ResourceClaimTemplate>::delete(view, &own);
        Index::<ResourceQuota>::delete(view, &own);
        Index::<LimitRange>::delete(view, &own);
        Index::<Service>::delete(view, &own);
        Index::<PersistentVolumeClaim>::delete(view, &own);
        Index::<PodGroup>::delete(view, &own);
        Index::<NicPool>::delete(view, &alone);
        Index::<DeviceTaintRule>::delete(view, &alone);
        Index::<Namespace>::delete(view, &ObjectKey::cluster_wide(&namespace));
    }
}

#[test]
fn a_month_of_new_names_leaves_nothing_behind() {
    let mut cluster = Cluster::new();
    let begin = HEAP.current_usage();
    let (hours, mut held) = (HOURS * months(), Vec::new());
    for hour in 0..hours {
        cluster.hour();
        held.push(HEAP.current_usage() - begin);
        if hour == WINDOW {
            cluster.empty();
        }
    }
    let (first, last) = (mean(&held[WINDOW..2 * WINDOW]), mean(&held[hours - WINDOW..]));
    cluster.empty();
    let left = HEAP.current_usage().saturating_sub(begin);
    println!("{} names; {} KiB at first, {} KiB at last", cluster.made, first >> 10, last >> 10);
    println!("{} KiB are left of an empty cluster", left >> 10);
    assert!(last <= first + first / 25, "{first} bytes in the first days, later {last}");
    assert!(left <= LEFT, "{left} bytes are left of an empty cluster");
}

fn mean(held: &[usize]) -> usize {
    held.iter().sum::<usize>() / held.len()
}
