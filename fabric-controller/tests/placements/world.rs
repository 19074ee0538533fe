//! A small cluster in which the test creates, binds and deletes pods as the API server
//! and the scheduler would.

#![allow(dead_code, reason = "the benchmark uses only a part")]

use cluster_model::fabric_level::{FabricLevel, LevelDomain};
use cluster_model::names::{GATE_FABRIC, annotation, job_label, label};
use cluster_model::predict;
use cluster_model::room::Nodes;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use dra_allocator::{Claim, Limits, Outcome, allocate};
use fabric_controller::group::GroupKey;
use fabric_controller::group_pods::GroupPods;
use fabric_controller::size::Size;
use fabric_controller::{Action, ClusterCapacity, Decision, Group, PlacementPolicy, decide};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Devices per node. Template `d1` requests one, `d4` all of them.
pub(crate) const DEVICES: usize = 4;
const NAMESPACE: &str = "n";

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) view: ClusterView,
    pub(crate) nodes: Nodes,
    pub(crate) pods: BTreeMap<String, Pod>,
    pub(crate) sizes: BTreeMap<String, Size>,
    pub(crate) rules: PlacementPolicy,
    /// Groups on which the last round gave up.
    pub(crate) expensive: BTreeSet<String>,
    /// Seconds since the beginning.
    pub(crate) now: i64,
}

impl World {
    /// A cluster with this many fabrics `f0`, … of this many nodes each.
    pub(crate) fn new(fabrics: usize, nodes: usize) -> Self {
        let mut view = ClusterView::default();
        let class: DeviceClass = from(json!({"metadata": {"name": "nic"}, "spec": {"selectors": [
            {"cel": {"expression": "device.driver == \"dra.net\""}},
        ]}}));
        view.apply(class).unwrap();
        for count in [1, 2, DEVICES] {
            let template: ResourceClaimTemplate = from(json!({
                "metadata": {"name": format!("d{count}"), "namespace": NAMESPACE},
                "spec": {"spec": {"devices": {"requests": [
                    {"name": "nics", "exactly": {"deviceClassName": "nic", "count": count}},
                ]}}},
            }));
            view.apply(template).unwrap();
        }
        let mut world = Self {
            view,
            nodes: Nodes::default(),
            pods: BTreeMap::new(),
            sizes: BTreeMap::new(),
            rules: PlacementPolicy::default(),
            expensive: BTreeSet::new(),
            now: 0,
        };
        for fabric in 0..fabrics {
            for node in 0..nodes {
                world.add_node(&format!("f{fabric}-n{node}"), &format!("f{fabric}"), &json!({}));
            }
        }
        world
    }

    /// Adds nodes of a domain of a fabric.
    pub(crate) fn add_domain(
        &mut self,
        fabric: &str,
        level: FabricLevel,
        name: &str,
        nodes: usize,
    ) {
        for node in 0..nodes {
            let labels = json!({level.label(): name});
            self.add_labelled(&format!("{fabric}-{name}-{node}"), fabric, &labels, &json!({}));
        }
    }

    /// Adds nodes of an NVLink domain in a block of a fabric.
    pub(crate) fn add_rack(&mut self, fabric: &str, block: &str, rack: &str, nodes: usize) {
        for node in 0..nodes {
            let labels =
                json!({FabricLevel::Nvlink.label(): rack, FabricLevel::Block.label(): block});
            self.add_labelled(&format!("{fabric}-{rack}-{node}"), fabric, &labels, &json!({}));
        }
    }

    pub(crate) fn add_node(&mut self, name: &str, fabric: &str, spec: &Value) {
        self.add_labelled(name, fabric, &json!({}), spec);
    }

