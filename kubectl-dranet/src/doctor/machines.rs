//! Determines what each machine type can serve.

use super::finding::ClusterFinding;
use crate::capacity::PodShape;
use crate::nodes::machine;
use crate::predicted::nodes;
use admission::admit::{AdmitError, admit};
use admission::lint::Severity;
use admission::plan::{Policy, QuotaEscape};
use cluster_model::gpu_drivers::GPU_DRIVERS;
use cluster_model::names::annotation;
use cluster_model::node_devices::{Role, published};
use cluster_model::view::ClusterView;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A machine type with GPUs and NICs of DRA drivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineType {
    pub(crate) name: String,
    pub(crate) nodes: usize,
    pub(crate) gpus: usize,
    pub(crate) nics: usize,
    /// The join and nearness for a pod with one GPU and one NIC, or why there is none.
    pub(crate) join: Result<String, String>,
}

/// The machine types of the cluster, and findings about what they cannot serve.
pub(super) fn examine(
    view: &ClusterView,
    policy: &Policy,
) -> anyhow::Result<(Vec<MachineType>, Vec<ClusterFinding>)> {
    let mut types: BTreeMap<(String, usize, usize), Vec<&str>> = BTreeMap::new();
    for node in nodes(view) {
        let count = |wanted| published(view, node).filter(|(role, _)| *role == wanted).count();
        let (gpus, nics) = (count(Role::Gpu), count(Role::Nic));
        if gpus > 0 && nics > 0 {
            types.entry((machine(view, node), gpus, nics)).or_default().push(node);
        }
    }
    let (mut machines, mut findings) = (Vec::new(), Vec::new());
    for ((name, gpus, nics), nodes) in types {
        let Some(first) = nodes.first() else { continue };
        let join = join(first, view, policy)?;
        // Without the NIC class no machine can serve; that is a separate finding.
        let has_class = view.inventory().class(&policy.nic_class).is_some();
        if let (Err(why), true) = (&join, has_class) {
            let message = format!("serves no pod with one GPU and one aligned NIC: {why}");
            findings.push(ClusterFinding::new(
                Severity::Warning,
                format!("machine type {name}"),
                message,
            ));
        }
        machines.push(MachineType { name, nodes: nodes.len(), gpus, nics, join });
    }
    Ok((machines, findings))
}

/// Admission's decision on a pod that can only run on this node.
fn join(node: &str, view: &ClusterView, policy: &Policy) -> anyhow::Result<Result<String, String>> {
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
            Some(planned) => Ok(format!("{}, {}", planned.plan.join, planned.plan.nearness)),
            None => Err("admission made no claim".to_owned()),
        },
        Err(AdmitError::Denied(denial)) => Err(denial.to_string()),
        Err(error) => return Err(error.into()),
    })
}

/// The extended resource with which pods request the GPUs of a node.
fn resource(node: &str, view: &ClusterView) -> Option<&'static str> {
    let mut gpus = published(view, node).filter(|(role, _)| *role == Role::Gpu);
    let (_, gpu) = gpus.next()?;
    let driver = GPU_DRIVERS.iter().find(|driver| driver.driver == &*gpu.id().driver)?;
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
