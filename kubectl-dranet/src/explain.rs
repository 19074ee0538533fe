//! `explain`: why a pod is pending, and what would let it run.

mod changes;
mod devices;

use crate::Output;
use crate::args::{ExplainArgs, Form};
use crate::predicted::{nodes, pools_of};
use crate::settings;
use crate::source::Seen;
use crate::subject::{self, Subject};
use crate::text::{self, counted, node_list};
use admission::admit::{AdmitError, admit};
use admission::plan::Policy;
use changes::Change;
use cluster_model::names::GATE_FABRIC;
use cluster_model::placement::Placement;
use cluster_model::predict::pod_claims;
use cluster_model::view::{ClusterView, ObjectKey};
use devices::Outcomes;
use dra_allocator::{Claim, ClaimName};
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate, PodSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Returns why a node is excluded for a pod, other than by its claims and its own selectors; `None`
/// if it is not excluded.
pub(crate) type Bar<'b> = &'b dyn Fn(&str) -> Option<String>;

/// The explanation of a pod.
pub(crate) enum Answer {
    /// Nothing keeps it from running, for this reason.
    Fine(String),
    /// It was not admitted, or nothing is known about it.
    Refused(String),
    /// The results of its claims on the nodes.
    Nodes(OnNodes),
}

/// The results of a pod on the nodes.
pub(crate) struct OnNodes {
    /// Reasons that do not concern a single node.
    waits: Vec<String>,
    /// What may keep it from running, but cannot be checked here.
    remarks: Vec<String>,
    /// Nodes that the pod's own selectors exclude.
    not_selected: Vec<String>,
    /// Other excluded nodes, by reason.
    barred: BTreeMap<String, Vec<String>>,
    outcomes: Outcomes,
    changes: Vec<Change>,
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Output> {
    let (subjects, seen) = subject::read(&args.subject, &args.source, &args.admission)?;
    let policy = settings::policy(&args.policy, &seen.kept);
    let Seen { view, notes, .. } = seen;
    let mut output = Output { notes, ..Output::from(String::new()) };
    let mut answers = Vec::new();
    for Subject { pod, origin, .. } in &subjects {
        let answer = answer(pod, &view, &policy, &|_| None)?;
        output.denied |= answer.is_kept();
        match args.output {
            Form::Text => output.text += &person(origin, &answer)?,
            Form::Json | Form::Yaml => answers.push(program(origin, &answer)),
        }
    }
    output.text += &text::documents(&answers, args.output == Form::Yaml)?;
    Ok(output)
}

impl Answer {
    /// Whether something keeps the pod from running.
    fn is_kept(&self) -> bool {
        match self {
            Self::Fine(_) => false,
            Self::Refused(_) => true,
            Self::Nodes(nodes) => nodes.outcomes.fits.is_empty() || !nodes.waits.is_empty(),
        }
    }
}

/// Explains a pod in the cluster as it is.
pub(crate) fn answer(
    pod: &Value,
    view: &ClusterView,
    policy: &Policy,
    bar: Bar<'_>,
) -> anyhow::Result<Answer> {
    let typed: Pod = serde_json::from_value(pod.clone())?;
    let spec = typed.spec.clone().unwrap_or_default();
    if let Some(node) = &spec.node_name {
        return Ok(Answer::Fine(format!(
            "is bound to node {node}; `kubectl dranet verify` shows what it got there"
        )));
    }
    let verdict = match admit(pod, view, policy) {
        Ok(verdict) => verdict,
        Err(AdmitError::Denied(denial)) => {
            return Ok(Answer::Refused(format!("is denied: {denial}")));
        }
        Err(error) => return Err(error.into()),
    };
    let is_made = typed.metadata.uid.is_some();
    if is_made && verdict.planned.is_some() {
        return Ok(Answer::Refused(
            "was created without the webhook: it has annotations but no claim; see `kubectl dranet \
             doctor`, and create it again"
                .to_owned(),
        ));
    }
    let scheduler = spec.scheduler_name.as_deref().and_then(scheduler);
    let remarks = scheduler.into_iter().chain(not_looked_at(&spec)).collect();
    let mut waits: Vec<String> = spec.scheduling_gates.iter().flatten().map(gate).collect();
    let mut candidates: Vec<&str> = nodes(view).collect();
    let mut claims = Vec::new();
    if let Some(planned) = &verdict.planned {
        claims.push(Claim::from_spec(ClaimName::new("", "dranet"), &planned.plan.claim)?);
    }
    let known = match pod_claims(&typed, view) {
        Ok(known) => known,
        Err(reason) => {
            let reason = not_there(&typed, view).unwrap_or(reason);
            return Ok(Answer::Refused(format!("cannot be scheduled: {reason}")));
        }
    };
    for open in &known.open {
        match open.parse() {
            Ok(claim) => claims.push(claim),
            Err(reason) => return Ok(Answer::Refused(format!("cannot be scheduled: {reason}"))),
        }
    }
    for key in &known.allocated {
        let pools = pools_of(view, key);
        candidates.retain(|node| pools.contains(*node));
        let pools: Vec<_> = pools.iter().map(String::as_str).collect();
        waits.extend(elsewhere(view, key, &typed, &pools));
    }
    if claims.is_empty() && known.allocated.is_empty() {
        return Ok(Answer::Fine(
            "requests no devices: it has neither a claim nor the annotation dranet.io/aligned-nics"
                .into(),
        ));
    }
    let placement = Placement::of(&typed);
    let (candidates, not_selected): (Vec<&str>, Vec<&str>) =
        candidates.into_iter().partition(|node| placement.allows(view, node));
    let mut barred: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut is_open = |node: &&str| match bar(node) {
        None => true,
        Some(why) => {
            barred.entry(why).or_default().push((*node).to_owned());
            false
        }
    };
    let candidates: Vec<&str> = candidates.into_iter().filter(|node| is_open(node)).collect();
    let outcomes = Outcomes::of(view, &candidates, &claims)?;
    let changes = if outcomes.fits.is_empty() {
        changes::smallest(pod, view, policy, &candidates, (&outcomes, &claims))?
    } else {
        Vec::new()
    };
    let not_selected = not_selected.into_iter().map(str::to_owned).collect();
    Ok(Answer::Nodes(OnNodes { waits, remarks, not_selected, barred, outcomes, changes }))
}

/// Returns a text about the first missing template or claim that a pod names.
fn not_there(pod: &Pod, view: &ClusterView) -> Option<String> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let entries = pod.spec.as_ref()?.resource_claims.iter().flatten();
    entries.into_iter().find_map(|entry| {
        let key = |name: &String| ObjectKey { namespace: namespace.clone(), name: name.clone() };
        let template = entry.resource_claim_template_name.as_ref().map(key);
        let claim = entry.resource_claim_name.as_ref().map(key);
        let (kind, key) = match (template, claim) {
            (Some(key), _) if view.template(&key).is_none() => ("ResourceClaimTemplate", key),
            (None, Some(key)) if view.claim(&key).is_none() => ("ResourceClaim", key),
            _ => return None,
        };
        Some(format!("there is no {kind} `{key}`, which its claim `{}` needs", entry.name))
    })
}