    fn add_labelled(&mut self, name: &str, fabric: &str, labels: &Value, spec: &Value) {
        let mut all = json!({label::NODE_FABRIC: fabric, "kubernetes.io/hostname": name});
        all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
        let node: Node = from(json!({
            "metadata": {"name": name, "labels": all},
            "spec": spec,
            "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
        }));
        self.nodes.apply(&node);
        self.view.apply(node).unwrap();
        let devices: Vec<_> = (0..DEVICES).map(|i| json!({"name": format!("nic-{i}")})).collect();
        let slice: ResourceSlice = from(json!({
            "metadata": {"name": name},
            "spec": {
                "driver": "dra.net", "nodeName": name, "devices": devices,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            },
        }));
        self.view.apply(slice).unwrap();
    }

    /// Creates the pods of a gang of known size.
    pub(crate) fn gang(&mut self, name: &str, pods: usize, template: &str) {
        self.sizes.insert(name.to_owned(), Size { pods, at_once: true });
        for index in 0..pods {
            self.pod(&format!("{name}-{index}"), name, template, &json!({}));
        }
    }

    /// Creates one gated pod of a gang.
    pub(crate) fn pod(&mut self, name: &str, gang: &str, template: &str, spec: &Value) {
        let mut pod = json!({
            "metadata": {
                "name": name, "namespace": NAMESPACE, "uid": format!("{name}@{}", self.now),
                "resourceVersion": "1",
                "creationTimestamp": Timestamp::from_second(self.now).unwrap().to_string(),
                "labels": {label::FABRIC_GROUP: gang},
                "annotations": {annotation::FABRIC: "same"},
                "ownerReferences": [
                    {"apiVersion": "example.com/v1", "kind": "X", "name": gang, "uid": gang, "controller": true},
                ],
            },
            "spec": {
                "schedulingGates": [{"name": GATE_FABRIC}],
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "resourceClaims": [{"name": "d", "resourceClaimTemplateName": template}],
            },
        });
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.pods.insert(name.to_owned(), from(pod));
    }

    /// The groups, and the nodes with their pods.
    pub(crate) fn groups(&self) -> (Nodes, Vec<Group>) {
        let mut nodes = self.nodes.clone();
        let mut pods = GroupPods::default();
        for pod in self.pods.values() {
            nodes.apply_pod(pod);
            pods.apply(pod);
        }
        let mut groups = pods.groups();
        for group in &mut groups {
            group.size = self.sizes.get(&group.key.label).copied();
            group.is_expensive = self.expensive.contains(&group.key.label);
        }
        (nodes, groups)
    }

    /// One round of decisions.
    pub(crate) fn decide(&self) -> Vec<Decision> {
        self.decide_at(self.now)
    }

    /// One round of decisions at another time.
    pub(crate) fn decide_at(&self, now: i64) -> Vec<Decision> {
        let (nodes, groups) = self.groups();
        let now = Timestamp::from_second(now).unwrap();
        let budget = predict::budget(&self.view);
        let cluster = ClusterCapacity::new(&self.view, &nodes, &budget);
        decide(&groups, cluster, &self.rules, now)
    }

    /// The decision on each gang, abbreviated.
    pub(crate) fn told(&self) -> BTreeMap<String, String> {
        let text = |action: &Action| match action {
            Action::Place { fabric, pods, domains, rest } => {
                let rest = rest.as_ref().map(|why| format!(", rest {}", why.reason()));
                let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
                for domain in domains.values().flatten() {
                    *shares.entry(&domain.name).or_default() += 1;
                }
                let shares = shares.iter().map(|(name, pods)| format!(" {pods} in {name}"));
                let shares: String = shares.collect();
                format!("{} to {fabric}{shares}{}", pods.len(), rest.unwrap_or_default())
            }
            Action::Wait(why) => format!("{}: {why}", why.reason()),
            Action::Evict { pods } => format!("moves {}", pods.len()),
        };
        let one = |decision: &Decision| {
            let GroupKey { label, .. } = &decision.group;
            let warning = decision.warning.map(|it| format!(" ({it:?})")).unwrap_or_default();
            (label.clone(), format!("{}{warning}", text(&decision.action)))
        };
        self.decide().iter().map(one).collect()
    }

