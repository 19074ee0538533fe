//! The decision: which claim gives this pod what it asks for, on the nodes that
//! there are, or why none does.

use crate::claim::match_attribute;
use crate::denial::Denial;
use crate::intent::Intent;
use crate::join::{self, Candidate, Classes, Question};
use crate::supply;
use cluster_model::names::{self, annotation, attribute};
use cluster_model::node_devices::{NodeDevices, text};
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::{DeviceClaim, ResourceClaimSpec};

/// Attributes that are equal on NICs of one fabric.
const FABRIC_ATTRIBUTES: &[&str] = &[attribute::AZURE_PLACEMENT_GROUP];

/// What the operator set for the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// DeviceClass of whole GPUs; without it the class named as the driver.
    pub gpu_class: Option<String>,
    /// DeviceClass of our NICs.
    pub nic_class: String,
}

/// The claim that a pod gets, and why this one.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the join that ties GPUs to NICs.
    pub join: &'static str,
    /// Why this join, for a person.
    pub why: String,
    /// The claim.
    pub claim: ResourceClaimSpec,
    /// Nodes that can serve when nothing is in use, of those with a graph.
    pub nodes: (usize, usize),
    intent: Intent,
}

impl Plan {
    /// The decision in one line, for the pod's annotation.
    pub fn note(&self, template: &str) -> String {
        let Intent { nics, gpus, .. } = self.intent;
        format!(
            "{} by join {} on {} of {} nodes, template {template}",
            supply::demand(gpus, nics),
            self.join,
            self.nodes.0,
            self.nodes.1
        )
    }
}

/// Chooses the claim.
pub fn plan(intent: &Intent, view: &ClusterView, policy: &Policy) -> Result<Plan, Denial> {
    let deny = |why| Err(Denial::new(annotation::ALIGNED_NICS, intent.nics.to_string(), why));
    let classes = classes(intent, view, policy)?;
    let nodes = nodes_with_both(view, intent);
    if nodes.is_empty() {
        return deny(format!(
            "no node here publishes a graph, GPUs of driver {} and NICs of driver {}",
            intent.gpu_driver.driver,
            names::DRIVER
        ));
    }
    let each =
        intent.gpus > 1 && intent.nics > intent.gpus && intent.nics.is_multiple_of(intent.gpus);
    if each {
        return deny(format!(
            "{} for {} GPUs means {} NICs for each GPU, which this version cannot plan; ask one \
             GPU a pod, or one NIC a GPU",
            intent.nics,
            intent.gpus,
            intent.nics / intent.gpus
        ));
    }
    let question = Question { intent, classes: &classes, nodes: &nodes };
    match best(join::candidates(question)) {
        Some(candidate) => Ok(complete(intent, candidate, &nodes)),
        None => deny(supply::shortage(intent, &nodes)),
    }
}

/// The nodes with a graph, a GPU of the driver asked for and a NIC of ours.
fn nodes_with_both<'a>(view: &'a ClusterView, intent: &Intent) -> Vec<NodeDevices<'a>> {
    let names = view.inventory().node_names();
    names
        .filter_map(|node| NodeDevices::of(view, node))
        .map(|mut node| {
            node.gpus.retain(|_, gpu| *gpu.id().driver == *intent.gpu_driver.driver);
            node
        })
        .filter(|node| !node.gpus.is_empty() && !node.nics.is_empty())
        .collect()
}

/// The candidate that most nodes can serve; among equals the best join.
fn best(candidates: Vec<Candidate>) -> Option<Candidate> {
    let serving = candidates.into_iter().filter(|candidate| candidate.serving() > 0);
    // `max_by_key` would take the last of equals.
    serving.reduce(|best, next| if next.serving() > best.serving() { next } else { best })
}

fn complete(intent: &Intent, candidate: Candidate, nodes: &[NodeDevices<'_>]) -> Plan {
    let mut constraints = candidate.constraints.clone();
    for attribute in FABRIC_ATTRIBUTES {
        if on_every_selectable_nic(&candidate, nodes, attribute) {
            constraints.push(match_attribute(candidate.nic_requests.clone(), attribute));
        }
    }
    Plan {
        join: candidate.join,
        nodes: (candidate.serving(), nodes.len()),
        why: candidate.why,
        claim: ResourceClaimSpec {
            devices: Some(DeviceClaim {
                requests: Some(candidate.requests),
                constraints: Some(constraints),
                config: None,
            }),
        },
        intent: intent.clone(),
    }
}

/// A device without the attribute can never satisfy a constraint on it, so the
/// constraint is made only where every NIC that the claim may select has it.
fn on_every_selectable_nic(
    candidate: &Candidate,
    nodes: &[NodeDevices<'_>],
    attribute: &str,
) -> bool {
    nodes.iter().zip(&candidate.selectable_nics).all(|(node, selectable)| {
        selectable.iter().all(|nic| text(node.nics[nic], attribute).is_some())
    })
}

fn classes(intent: &Intent, view: &ClusterView, policy: &Policy) -> Result<Classes, Denial> {
    let gpu = policy.gpu_class.as_deref().unwrap_or(intent.gpu_driver.driver);
    for name in [gpu, policy.nic_class.as_str()] {
        if view.inventory().class(name).is_none() {
            let mut there: Vec<_> = view.inventory().class_names().map(|name| &**name).collect();
            there.sort_unstable();
            return Err(Denial::new(
                annotation::ALIGNED_NICS,
                intent.nics.to_string(),
                format!(
                    "there is no DeviceClass `{name}`; the cluster has {}",
                    if there.is_empty() { "none".to_owned() } else { there.join(", ") }
                ),
            ));
        }
    }
    Ok(Classes { gpu: gpu.to_owned(), nic: policy.nic_class.clone() })
}