/// Returns a remark about rules on other pods, which only kube-scheduler evaluates.
pub(crate) fn not_looked_at(spec: &PodSpec) -> Option<String> {
    let affinity = spec.affinity.as_ref();
    let near = affinity.and_then(|it| it.pod_affinity.as_ref());
    let away = affinity.and_then(|it| it.pod_anti_affinity.as_ref());
    let near = near.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let away = away.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let mut spread = spec.topology_spread_constraints.iter().flatten();
    let rules = [
        (near.is_some_and(|terms| !terms.is_empty()), "pod affinity"),
        (away.is_some_and(|terms| !terms.is_empty()), "pod anti-affinity"),
        (spread.any(|it| it.when_unsatisfiable == "DoNotSchedule"), "topology spread constraints"),
    ];
    let rules: Vec<&str> = rules.iter().filter(|(is_there, _)| *is_there).map(|it| it.1).collect();
    (!rules.is_empty()).then(|| {
        format!("not checked: its {}, which may exclude more nodes", rules.join(" and its "))
    })
}

/// Returns a remark about a scheduler other than Kubernetes' own.
fn scheduler(name: &str) -> Option<String> {
    let is_other = !matches!(name, "" | "default-scheduler");
    is_other.then(|| {
        format!(
            "scheduler `{name}` places it; it is unknown whether that scheduler runs and supports claims"
        )
    })
}

fn gate(gate: &PodSchedulingGate) -> String {
    match gate.name.as_str() {
        GATE_FABRIC => "the scheduler does not consider it yet: no fabric is \
                                              chosen for its group (gate dranet.io/fabric)"
            .to_owned(),
        other => format!("the scheduler does not consider it yet: scheduling gate {other}"),
    }
}

