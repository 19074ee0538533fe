//! preemptor's own decision, on the objects of the simulated cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster_model::names::{GATE_FABRIC, annotation, label};
use cluster_model::room::Nodes;
use cluster_model::view::{ClusterView, Index, ObjectKey, ViewError};
use fabric_controller::Group;
use fabric_controller::group_pods::GroupPods;
use fabric_controller::size::Size;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::jiff::Timestamp;
use preemptor::{Budgets, Cluster as Known, Pods, Rules, decide_on};
use serde_json::{Value, json};

use crate::claims::{Claims, NAMESPACE};
use crate::cluster::{Cluster, node_name};
use crate::decider::{Decider, Situation};
use crate::objects::{self, Held};
use crate::policy::{POD_CPUS_PER_GPU, POD_GIB_PER_GPU};
use crate::workload::{Millis, Task};

/// preemptor with what it has watched.
#[derive(Debug)]
pub struct ByPreemptor {
    claims: Arc<Claims>,
    view: ClusterView,
    nodes: Nodes,
    pods: Pods,
    groups: GroupPods,
    /// The running jobs that it has seen, with their starts.
    seen: BTreeMap<usize, Millis>,
    closed: BTreeSet<usize>,
}

impl ByPreemptor {
    /// preemptor on an idle cluster.
    pub fn new(claims: &Arc<Claims>, cluster: &Cluster) -> Result<Self, ViewError> {
        let mut view = objects::view(claims, cluster)?;
        for gpus in claims.sizes() {
            view.apply(objects::template(&template(gpus), claims, gpus))?;
        }
        let mut nodes = Nodes::default();
        for node in 0..cluster.nodes.len() {
            nodes.apply(&objects::node(claims, cluster, node));
        }
        Ok(Self {
            claims: Arc::clone(claims),
            view,
            nodes,
            pods: Pods::default(),
            groups: GroupPods::default(),
            seen: BTreeMap::new(),
            closed: BTreeSet::new(),
        })
    }

    /// Sees the jobs that have started and ended meanwhile, and the nodes that are closed.
    fn watch(&mut self, situation: Situation<'_>) {
        let Situation { tasks, cluster, running, closed, .. } = situation;
        let ended = self.seen.extract_if(.., |job, started| {
            running.get(job).is_none_or(|state| state.started != *started)
        });
        let ended: Vec<usize> = ended.map(|(job, _)| job).collect();
        for job in ended {
            self.remove(job, &tasks[job]);
        }
        for (job, state) in running {
            if self.seen.insert(*job, state.started).is_some() {
                continue;
            }
            for (index, bound) in state.bound.iter().enumerate() {
                let uid = bound.pod.uid.to_string();
                let held = Held { node: bound.node, placement: &bound.placement, uid: &uid };
                let spec = json!({ "nodeName": node_name(bound.node) });
                let mut pod = pod_of((*job, index), &tasks[*job], spec);
                pod["metadata"]["uid"] = uid.as_str().into();
                pod["status"]["phase"] = "Running".into();
                pod["status"]["startTime"] = time(state.started).into();
                self.add(bound.pod.gpus, pod, Some(held));
            }
        }
        for node in self.closed.symmetric_difference(closed) {
            let mut object = objects::node(&self.claims, cluster, *node);
            let is_closed = closed.contains(node);
            object.spec.get_or_insert_default().unschedulable = Some(is_closed);
            self.nodes.apply(&object);
            self.view.apply(object).expect("the node is known");
        }
        self.closed.clone_from(closed);
    }

    fn add(&mut self, gpus: u32, pod: Value, held: Option<Held<'_>>) {
        let pod: Pod = serde_json::from_value(pod).expect("this is a Pod");
        let planned = self.claims.planned(gpus).expect("the claims of all jobs are planned");
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        self.view.apply(objects::claim(name, planned, held)).expect("its devices are free");
        self.nodes.apply_pod(&pod);
        self.pods.apply(&pod);
        self.groups.apply(&pod);
        self.view.apply(pod).expect("the pod is valid");
    }

    fn remove(&mut self, job: usize, task: &Task) {
        for index in 0..task.pods.len() {
            let key = key(job, index);
            self.nodes.delete_pod(&key);
            self.pods.delete(&key);
            self.groups.delete(&key);
            Index::<Pod>::delete(&mut self.view, &key);
            Index::<ResourceClaim>::delete(&mut self.view, &key);
        }
    }

    /// The groups, whose sizes fabric-controller reads from their jobs.
    fn groups(&self) -> Vec<Group> {
        let mut groups = self.groups.groups();
        for group in &mut groups {
            group.size = Some(Size::all_at_once(group.members.len()));
        }
        groups
    }
}

impl Decider for ByPreemptor {
    fn victims(&mut self, job: usize, situation: Situation<'_>) -> Vec<usize> {
        self.watch(situation);
        let task = &situation.tasks[job];
        for (index, gpus) in task.pods.iter().enumerate() {
            let gate = json!({ "schedulingGates": [{ "name": GATE_FABRIC }] });
            let spec = if task.pods.len() > 1 { gate } else { json!({}) };
            self.add(*gpus, pod_of((job, index), task, spec), None);
        }
        let groups = self.groups();
        let known = Known {
            view: &self.view,
            nodes: &self.nodes,
            pods: &self.pods,
            groups: &groups,
            budgets: &Budgets::default(),
            begun: &[],
        };
        let decided = decide_on(&key(job, 0), known, &Rules::default(), moment(situation.now));
        self.remove(job, task);
        let Some(Ok(preemption)) = decided else { return Vec::new() };
        let pods = preemption.victims.iter().flat_map(|victim| &victim.pods);
        let names: BTreeSet<&str> = pods.map(|victim| victim.pod.key.name.as_str()).collect();
        let running = situation.running.keys().copied();
        running.filter(|job| names.contains(&*pod_name(*job, 0))).collect()
    }
}

fn template(gpus: u32) -> String {
    format!("gpus-{gpus}")
}

fn group_name(job: usize) -> String {
    format!("job-{job}")
}

fn pod_name(job: usize, index: usize) -> String {
    format!("job-{job}-{index}")
}

fn key(job: usize, index: usize) -> ObjectKey {
    ObjectKey { namespace: NAMESPACE.to_owned(), name: pod_name(job, index) }
}

fn moment(at: Millis) -> Timestamp {
    let millis = i64::try_from(at).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

fn time(at: Millis) -> String {
    moment(at).to_string()
}

/// A pod of a job.
fn pod_of((job, index): (usize, usize), task: &Task, mut spec: Value) -> Value {
    let gpus = i64::from(task.pods[index]);
    let requests = json!({
        "cpu": (gpus * POD_CPUS_PER_GPU).to_string(),
        "memory": format!("{}Gi", gpus * POD_GIB_PER_GPU),
    });
    let name = pod_name(job, index);
    spec["priority"] = task.priority.into();
    spec["containers"] = json!([{ "name": "job", "resources": { "requests": requests } }]);
    spec["resourceClaims"] =
        json!([{ "name": "devices", "resourceClaimTemplateName": template(task.pods[index]) }]);
    let status =
        json!({ "resourceClaimStatuses": [{ "name": "devices", "resourceClaimName": name }] });
    let mut metadata = json!({
        "name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1",
        "creationTimestamp": time(task.submitted),
    });
    if task.pods.len() > 1 {
        let group = group_name(job);
        metadata["labels"] = json!({ label::FABRIC_GROUP: group });
        metadata["annotations"] = json!({ annotation::FABRIC: group });
    }
    json!({ "metadata": metadata, "spec": spec, "status": status })
}
