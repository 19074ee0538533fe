//! A small cluster with GPUs and NICs in cells.

#![allow(dead_code, reason = "the benchmark uses only a part")]

use cluster_model::names::{GATE_FABRIC, annotation, label};
use cluster_model::predict::{Prediction, budget};
use cluster_model::room::{Ask, Nodes, Room};
use cluster_model::view::{ClusterView, Index, ObjectKey};
use fabric_controller::Group;
use fabric_controller::group_pods::GroupPods;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::jiff::Timestamp;
use preemptor::{Budgets, Cluster, Decision, Pods, Preemption, Rules, decide};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use topology_graph::NodeTopology;

pub(crate) const NAMESPACE: &str = "team";
/// Seconds of Unix time at which is decided.
pub(crate) const NOW: i64 = 100_000;
pub(crate) const GPU: &str = "gpu.nvidia.com";
pub(crate) const NIC: &str = "dra.net";

pub(crate) fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: NAMESPACE.to_owned(), name: name.to_owned() }
}

/// What a pod asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    pub(crate) gpus: usize,
    pub(crate) nics: usize,
    /// Whether all must be in one cell.
    pub(crate) near: bool,
}

pub(crate) const fn near(gpus: usize, nics: usize) -> Devices {
    Devices { gpus, nics, near: true }
}

pub(crate) const fn any(gpus: usize, nics: usize) -> Devices {
    Devices { gpus, nics, near: false }
}

impl Devices {
    /// The name of the template for these.
    pub(crate) fn template(self) -> String {
        let Self { gpus, nics, near } = self;
        format!("{gpus}-{nics}-{near}")
    }

    pub(crate) fn spec(self) -> Value {
        let request = |name: &str, count: usize| {
            json!({"name": name, "exactly": {
                "deviceClassName": name, "allocationMode": "ExactCount", "count": count,
            }})
        };
        let all = [("gpu", self.gpus), ("nic", self.nics)];
        let requests = all.into_iter().filter(|(_, count)| *count > 0);
        let requests: Vec<_> = requests.map(|(name, count)| request(name, count)).collect();
        let constraints: Vec<_> =
            self.near.then(|| json!({"matchAttribute": "example.com/cell"})).into_iter().collect();
        json!({"devices": {"requests": requests, "constraints": constraints}})
    }
}

