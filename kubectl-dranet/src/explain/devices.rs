//! The result of claims on each node, and which nodes have the same result.

use crate::answer::ExplainGroup;
use crate::device_names;
use crate::predicted::verdict;
use crate::text::{counted, listed, short};
use cluster_model::node_devices::published;
use cluster_model::predict::Prediction;
use cluster_model::room::{Attempt, Room, WhyNot};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::ClaimName;
use dra_allocator::explain::{Explanation, Failure, RequestReport};
use std::collections::BTreeMap;

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
    pub(super) fn new(room: &Room<'_>, attempt: &Attempt<'_, '_>) -> anyhow::Result<Self> {
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
                group.reasons.extend(reasons(&explained));
                group.in_use = holders(room.view(), first, &explained);
                group.relaxations = explained.relaxations;
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

/// One line for each request; alternatives that fail alike share one. Requests of a class without
/// devices come first: while there are none, nothing else would help.
///
/// Leaves out alternatives for other machines: those whose selector too few devices pass, while
/// there is another alternative whose selector enough devices pass.
fn reasons(explained: &Explanation) -> Vec<String> {
    let mut lines: Vec<(String, String, usize)> = Vec::new();
    let all = &explained.requests;
    let failed = all.iter().filter(|report| report.failure.is_some());
    let failed = failed.filter(|report| {
        let mut others = all.iter().filter(|other| is_of_same_request(report, other));
        !is_by_selector(report) || others.all(is_by_selector)
    });
    let (absent, others): (Vec<_>, Vec<_>) =
        failed.partition(|report| matches!(report.failure, Some(Failure::Class { left: 0, .. })));
    for report in absent.into_iter().chain(others) {
        let request = name(report).to_owned();
        let reason = reason(report);
        let known = lines.iter_mut().find(|(known, text, _)| *known == request && *text == reason);
        match known {
            Some((_, _, count)) => *count += 1,
            None => lines.push((request, reason, 1)),
        }
    }
    lines
        .into_iter()
        .map(|(request, reason, count)| match count {
            1 => format!("request {request}: {reason}"),
            count => format!("request {request}, {count} alternatives: {reason}"),
        })
        .collect()
}

/// The request's name, without that of the alternative.
fn name(report: &RequestReport) -> &str {
    report.request.split('/').next().unwrap_or_default()
}

fn is_of_same_request(one: &RequestReport, other: &RequestReport) -> bool {
    one.claim == other.claim && name(one) == name(other)
}

fn is_by_selector(report: &RequestReport) -> bool {
    matches!(report.failure, Some(Failure::Selector { .. }))
}

/// Leaves out what differs between equal nodes: which devices, and who holds them.
fn reason(report: &RequestReport) -> String {
    let needed = report.needed;
    match &report.failure {
        Some(Failure::InUse(devices)) => {
            format!("needs {needed}; in use: {} of the suitable ones", devices.len())
        }
        Some(Failure::Tainted(taints)) => {
            let mut texts: Vec<String> =
                taints.iter().map(|(_, taint)| taint.to_string()).collect();
            texts.sort_unstable();
            texts.dedup();
            let has = if taints.len() == 1 { "has" } else { "have" };
            format!("needs {needed}; {} {has} a taint: {}", taints.len(), texts.join(", "))
        }
        Some(Failure::Class { class, left, .. }) => {
            let is = if *left == 1 { "is" } else { "are" };
            format!("needs {needed}; {} {is} of class `{class}`", counted(*left, "device"))
        }
        Some(Failure::Selector { expression, part, missing, left }) => {
            let of_part = if part == expression { "" } else { "part of the " };
            let part = short(part);
            match (missing.as_slice(), left) {
                ([], _) => {
                    let pass = if *left == 1 { "passes" } else { "pass" };
                    let devices = counted(*left, "device");
                    format!("needs {needed}; {devices} {pass} the {of_part}selector `{part}`")
                }
                (missing, 0) => format!(
                    "needs {needed}; no device has {}, which the selector requires: `{part}`",
                    missing.join(", ")
                ),
                (missing, left) => format!(
                    "needs {needed}; {left} pass the {of_part}selector, and none of the others \
                     has {}: `{part}`",
                    missing.join(", ")
                ),
            }
        }
        // A parser shows the place on separate lines.
        Some(Failure::Compile { expression, error }) => {
            let error = error.to_string();
            let error = error.lines().next().unwrap_or_default();
            format!("needs {needed}; {error}, in the selector `{}`", short(expression))
        }
        Some(Failure::Runtime { expression, device, error }) => format!(
            "needs {needed}; {error}, on device {device}, in the selector `{}`",
            short(expression)
        ),
        Some(failure) => format!("needs {needed}; {failure}"),
        None => String::new(),
    }
}

/// Who holds suitable devices: `mlx5_0 and GPU0 by pod train/train-0`.
fn holders(view: &ClusterView, node: &str, explained: &Explanation) -> Vec<String> {
    let mut all: Vec<(Option<String>, Vec<String>)> = Vec::new();
    for report in &explained.requests {
        let Some(Failure::InUse(devices)) = &report.failure else { continue };
        for (id, holder) in devices {
            let mut published = published(view, node).map(|(_, device)| device);
            let device = published.find(|device| device.id() == id);
            let name = device.map(|device| device_names::short(view, node, device));
            let name = name.unwrap_or_else(|| id.device.to_string());
            let holder = holder.as_ref().map(|claim| user(view, claim));
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

/// The pod that uses a claim, or else the claim.
fn user(view: &ClusterView, claim: &ClaimName) -> String {
    let key = ObjectKey { namespace: claim.namespace.to_string(), name: claim.name.to_string() };
    match view.claim(&key).and_then(|known| known.pod.as_ref()) {
        Some((pod, _)) => format!("pod {}/{pod}", key.namespace),
        None => format!("claim {key}"),
    }
}