/// Returns a remark if another pod uses the claim: the pod can then run only on that pod's node.
fn elsewhere(view: &ClusterView, key: &ObjectKey, pod: &Pod, nodes: &[&str]) -> Option<String> {
    let (holder, _) = view.claim(key)?.pod.as_ref()?;
    let is_other = pod.metadata.name.as_deref() != Some(holder);
    is_other.then(|| {
        format!(
            "its claim {} has devices already, which pod {holder} uses: it can run on {} only",
            key.name,
            node_list(nodes)
        )
    })
}

/// Human-readable answer.
pub(crate) fn person(origin: &str, answer: &Answer) -> anyhow::Result<String> {
    let nodes = match answer {
        Answer::Fine(text) => return Ok(format!("{origin} {text}.\n")),
        Answer::Refused(text) => return Ok(format!("{origin} {text}\n")),
        Answer::Nodes(nodes) => nodes,
    };
    let OnNodes { waits, remarks, not_selected, barred, outcomes, changes } = nodes;
    let all =
        outcomes.looked_at() + not_selected.len() + barred.values().map(Vec::len).sum::<usize>();
    let mut out = match outcomes.fits.len() {
        0 => format!("{origin} fits on none of {}.\n", counted(all, "node")),
        fits => format!("{origin} fits on {fits} of {} now.\n", counted(all, "node")),
    };
    for wait in waits {
        writeln!(out, "It waits: {wait}.")?;
    }
    for remark in remarks {
        writeln!(out, "Note: {remark}.")?;
    }
    if !outcomes.fits.is_empty() {
        let fits: Vec<_> = outcomes.fits.iter().map(String::as_str).collect();
        writeln!(out, "\n{}: fits", node_list(&fits))?;
    }
    for group in &outcomes.groups {
        let names: Vec<_> = group.nodes.iter().map(String::as_str).collect();
        writeln!(out, "\n{}: {}", node_list(&names), group.verdict)?;
        group.reasons.iter().try_for_each(|reason| writeln!(out, "  {reason}"))?;
        if !group.holders.is_empty() {
            writeln!(out, "  in use on {}: {}", names[0], group.holders.join(", "))?;
        }
    }
    if !not_selected.is_empty() {
        let names: Vec<_> = not_selected.iter().map(String::as_str).collect();
        writeln!(
            out,
            "\n{}: excluded by the pod's nodeSelector or node affinity",
            node_list(&names)
        )?;
    }
    for (why, nodes) in barred {
        let names: Vec<_> = nodes.iter().map(String::as_str).collect();
        writeln!(out, "\n{}: {why}", node_list(&names))?;
    }
    if !changes.is_empty() {
        writeln!(out, "\nEach of these changes would let it run:")?;
        changes.iter().try_for_each(|change| writeln!(out, "  - {change}"))?;
    } else if outcomes.fits.is_empty() && outcomes.looked_at() > 0 {
        writeln!(out, "\nNo single change of its claims or of what is in use would let it run.")?;
    }
    Ok(out)
}

/// Machine-readable answer.
pub(crate) fn program(origin: &str, answer: &Answer) -> Value {
    match answer {
        Answer::Fine(text) => json!({ "pod": origin, "message": text }),
        Answer::Refused(text) => json!({ "pod": origin, "refused": text }),
        Answer::Nodes(OnNodes { waits, remarks, not_selected, barred, outcomes, changes }) => {
            let groups: Vec<_> = outcomes
                .groups
                .iter()
                .map(|group| {
                    json!({
                        "nodes": group.nodes,
                        "verdict": group.verdict,
                        "reasons": group.reasons,
                        "inUse": group.holders,
                    })
                })
                .collect();
            let changes: Vec<_> = changes
                .iter()
                .map(|change| json!({ "change": change.text, "nodes": change.nodes }))
                .collect();
            let mut answer = json!({
                "pod": origin,
                "waits": waits,
                "remarks": remarks,
                "fits": outcomes.fits,
                "groups": groups,
                "notSelected": not_selected,
                "changes": changes,
            });
            if !barred.is_empty() {
                let barred =
                    barred.iter().map(|(why, nodes)| json!({ "why": why, "nodes": nodes }));
                answer["barred"] = barred.collect();
            }
            answer
        }
    }
}
