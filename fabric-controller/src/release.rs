//! What is written into pods, and when it is safe.
//!
//! 1. Every gated pod of the group is *marked*: the fabric becomes an annotation.
//! 2. All pods of the group are listed, directly from the API server.
//! 3. The gates of the listed pods are *removed*, each with the resource version in that
//!    list, and only if one of these holds:
//!    - no pod is released, and all gated pods have this fabric;
//!    - pods are released, and this is their fabric.
//!
//! A pod is released to the domains that it is marked with. Where pods must share domains of levels,
//! a gate is removed only if the pod is marked, and no pod that it shares a domain with is marked
//! with, or released to, another one of this level.
//!
//! So two controllers cannot split a group, whatever each of them remembers. Suppose that
//! one releases pod `x` to fabric 1 after its list, and another releases pod `y` to
//! fabric 2 after a later list. The later list shows `x` as gated with fabric 2. So `x`
//! was written after the first list, and the first release fails because of its old
//! version.

use super::chosen;
use super::group::{Group, GroupKey, Member};
use cluster_model::fabric_level::{FabricLevel, LevelDomain};
use cluster_model::names::{GATE_FABRIC, annotation, label};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A write that removes the gate of one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct GateRemoval {
    /// The pod.
    pub pod: String,
    /// The strategic merge patch, with the resource version that it was decided from.
    pub patch: Value,
}

/// Why no gate may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Pods of the group are already released to this other fabric.
    Elsewhere(String),
    /// This gated pod is not marked with the fabric yet.
    NotMarked(String),
    /// The group is being evicted.
    Evicting,
}

/// The gated pods that are not marked with the fabric and their domain. Empty if pods are released,
/// because then their fabric is decisive; but where pods must share a domain, those with one are
/// marked in any case.
pub fn unmarked<'g>(
    group: &'g Group,
    fabric: &str,
    domains: &BTreeMap<String, Vec<LevelDomain>>,
) -> Vec<&'g Member> {
    let is_open = !group.has_released();
    group
        .gated()
        .filter(|it| is_open || (group.requires_domains() && domains.contains_key(&it.name)))
        .filter(|it| {
            let domains = domains.get(&it.name).map(Vec::as_slice).unwrap_or_default();
            it.chosen.as_deref() != Some(fabric) || it.domains != domains
        })
        .collect()
}

/// The patch that marks exactly this pod, identified by UID, with its fabric and domains.
pub fn mark(member: &Member, fabric: &str, domains: &[LevelDomain]) -> Pod {
    annotated(member, annotation::FABRIC_CHOSEN, &chosen::text(fabric, domains))
}

/// The patch that marks a released pod for eviction.
pub fn mark_evicted(member: &Member) -> Pod {
    annotated(member, annotation::FABRIC_MOVES, "true")
}

fn annotated(member: &Member, annotation: &str, value: &str) -> Pod {
    let annotations = BTreeMap::from([(annotation.to_owned(), value.to_owned())]);
    let uid = Some(member.uid.clone());
    let metadata = ObjectMeta { uid, annotations: Some(annotations), ..ObjectMeta::default() };
    Pod { metadata, ..Pod::default() }
}

/// The gates that may be removed, given a current list of the group's pods.
pub fn gate_removals(
    group: &GroupKey,
    pods: &[Pod],
    fabric: &str,
    wanted: &BTreeSet<&str>,
    fabric_of: impl Fn(&str) -> Option<String>,
) -> Result<Vec<GateRemoval>, Refusal> {
    let members: Vec<_> = pods
        .iter()
        .filter_map(|pod| Member::new(pod).filter(|(key, _)| key == group).map(|(_, it)| it))
        .collect();
    let now = Group { key: group.clone(), members, size: None, is_expensive: false };
    if now.released().any(|member| member.moves) {
        return Err(Refusal::Evicting);
    }
    if now.has_released() {
        match now.fabric(fabric_of) {
            Some(own) if own != fabric => return Err(Refusal::Elsewhere(own)),
            _ => {}
        }
    } else if let Some(member) = now.gated().find(|it| it.chosen.as_deref() != Some(fabric)) {
        return Err(Refusal::NotMarked(member.name.clone()));
    }
    for level in now.levels().required() {
        let mut due = now.gated().filter(|member| wanted.contains(member.name.as_str()));
        due.try_for_each(|member| check_domain(&now, member, fabric, level))?;
    }
    let removals = pods.iter().filter_map(|pod| {
        let name = pod.metadata.name.as_deref().filter(|name| wanted.contains(name))?;
        let member = now.gated().find(|member| member.name == name)?;
        gate_removal(pod, fabric, &member.domains)
    });
    Ok(removals.collect())
}

/// Checks that a pod is marked with a domain of the level, and the pods that it shares the domain
/// with are not marked with, or released to, another one.
fn check_domain(
    now: &Group,
    member: &Member,
    fabric: &str,
    level: FabricLevel,
) -> Result<(), Refusal> {
    let is_marked = member.chosen.as_deref() == Some(fabric);
    let Some(domain) = member.chosen_domain(level).filter(|_| is_marked) else {
        return Err(Refusal::NotMarked(member.name.clone()));
    };
    for mate in now.members.iter().filter(|mate| now.share_domain(level, member, mate)) {
        match mate.chosen_domain(level) {
            Some(other) if other != domain && mate.is_released() => {
                return Err(Refusal::Elsewhere(other.to_string()));
            }
            Some(other) if other != domain => return Err(Refusal::NotMarked(mate.name.clone())),
            _ => {}
        }
    }
    Ok(())
}

/// Adds the fabric and the domains to every required term, which the API server allows for a gated pod
/// (`validateNodeAffinityMutation` in `pkg/apis/core/validation`), and removes only this
/// controller's gate.
fn gate_removal(pod: &Pod, fabric: &str, domains: &[LevelDomain]) -> Option<GateRemoval> {
    let metadata = &pod.metadata;
    let affinity = pod.spec.as_ref()?.affinity.as_ref();
    let required = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|node| node.required_during_scheduling_ignored_during_execution.clone());
    let mut required = with_label(required, label::NODE_FABRIC, fabric);
    for LevelDomain { level, name } in domains {
        required = with_label(Some(required), level.label(), name);
    }
    let patch = json!({
        "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "spec": {
            "schedulingGates": [{"name": GATE_FABRIC, "$patch": "delete"}],
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": required,
            }},
        },
    });
    Some(GateRemoval { pod: metadata.name.clone()?, patch })
}

fn with_label(required: Option<NodeSelector>, key: &str, value: &str) -> NodeSelector {
    let mut required = required.unwrap_or_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    let added = NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![value.to_owned()]),
    };
    for term in &mut required.node_selector_terms {
        let expressions = term.match_expressions.get_or_insert_default();
        if !expressions.contains(&added) {
            expressions.push(added.clone());
        }
    }
    required
}

#[cfg(test)]
mod tests;