    /// Carries out every placement: removes gates, binds nothing.
    pub(crate) fn release(&mut self) {
        for decision in self.decide() {
            if let Action::Place { fabric, pods, domains, .. } = &decision.action {
                for pod in pods {
                    let domains = domains.get(pod).map(Vec::as_slice);
                    self.release_to(pod, fabric, domains.unwrap_or_default());
                }
            }
        }
    }

    pub(crate) fn release_one(&mut self, pod: &str, fabric: &str) {
        self.release_to(pod, fabric, &[]);
    }

    /// Removes the gate of a pod.
    fn release_to(&mut self, pod: &str, fabric: &str, domains: &[LevelDomain]) {
        let spec = self.pods.get_mut(pod).unwrap().spec.as_mut().unwrap();
        spec.scheduling_gates = None;
        let affinity = spec.affinity.get_or_insert_default();
        let is_in =
            |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
        let domains = domains.iter().map(|domain| is_in(domain.level.label(), &domain.name));
        let fabric = is_in(label::NODE_FABRIC, fabric);
        let expressions: Vec<_> = std::iter::once(fabric).chain(domains).collect();
        affinity.node_affinity = Some(from(json!({
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": expressions},
            ]},
        })));
    }

    /// Binds every released pod as a scheduler might: to the `first`-th node of its
    /// fabric with room. Returns the pods without a node.
    pub(crate) fn bind(&mut self, first: usize) -> Vec<String> {
        let (_, groups) = self.groups();
        let mut stuck = Vec::new();
        for group in groups {
            for member in
                group.released().filter(|it| it.stage == fabric_controller::PodStage::Released)
            {
                let fabric = member.chosen.clone().unwrap();
                let claims = member.ask.claims(&self.view).unwrap();
                match self.find(&fabric, &member.domains, &claims, first) {
                    Some((node, allocation)) => self.bind_to(&member.name, &node, &allocation),
                    None => stuck.push(member.name.clone()),
                }
            }
        }
        stuck
    }

    /// Binds one released pod.
    pub(crate) fn bind_one(&mut self, pod: &str, first: usize) {
        let (_, groups) = self.groups();
        let of_pod = groups.iter().flat_map(Group::released).find(|member| member.name == pod);
        let member = of_pod.unwrap();
        let claims = member.ask.claims(&self.view).unwrap();
        let fabric = member.chosen.as_ref().unwrap();
        let found = self.find(fabric, &member.domains, &claims, first);
        let (node, allocation) = found.unwrap();
        self.bind_to(pod, &node, &allocation);
    }

    /// Sets annotations of all pods of a gang, and their indices.
    pub(crate) fn annotate(&mut self, gang: &str, annotations: &[(&str, &str)]) {
        for name in self.of(gang) {
            let index = name.rsplit('-').next().unwrap().to_owned();
            let metadata = &mut self.pods.get_mut(&name).unwrap().metadata;
            let all = metadata.annotations.as_mut().unwrap();
            let own =
                annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            all.extend(own.chain([(job_label::COMPLETION_INDEX.to_owned(), index)]));
        }
    }

    /// Creates a pod without a group on a node.
    pub(crate) fn plain(&mut self, name: &str, node: &str, spec: &Value) {
        let mut pod = json!({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec});
        pod["spec"]["nodeName"] = node.into();
        self.pods.insert(name.to_owned(), from(pod));
    }

    /// Records that the scheduler has found no node for a pod.
    pub(crate) fn set_unschedulable(&mut self, pod: &str) {
        self.pods.get_mut(pod).unwrap().status = Some(from(json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        ]})));
    }

    /// Cordons a node.
    pub(crate) fn cordon(&mut self, name: &str) {
        self.change(name, &[], &json!({"unschedulable": true}));
    }

    /// Moves a node to another domain of a level.
    pub(crate) fn move_node(&mut self, name: &str, level: FabricLevel, domain: &str) {
        self.change(name, &[(level.label(), domain)], &json!({}));
    }

    fn change(&mut self, name: &str, more: &[(&str, &str)], spec: &Value) {
        let labels = &self.view.inventory().node(name).unwrap().labels;
        let own = labels.iter().map(|(key, value)| (&**key, &**value));
        let labels: BTreeMap<_, _> = own.chain(more.iter().copied()).collect();
        let node: Node = from(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
        }));
        self.nodes.apply(&node);
        self.view.apply(node).unwrap();
    }

    /// Removes a node and its slice.
    pub(crate) fn remove_node(&mut self, name: &str) {
        let key = ObjectKey { namespace: String::new(), name: name.to_owned() };
        self.nodes.delete(name);
        Index::<Node>::delete(&mut self.view, &key);
    }

    fn find(
        &self,
        fabric: &str,
        domains: &[LevelDomain],
        claims: &[Claim],
        first: usize,
    ) -> Option<(String, AllocationResult)> {
        let inventory = self.view.inventory();
        let on = inventory.node_names().filter(|name| {
            let labels = &inventory.node(name).unwrap().labels;
            let is = |key: &str, value: &str| labels.get(key).is_some_and(|it| **it == *value);
            is(label::NODE_FABRIC, fabric)
                && domains.iter().all(|domain| is(domain.level.label(), &domain.name))
        });
        let nodes: Vec<_> = on.collect();
        let start = first % nodes.len().max(1);
        let mut turned = nodes[start..].iter().chain(&nodes[..start]);
        turned.find_map(|name| {
            let (settings, limits) = (self.view.settings(), Limits::steps(1_000));
            let attempt = allocate(inventory, name, claims, inventory.state(), settings, limits);
            match attempt.outcome {
                Outcome::Allocated(all) => {
                    Some((name.to_string(), AllocationResult::from(&all[0])))
                }
                _ => None,
            }
        })
    }

    /// Gives a pod the first of these devices of a node, before it is bound.
    pub(crate) fn give(&mut self, pod: &str, node: &str, devices: usize) {
        let results = (0..devices).map(|index| {
            json!({"request": "nics", "driver": "dra.net", "pool": node, "device": format!("nic-{index}")})
        });
        let results: Vec<Value> = results.collect();
        self.allocate(pod, &from(json!({"devices": {"results": results}})));
    }

    fn bind_to(&mut self, pod: &str, node: &str, allocation: &AllocationResult) {
        self.allocate(pod, allocation);
        let pod = self.pods.get_mut(pod).unwrap();
        pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
    }

    /// Allocates the claim of a pod.
    fn allocate(&mut self, pod: &str, allocation: &AllocationResult) {
        let claim: ResourceClaim = from(json!({
            "metadata": {"name": pod, "namespace": NAMESPACE},
            "spec": {}, "status": {"allocation": allocation},
        }));
        self.view.apply(claim).unwrap();
        let pod_object = self.pods.get_mut(pod).unwrap();
        pod_object.status = Some(from(json!({
            "resourceClaimStatuses": [{"name": "d", "resourceClaimName": pod}],
        })));
    }

    /// Deletes a pod and frees its devices.
    pub(crate) fn delete(&mut self, pod: &str) {
        self.pods.remove(pod);
        let key = ObjectKey { namespace: NAMESPACE.to_owned(), name: pod.to_owned() };
        Index::<ResourceClaim>::delete(&mut self.view, &key);
    }

    /// The pods of a gang.
    pub(crate) fn of(&self, gang: &str) -> Vec<String> {
        let is_of = |pod: &Pod| {
            let labels = pod.metadata.labels.as_ref();
            labels.is_some_and(|labels| labels[label::FABRIC_GROUP] == gang)
        };
        self.pods.iter().filter(|(_, pod)| is_of(pod)).map(|(name, _)| name.clone()).collect()
    }

    /// The nodes that the pods of a gang are bound to.
    pub(crate) fn nodes_of(&self, gang: &str) -> Vec<String> {
        let node = |name: &String| self.pods[name].spec.as_ref().unwrap().node_name.clone();
        self.of(gang).iter().filter_map(node).collect()
    }
}

pub(crate) fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