#[derive(Clone, Default)]
pub(crate) struct World {
    pub(crate) view: ClusterView,
    pub(crate) nodes: Nodes,
    pub(crate) pods: Pods,
    pub(crate) groups: GroupPods,
    pub(crate) budgets: Budgets,
    pub(crate) rules: Rules,
    pub(crate) begun: Vec<Preemption>,
    /// The sizes of groups by label.
    pub(crate) sizes: BTreeMap<String, usize>,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = Self::default();
        for (name, driver) in [("gpu", GPU), ("nic", NIC)] {
            let class: DeviceClass =
                from(json!({"metadata": {"name": name}, "spec": {"selectors": [
                    {"cel": {"expression": format!("device.driver == \"{driver}\"")}},
                ]}}));
            world.view.apply(class).unwrap();
        }
        world
    }

    /// Adds a node with this many cells of two GPUs and two NICs, each on a NUMA node.
    pub(crate) fn node(&mut self, name: &str, cells: usize, labels: &Value) {
        let mut all = json!({"kubernetes.io/hostname": name});
        all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        let node: Node = from(json!({
            "metadata": {"name": name, "labels": all},
            "status": {"allocatable": {"cpu": "16", "pods": "110", "nvidia.com/gpu": "4"}},
        }));
        self.nodes.apply(&node);
        self.view.apply(node).unwrap();
        self.view.apply(graph(name, cells)).unwrap();
        for (driver, prefix) in [(GPU, "gpu"), (NIC, "nic")] {
            let devices: Vec<_> = (0..2 * cells)
                .map(|number| {
                    json!({"name": format!("{prefix}{number}"), "attributes": {
                        "example.com/cell": {"int": number / 2},
                        "type": {"string": prefix},
                        "resource.kubernetes.io/pciBusID": {"string": address(prefix, number)},
                    }})
                })
                .collect();
            let slice: ResourceSlice = from(json!({
                "metadata": {"name": format!("{name}-{prefix}")},
                "spec": {
                    "driver": driver, "nodeName": name, "devices": devices,
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                },
            }));
            self.view.apply(slice).unwrap();
        }
    }

    /// The template for these devices.
    pub(crate) fn template(&mut self, devices: Devices) {
        let template: ResourceClaimTemplate = from(json!({
            "metadata": {"name": devices.template(), "namespace": NAMESPACE},
            "spec": {"spec": devices.spec()},
        }));
        self.view.apply(template).unwrap();
    }

    /// A pod that waits, with its claim. `more` is merged into the object.
    pub(crate) fn wait(&mut self, name: &str, priority: i32, devices: Devices, more: &Value) {
        self.template(devices);
        self.claim(name, devices, None);
        let pod = pod(name, priority, devices, more);
        self.apply(&pod);
    }

    /// A pod that runs on a node, if it fits there. Returns whether it does.
    pub(crate) fn run(
        &mut self,
        name: &str,
        (priority, node): (i32, &str),
        devices: Devices,
        more: &Value,
    ) -> bool {
        let mut pod = pod(name, priority, devices, more);
        self.template(devices);
        self.claim(name, devices, None);
        let work = budget(&self.view);
        let room = Room::new(&self.view, &self.nodes, &work);
        let attempt = room.attempt(&Ask::new(&pod), [node]).unwrap();
        let Some((_, Prediction::Fits(fit))) = attempt.each().next() else {
            Index::<ResourceClaim>::delete(&mut self.view, &key(name));
            return false;
        };
        let results = fit.allocations.iter().flat_map(|allocation| &allocation.results);
        let results: Vec<_> = results
            .map(|result| {
                let device = &result.device;
                json!({
                    "request": &*result.request, "driver": &*device.driver,
                    "pool": &*device.pool, "device": &*device.device,
                })
            })
            .collect();
        if devices == Devices::default() {
            Index::<ResourceClaim>::delete(&mut self.view, &key(name));
        } else {
            self.claim(name, devices, Some((name, results)));
        }
        pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
        self.apply(&pod);
        true
    }

    pub(crate) fn claim(
        &mut self,
        name: &str,
        devices: Devices,
        allocated: Option<(&str, Vec<Value>)>,
    ) {
        let status = allocated.map(|(pod, results)| {
            json!({
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
            })
        });
        let claim: ResourceClaim = from(json!({
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": name},
            "spec": devices.spec(), "status": status,
        }));
        self.view.apply(claim).unwrap();
    }

    pub(crate) fn apply(&mut self, pod: &Pod) {
        self.nodes.apply_pod(pod);
        self.pods.apply(pod);
        self.groups.apply(pod);
        self.view.apply(pod.clone()).unwrap();
    }

    /// A pod ends, and its claim goes.
    pub(crate) fn end(&mut self, name: &str) {
        self.nodes.delete_pod(&key(name));
        self.pods.delete(&key(name));
        self.groups.delete(&key(name));
        Index::<Pod>::delete(&mut self.view, &key(name));
        Index::<ResourceClaim>::delete(&mut self.view, &key(name));
    }

    /// A budget for the pods with the label `app`.
    pub(crate) fn budget(&mut self, app: &str, allowed: i32) {
        let budget: PodDisruptionBudget = from(json!({
            "metadata": {"name": app, "namespace": NAMESPACE},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {
                "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1,
                "expectedPods": 1,
            },
        }));
        self.budgets.apply(budget);
    }

    /// A gated pod of a group.
    pub(crate) fn gated(&mut self, name: &str, group: &str, priority: i32, devices: Devices) {
        let more = json!({
            "metadata": {"labels": {label::FABRIC_GROUP: group}, "annotations": {annotation::FABRIC: group}},
            "spec": {"schedulingGates": [{"name": GATE_FABRIC}]},
        });
        self.wait(name, priority, devices, &more);
    }

    pub(crate) fn known_groups(&self) -> Vec<Group> {
        let mut groups = self.groups.groups();
        for group in &mut groups {
            let pods = self.sizes.get(&group.key.label).copied();
            group.size = pods.map(fabric_controller::size::Size::all_at_once);
        }
        groups
    }

    pub(crate) fn decide(&self) -> Decision {
        let groups = self.known_groups();
        let cluster = Cluster {
            view: &self.view,
            nodes: &self.nodes,
            pods: &self.pods,
            groups: &groups,
            budgets: &self.budgets,
            begun: &self.begun,
        };
        decide(cluster, &self.rules, Timestamp::from_second(NOW).unwrap())
    }

    /// The decision in short: who gets which node, and who leaves; otherwise why nobody does.
    pub(crate) fn told(&self) -> String {
        let Decision { preemption, refusals } = self.decide();
        let refusals =
            refusals.iter().map(|it| format!("{}: {}", it.pod.key.name, it.why.reason()));
        let preemption = preemption.iter().map(told);
        refusals.chain(preemption).collect::<Vec<_>>().join("; ")
    }
}

