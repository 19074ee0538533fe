//! Previews where a group of pods like this one would be placed now, before the user
//! creates it.

use super::capacity::ClusterCapacity;
use super::decide::{Action, Decision, PlacementPolicy, decide};
use super::group::{Group, Member};
use super::group_pods::GroupPods;
use super::size::Size;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::predict::budget;
use cluster_model::room::Nodes;
use cluster_model::view::{ClusterView, Index};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// The preview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The size of the group; one if unknown.
    pub size: usize,
    /// For each fabric, how many of the pods fit there now, considered alone.
    pub places: Vec<(String, usize)>,
    /// The fabric that the group would get, or why it would wait.
    pub answer: Result<String, String>,
    /// The domains of levels that it would get there, and how many of its pods.
    pub domains: BTreeMap<LevelDomain, usize>,
}

/// Previews the group of a pod that admission has rewritten, with its template, which is
/// added to the view, and the number of pods of its job, if that is known. `None` if the pod
/// belongs to no group.
pub fn preview(
    (pod, template, job_size): (&Value, &ResourceClaimTemplate, Option<u64>),
    view: &mut ClusterView,
    (pods, nodes): (&GroupPods, &Nodes),
    now: Timestamp,
) -> Option<Preview> {
    let mut pod = pod.clone();
    let metadata = pod["metadata"].as_object_mut()?;
    // The API server would fill these in.
    metadata.entry("name").or_insert_with(|| "planned".into());
    metadata.entry("namespace").or_insert_with(|| "default".into());
    metadata.insert("uid".to_owned(), "planned".into());
    metadata.insert("resourceVersion".to_owned(), "0".into());
    metadata.insert("creationTimestamp".to_owned(), now.to_string().into());
    let pod: Pod = serde_json::from_value(pod).ok()?;
    let (key, member) = Member::new(&pod)?;
    let mut template = template.clone();
    template.metadata.namespace = Some(key.namespace.clone());
    view.apply(template).ok()?;
    let job_size = job_size.and_then(|size| usize::try_from(size).ok());
    let size = member.said_size.or(job_size).unwrap_or(1);
    let members = (0..size).map(|number| Member {
        name: format!("{}-{number}", member.name),
        slice: member.domain_size.map(|of_slice| ("".into(), number / of_slice)),
        ..member.clone()
    });
    let group = Group {
        key: key.clone(),
        members: members.collect(),
        size: Some(Size::all_at_once(size)),
        is_expensive: false,
    };
    let budget = budget(view);
    let mut cluster = ClusterCapacity::new(view, nodes, &budget);
    let places = cluster.fabrics_mut().map(|(name, it)| (name.clone(), it.count(&member.ask)));
    let places = places.collect();
    let mut groups = pods.groups();
    groups.retain(|known| known.key != key);
    groups.push(group);
    let decisions = decide(
        &groups,
        ClusterCapacity::new(view, nodes, &budget),
        &PlacementPolicy::default(),
        now,
    );
    let own = decisions.into_iter().find(|decision| decision.group == key);
    let domains = own.as_ref().map(|decision| domains(&decision.action)).unwrap_or_default();
    Some(Preview { size, places, answer: answer(own), domains })
}

/// The domains that pods go to, and how many go to each.
fn domains(action: &Action) -> BTreeMap<LevelDomain, usize> {
    let mut counts = BTreeMap::new();
    if let Action::Place { domains, .. } = action {
        for domain in domains.values().flatten() {
            *counts.entry(domain.clone()).or_default() += 1;
        }
    }
    counts
}

fn answer(decision: Option<Decision>) -> Result<String, String> {
    match decision.map(|decision| decision.action) {
        Some(Action::Place { fabric, .. }) => Ok(fabric),
        Some(Action::Wait(why)) => Err(why.to_string()),
        Some(Action::Evict { .. }) | None => Err("nothing is decided on it".to_owned()),
    }
}
