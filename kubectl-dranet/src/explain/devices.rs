//! The result of claims on each node, and which nodes have the same result.

use crate::answer::ExplainGroup;
use crate::device_names;
use crate::predicted::verdict;
use crate::preemption::Preemptions;
use crate::text::listed;
use cluster_model::node_devices::published;
use cluster_model::predict::Prediction;
use cluster_model::room::{Attempt, Extended, Room, WhyNot};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::explain::{Explanation, Failure};
use dra_allocator::reasons::reasons;
use dra_allocator::{ClaimAllocation, ClaimName};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of holders of devices in use that are named.
const HOLDERS: usize = 8;

/// The results on all nodes.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// Nodes where the claims fit.
    pub(super) fits: Vec<String>,
    /// Other nodes.
    pub(super) groups: Vec<ExplainGroup>,
}

impl Outcomes {
    /// The results on the nodes that nothing else than devices excludes.
    pub(super) fn new(
        room: &Room<'_>,
        attempt: &Attempt<'_, '_>,
        preemptions: &Preemptions,
    ) -> anyhow::Result<Self> {
        let mut found = Self::default();
        let mut groups: BTreeMap<(String, Vec<String>), ExplainGroup> = BTreeMap::new();
        for alike in attempt.alike() {
            let names = alike.nodes.iter().map(|node| (*node).to_owned());
            let why = match alike.result {
                Prediction::Fits(_) => {
                    found.fits.extend(names);
                    continue;
                }
                Prediction::No(why) => why,
            };
            let first = alike.nodes[0];
            let mut group = ExplainGroup { verdict: verdict(&why), ..ExplainGroup::default() };
            if !matches!(why, WhyNot::FailsElsewhere { .. }) {
                let explained = room.explain(first, alike.claims)?;
                // An ignored pool is the reason why its devices are missing below.
                group.reasons = broken_pools(room.view(), first);
                group.reasons.extend(reasons(&explained.requests));
                group.in_use = holders((room.view(), preemptions), first, &explained);
                group.relaxations = explained.relaxations;
                group.relaxations.retain(|it| !Extended::is_own(&it.claim));
            }
            let key = (group.verdict.clone(), group.reasons.clone());
            let relaxations = std::mem::take(&mut group.relaxations);
            let group = groups.entry(key).or_insert(group);
            group.nodes.extend(names);
            for relaxation in relaxations {
                if !group.relaxations.contains(&relaxation) {
                    group.relaxations.push(relaxation);
                }
            }
        }
        found.fits.sort_unstable();
        found.groups = groups.into_values().collect();
        found.groups.iter_mut().for_each(|group| group.nodes.sort_unstable());
        // The most common reason first.
        found.groups.sort_by_key(|group| std::cmp::Reverse(group.nodes.len()));
        Ok(found)
    }

    /// Number of nodes that were examined.
    pub(super) fn looked_at(&self) -> usize {
        self.fits.len() + self.groups.iter().map(|group| group.nodes.len()).sum::<usize>()
    }
}

/// What a pod waits for on every node on which it fits: its devices have conditions that must be true
/// before it is bound there (`PreBind` of `plugins/dynamicresources`).
pub(super) fn binding(attempt: &Attempt<'_, '_>) -> Option<String> {
    let mut conditions: BTreeSet<String> = BTreeSet::new();
    for alike in attempt.alike() {
        let Prediction::Fits(fit) = alike.result else { continue };
        let own = binding_conditions(&fit.allocations);
        if own.is_empty() {
            return None;
        }
        conditions.extend(own);
    }
    let conditions: Vec<_> = conditions.into_iter().collect();
    (!conditions.is_empty()).then(|| {
        format!(
            "it is bound when its devices are ready: condition {} is to be true",
            listed(&conditions)
        )
    })
}

/// The conditions of devices that must be true before their pod is bound.
pub(crate) fn binding_conditions(allocations: &[ClaimAllocation]) -> BTreeSet<String> {
    let results = allocations.iter().flat_map(|allocation| &allocation.results);
    results.flat_map(|result| &result.binding_conditions).map(ToString::to_string).collect()
}

/// Pools that the scheduler ignores.
fn broken_pools(view: &ClusterView, node: &str) -> Vec<String> {
    let pools = view.inventory().broken_pools_on(node, view.settings()).unwrap_or_default();
    pools
        .into_iter()
        .map(|(pool, problem)| {
            format!("the scheduler ignores the pool of driver {}: {problem}", pool.driver)
        })
        .collect()
}

/// Who holds suitable devices: `mlx5_0 and GPU0 by pod train/train-0`.
fn holders(
    (view, preemptions): (&ClusterView, &Preemptions),
    node: &str,
    explained: &Explanation,
) -> Vec<String> {
    let mut all: Vec<(Option<String>, Vec<String>)> = Vec::new();
    for report in &explained.requests {
        let Some(Failure::InUse(devices)) = &report.failure else { continue };
        for (id, holder) in devices {
            let mut published = published(view, node).map(|(_, device)| device);
            let device = published.find(|device| device.id() == id);
            let name = device.map(|device| device_names::short(view, node, device));
            let name = name.unwrap_or_else(|| id.device.to_string());
            let holder = holder.as_ref().map(|claim| user(view, (node, preemptions), claim));
            match all.iter_mut().find(|(known, _)| *known == holder) {
                Some((_, names)) if names.contains(&name) => {}
                Some((_, names)) => names.push(name),
                None => all.push((holder, vec![name])),
            }
        }
    }
    let rest = all.len().saturating_sub(HOLDERS);
    let mut texts: Vec<String> = all
        .iter()
        .take(HOLDERS)
        .map(|(holder, names)| match holder {
            Some(holder) => format!("{} by {holder}", listed(names)),
            None => listed(names),
        })
        .collect();
    texts.extend((rest > 0).then(|| format!("and {rest} more")));
    texts
}

/// The pod that uses a claim, with its priority if it has one, or else the claim.
fn user(view: &ClusterView, (node, pods): (&str, &Preemptions), claim: &ClaimName) -> String {
    let key = ObjectKey { namespace: claim.namespace.to_string(), name: claim.name.to_string() };
    match view.claim(&key).and_then(|known| known.pod.as_ref()) {
        Some((pod, _)) => {
            let user = ObjectKey { namespace: key.namespace, name: pod.clone() };
            match pods.priority(node, &user) {
                Some(priority) => format!("pod {user} of priority {priority}"),
                None => format!("pod {user}"),
            }
        }
        None => format!("claim {key}"),
    }
}
