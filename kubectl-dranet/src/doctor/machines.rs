//! Determines what each machine type can serve.

use super::finding::Findings;
use super::scene::Scene;
use crate::answer::DoctorMachine;
use crate::nodes::machine;
use crate::shape::PodShape;
use admission::admit::{AdmitError, Planned, admit};
use admission::plan::{Plan, Policy, QuotaEscape};
use cluster_model::gpu_drivers;
use cluster_model::names::{annotation, attribute};
use cluster_model::node_devices::{Role, published};
use cluster_model::view::ClusterView;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Machine types that serve no pod.
pub(super) fn denied(scene: &Scene<'_>, found: &mut Findings) {
    // Without the NIC class no machine can serve; that is a separate finding.
    let has_class = scene.view.inventory().class(&scene.policy.nic_class).is_some();
    for machine in scene.machines.iter().filter(|_| has_class) {
        if let Some(why) = &machine.denied {
            let message = format!("serves no pod with one GPU and one aligned NIC: {why}");
            found.warning(format!("machine type {}", machine.name), message);
        }
    }
}

/// The machine types with GPUs and NICs of DRA drivers.
pub(super) fn all(view: &ClusterView, policy: &Policy) -> anyhow::Result<Vec<DoctorMachine>> {
    let mut types: BTreeMap<(String, usize, usize, BTreeSet<String>), Vec<&str>> = BTreeMap::new();
    for node in view.present_nodes() {
        let gpus = published(view, node).filter(|(role, _)| role.is_gpu()).count();
        let nics = published(view, node).filter(|(role, _)| role.is_nic()).count();
        if gpus > 0 && nics > 0 {
            let key = (machine(view, node), gpus, nics, attributes(view, node));
            types.entry(key).or_default().push(node);
        }
    }
    let mut machines = Vec::<DoctorMachine>::new();
    for ((name, gpus, nics, _), nodes) in types {
        let Some(first) = nodes.first() else { continue };
        let (join, better) = join(first, view, policy)?;
        let (join, denied) = (join.clone().ok(), join.err());
        let known = machines.iter_mut().find(|known| {
            (&known.name, known.gpus, known.nics) == (&name, gpus, nics)
                && (&known.join, &known.denied) == (&join, &denied)
        });
        if let Some(known) = known {
            known.nodes += nodes.len();
            continue;
        }
        let nodes = nodes.len();
        machines.push(DoctorMachine { name, nodes, gpus, nics, join, denied, better });
    }
    Ok(machines)
}

/// The names of the attributes that the devices of a node have: drivers of several versions differ in
/// them.
fn attributes(view: &ClusterView, node: &str) -> BTreeSet<String> {
    let devices = published(view, node).map(|(_, device)| device);
    devices.flat_map(|device| device.attributes().map(|(name, _)| name.to_string())).collect()
}

/// A decision on a pod that can only run on one node: the join, and what would give a better one.
type Decided = (Result<String, String>, Option<String>);

/// Admission's decision on a pod that can only run on this node.
fn join(node: &str, view: &ClusterView, policy: &Policy) -> anyhow::Result<Decided> {
    let mut pod = PodShape { gpus: 1, nics: 1, level: None }.pod("default", None);
    pod["spec"]["affinity"] = only(node);
    if let Some(resource) = resource(node, view) {
        pod["spec"]["containers"][0]["resources"] = json!({ "limits": { resource: 1 } });
        if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
            annotations.remove(annotation::GPUS);
        }
    }
    // Only the machine matters here, not the namespace.
    let policy = Policy { quota_escape: QuotaEscape::Warn, ..policy.clone() };
    Ok(match admit(&pod, view, &policy) {
        Ok(verdict) => match verdict.planned {
            Some(Planned { plan, .. }) => {
                (Ok(format!("{}, {}", plan.join, plan.nearness)), better(node, view, &plan))
            }
            None => (Err("admission made no claim".to_owned()), None),
        },
        Err(AdmitError::Denied(denial)) => (Err(denial.to_string()), None),
        Err(error) => return Err(error.into()),
    })
}

/// What would give a node whose claims list bus IDs a join by an attribute, or why nothing would.
fn better(node: &str, view: &ClusterView, plan: &Plan) -> Option<String> {
    if !plan.join.ends_with("cells") {
        return None;
    }
    let gpus_lack = lacks_numa_node(view, node, Role::is_gpu);
    let nics_lack = lacks_numa_node(view, node, Role::is_nic);
    let who = match (gpus_lack, nics_lack) {
        (true, false) => "a GPU driver that publishes",
        (false, true) => "a NIC driver that publishes",
        (true, true) => "drivers of GPUs and NICs that publish",
        (false, false) => {
            let place = plan.nearness.place();
            return Some(format!(
                "claims list the bus IDs of its cells, since no attribute that both drivers publish is \
                 equal exactly within one {place}"
            ));
        }
    };
    Some(format!(
        "claims list the bus IDs of its cells; {who} {} would join them by NUMA node, also on machines \
         that come later",
        attribute::NUMA_NODE
    ))
}

/// Whether a device with such a role publishes no NUMA node.
fn lacks_numa_node(view: &ClusterView, node: &str, is_meant: fn(Role) -> bool) -> bool {
    let mut devices = published(view, node).filter(|(role, _)| is_meant(*role));
    devices.any(|(_, device)| device.attribute(attribute::NUMA_NODE).is_none())
}

/// The extended resource with which pods request the GPUs of a node.
fn resource(node: &str, view: &ClusterView) -> Option<&'static str> {
    let mut gpus = published(view, node).filter(|(role, _)| *role == Role::Gpu);
    let (_, gpu) = gpus.next()?;
    let driver = gpu_drivers::all().iter().find(|driver| driver.driver == &*gpu.id().driver)?;
    driver.extended_resources.first().copied()
}

/// A node affinity to one node, by name.
fn only(node: &str) -> Value {
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchFields": [
            { "key": "metadata.name", "operator": "In", "values": [node] },
        ] }],
    } } })
}