pub(crate) fn told(preemption: &Preemption) -> String {
    let placed =
        preemption.placements.iter().map(|it| format!("{} on {}", it.pod.key.name, it.node));
    let victims = preemption.victims.iter().map(|victim| {
        let names: Vec<&str> = victim.pods.iter().map(|it| it.pod.key.name.as_str()).collect();
        names.join("+")
    });
    let placed: Vec<_> = placed.collect();
    let victims: Vec<_> = victims.collect();
    format!("{} for {}", placed.join(", "), victims.join(", "))
}

/// Each device has a root bus of its own.
fn bus(prefix: &str, number: usize) -> usize {
    number + if prefix == "gpu" { 0x10 } else { 0x80 }
}

fn address(prefix: &str, number: usize) -> String {
    format!("0000:{:02x}:00.0", bus(prefix, number))
}

/// The graph of a node with this many cells.
fn graph(name: &str, cells: usize) -> NodeTopology {
    let vertices = [("gpu", "030200"), ("nic", "020700")].into_iter().flat_map(|(role, class)| {
        (0..2 * cells).map(move |number| {
            let under = format!("pci0000:{:02x}", bus(role, number));
            let (at, rdma) = (address(role, number), role == "nic");
            json!({"at": at, "under": under, "role": role, "class": class, "numa": number / 2, "rdma": rdma})
        })
    });
    let numa_nodes = (0..cells)
        .map(|cell| json!({"node": cell, "cpus": format!("{}-{}", 8 * cell, 8 * cell + 7)}));
    let shape = json!({
        "hash": format!("{cells:016x}"),
        "vertices": vertices.collect::<Vec<_>>(), "numaNodes": numa_nodes.collect::<Vec<_>>(),
    });
    from(json!({"metadata": {"name": name}, "spec": {"shape": shape}}))
}

/// A pod whose claim is named like it.
fn pod(name: &str, priority: i32, devices: Devices, more: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1",
            "creationTimestamp": Timestamp::from_second(NOW - 60).unwrap().to_string(),
        },
        "spec": {
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        },
    });
    if devices != Devices::default() {
        pod["spec"]["resourceClaims"] = json!([
            {"name": "devices", "resourceClaimTemplateName": devices.template()},
        ]);
        pod["status"] = json!({
            "resourceClaimStatuses": [{"name": "devices", "resourceClaimName": name}],
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
            ],
        });
    }
    merge(&mut pod, more);
    from(pod)
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// A start this many seconds ago.
pub(crate) fn started(seconds: i64) -> Value {
    json!({"status": {"startTime": Timestamp::from_second(NOW - seconds).unwrap().to_string()}})
}
