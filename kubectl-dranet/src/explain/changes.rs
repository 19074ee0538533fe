//! The smallest changes that would let a pod run. Each is verified: changes of
//! annotations by admission and the allocator, changes of claims and of devices in use by
//! the allocator.

use super::Scene;
use super::devices::Outcomes;
use crate::answer::{ExplainChange, ToMove};
use crate::moves::fewest;
use crate::predicted::add_planned;
use crate::rollout::Stuck;
use crate::text::counted;
use admission::admit::admit;
use admission::intent::GpuResources;
use admission::rewrite;
use cluster_model::names::annotation;
use cluster_model::predict::budget;
use cluster_model::room::{Ask, Room};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::explain::Relaxation;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use topology_graph::Level;

/// The most changes that are shown.
pub(super) const SHOWN_MAX: usize = 5;

impl fmt::Display for ExplainChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { change, nodes, fabric } = self;
        match fabric {
            Some(fabric) => write!(f, "{change} (the group goes to {fabric} then)"),
            None => write!(f, "{change} (fits on {} then)", counted(*nodes, "node")),
        }
    }
}

/// Changes that would let the pod run, smallest first.
pub(super) fn smallest(
    (pod, admitted): (&Value, &Pod),
    (scene, room): (Scene<'_>, &Room<'_>),
    nodes: &[&str],
    (outcomes, ask): (&Outcomes, &Ask),
) -> anyhow::Result<Vec<ExplainChange>> {
    let own = original(pod, scene.view)?;
    let mut found = Vec::new();
    if let Some(stuck) = Stuck::new(admitted, ask, room) {
        found.push(ExplainChange { change: stuck.change(), nodes: 1, fabric: None });
    }
    if let Some(own) = own.as_ref().filter(|own| *own != pod) {
        found.extend(anew(own, scene, nodes)?);
    }
    let stay = scene.preemptions.pods.of_same_workload(admitted);
    found.extend(of_use(room, nodes, ask, &stay));
    match &own {
        // Users do not edit the claim that admission writes, only annotations.
        Some(own) => found.extend(of_annotations(own, scene, nodes)?),
        None => found.extend(of_claims(outcomes)),
    }
    found.truncate(SHOWN_MAX);
    Ok(found)
}

/// The pod as its user wrote it, if its only claim is admission's; `None` if the user wrote claims.
fn original(pod: &Value, view: &ClusterView) -> anyhow::Result<Option<Value>> {
    if !pod["metadata"]["annotations"][annotation::ALIGNED_NICS].is_string() {
        return Ok(None);
    }
    let typed = Pod::deserialize(pod)?;
    let mut pod = pod.clone();
    if pod["metadata"]["annotations"][annotation::PLAN].is_string() {
        pod = rewrite::as_decided(&pod, &GpuResources::new(&typed, view));
    }
    let has_claims = pod["spec"]["resourceClaims"].as_array().is_some_and(|all| !all.is_empty());
    Ok((!has_claims).then_some(pod))
}

/// The pod was planned for the machines that existed then; a new one may fit.
fn anew(
    original: &Value,
    scene: Scene<'_>,
    nodes: &[&str],
) -> anyhow::Result<Option<ExplainChange>> {
    let nodes = fits(original, scene, nodes)?;
    let text = "delete the pod and create it again: its claim was planned for the machines that \
                existed then, and cannot change";
    Ok((nodes > 0).then(|| ExplainChange { change: text.to_owned(), nodes, fabric: None }))
}

/// What would have to be freed, on the node where that is least; some pods stay.
fn of_use(
    room: &Room<'_>,
    nodes: &[&str],
    ask: &Ask,
    stay: &BTreeSet<ObjectKey>,
) -> Option<ExplainChange> {
    let ToMove { node, claims } = fewest(room, nodes.iter().copied(), ask, stay)?;
    let noun = if claims.len() == 1 { "this claim gives" } else { "these claims give" };
    let text = format!("when {noun} back the devices of node {node}: {}", claims.join(", "));
    Some(ExplainChange { change: text, nodes: 1, fabric: None })
}

/// Weaker requests that the claims could make.
fn of_claims(outcomes: &Outcomes) -> Vec<ExplainChange> {
    let mut found: Vec<(&Relaxation, usize)> = Vec::new();
    for group in &outcomes.groups {
        for relaxation in &group.relaxations {
            match found.iter_mut().find(|(known, _)| *known == relaxation) {
                Some((_, count)) => *count += group.nodes.len(),
                None => found.push((relaxation, group.nodes.len())),
            }
        }
    }
    found.sort_by_key(|(relaxation, _)| relaxation.size);
    found
        .into_iter()
        .map(|(relaxation, nodes)| ExplainChange {
            change: relaxation.text.clone(),
            nodes,
            fabric: None,
        })
        .collect()
}

/// Annotations with weaker requests, for each annotation the one nearest to the current
/// value.
fn of_annotations(
    pod: &Value,
    scene: Scene<'_>,
    nodes: &[&str],
) -> anyhow::Result<Vec<ExplainChange>> {
    let mut found = Vec::new();
    for (key, values) in edits(&pod["metadata"]["annotations"]) {
        for value in values {
            let mut edited = pod.clone();
            edited["metadata"]["annotations"][key] = value.as_str().into();
            let fits = fits(&edited, scene, nodes)?;
            if fits > 0 {
                found.push(ExplainChange {
                    change: format!("{key}: \"{value}\""),
                    nodes: fits,
                    fabric: None,
                });
                break;
            }
        }
    }
    Ok(found)
}

/// Alternative values to try, in order.
fn edits(annotations: &Value) -> Vec<(&'static str, Vec<String>)> {
    let [level, policy, count] =
        [annotation::ALIGNMENT, annotation::ALIGNMENT_POLICY, annotation::ALIGNED_NICS]
            .map(|key| annotations[key].as_str().unwrap_or_default());
    let mut edits = Vec::new();
    if let Ok(level) = level.parse::<Level>() {
        let farther = Level::ALL.into_iter().filter(|other| *other > level);
        edits.push((annotation::ALIGNMENT, farther.map(|level| level.to_string()).collect()));
    }
    if policy != "preferred" {
        edits.push((annotation::ALIGNMENT_POLICY, vec!["preferred".to_owned()]));
    }
    if let Ok(count) = count.parse::<u32>() {
        let fewer = (1..count).rev().map(|count| count.to_string());
        edits.push((annotation::ALIGNED_NICS, fewer.collect()));
    }
    edits
}

/// The number of these nodes that the pod fits on, if admission admits it.
fn fits(pod: &Value, scene: Scene<'_>, nodes: &[&str]) -> anyhow::Result<usize> {
    let Ok(verdict) = admit(pod, scene.view, scene.policy) else { return Ok(0) };
    let Some(planned) = verdict.planned else { return Ok(0) };
    let admitted = Pod::deserialize(&verdict.pod)?;
    let namespace = admitted.metadata.namespace.as_deref().unwrap_or_default();
    let mut view = scene.view.clone();
    add_planned(&mut view, &planned, namespace)?;
    let budget = budget(&view);
    let room = scene.in_use.room(&view, &budget);
    let ask = Ask::new(&admitted).on_fabric(scene.fabric);
    let attempt = room.attempt(&ask, nodes.iter().copied()).map_err(anyhow::Error::msg)?;
    Ok(attempt.fits().len())
}
