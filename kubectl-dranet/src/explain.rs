//! `explain`: why a pod is pending, and what would let it run.

mod changes;
mod devices;

use crate::Output;
use crate::args::{ExplainArgs, TextOrJson};
use crate::predicted::nodes;
use crate::source::{self, Seen};
use crate::subject::{self, Subject};
use crate::text::{counted, node_list};
use admission::admit::{AdmitError, admit};
use admission::plan::Policy;
use changes::Change;
use cluster_model::names::GATE_FABRIC;
use cluster_model::placement::Placement;
use cluster_model::predict::pod_claims;
use cluster_model::view::{ClusterView, ObjectKey};
use devices::Outcomes;
use dra_allocator::{Claim, ClaimName};
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What is to be said of a pod.
enum Answer {
    /// Nothing here keeps it, for this reason.
    Fine(String),
    /// It was never let in, or nothing is known of it.
    Refused(String),
    /// What each node says to its claims.
    Nodes(OnNodes),
}

/// What the nodes say to a pod.
struct OnNodes {
    /// Reasons that are not of a node.
    waits: Vec<String>,
    /// Nodes that the pod's own selectors leave out.
    not_selected: Vec<String>,
    outcomes: Outcomes,
    changes: Vec<Change>,
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Output> {
    let asked = args.admission.namespace.as_deref();
    let subjects = subject::read(&args.subject, &args.source, asked)?;
    let of_pod = subjects.first().and_then(|it| it.pod["metadata"]["namespace"].as_str());
    let Seen { view, namespace, notes } =
        source::read_as_admission(&args.source, &args.admission, of_pod)?;
    let policy = args.policy.policy();
    let mut output = Output { notes, ..Output::from(String::new()) };
    for Subject { pod, origin } in &subjects {
        let mut pod = pod.clone();
        if let (Value::Null, Some(namespace)) = (&pod["metadata"]["namespace"], &namespace) {
            pod["metadata"]["namespace"] = namespace.as_str().into();
        }
        let answer = answer(&pod, &view, &policy)?;
        output.denied |= match &answer {
            Answer::Fine(_) => false,
            Answer::Refused(_) => true,
            Answer::Nodes(nodes) => nodes.outcomes.fits.is_empty() || !nodes.waits.is_empty(),
        };
        output.text += &match args.output {
            TextOrJson::Text => person(origin, &answer)?,
            TextOrJson::Json => program(origin, &answer)?,
        };
    }
    Ok(output)
}

fn answer(pod: &Value, view: &ClusterView, policy: &Policy) -> anyhow::Result<Answer> {
    let typed: Pod = serde_json::from_value(pod.clone())?;
    let spec = typed.spec.clone().unwrap_or_default();
    if let Some(node) = &spec.node_name {
        return Ok(Answer::Fine(format!(
            "is bound to node {node}; `kubectl dranet verify` tells what it got there"
        )));
    }
    let verdict = match admit(pod, view, policy) {
        Ok(verdict) => verdict,
        Err(AdmitError::Denied(denial)) => {
            return Ok(Answer::Refused(format!("is denied: {denial}")));
        }
        Err(error) => return Err(error.into()),
    };
    let mut waits: Vec<String> = spec.scheduling_gates.iter().flatten().map(gate).collect();
    let mut candidates: Vec<&str> = nodes(view).collect();
    let mut claims = Vec::new();
    if let Some(planned) = &verdict.planned {
        claims.push(Claim::from_spec(ClaimName::new("", "dranet"), &planned.plan.claim)?);
    }
    let known = match pod_claims(&typed, view) {
        Ok(known) => known,
        Err(reason) => return Ok(Answer::Refused(format!("cannot be scheduled: {reason}"))),
    };
    for open in &known.open {
        match open.parse() {
            Ok(claim) => claims.push(claim),
            Err(reason) => return Ok(Answer::Refused(format!("cannot be scheduled: {reason}"))),
        }
    }
    for key in &known.allocated {
        let claim = ClaimName::new(key.namespace.as_str(), key.name.as_str());
        let pools: BTreeSet<_> =
            view.inventory().held_by(&claim).map(|device| device.pool.to_string()).collect();
        candidates.retain(|node| pools.contains(*node));
        let pools: Vec<_> = pools.iter().map(String::as_str).collect();
        waits.extend(elsewhere(view, key, &typed, &pools));
    }
    if claims.is_empty() && known.allocated.is_empty() {
        return Ok(Answer::Fine(
            "asks for no devices: it has no claim and no annotation dranet.io/aligned-nics".into(),
        ));
    }
    let placement = Placement::of(&typed);
    let (candidates, not_selected): (Vec<&str>, Vec<&str>) =
        candidates.into_iter().partition(|node| placement.allows(view, node));
    let outcomes = Outcomes::of(view, &candidates, &claims)?;
    let changes = if outcomes.fits.is_empty() {
        changes::smallest(pod, view, policy, &candidates, (&outcomes, &claims))?
    } else {
        Vec::new()
    };
    let not_selected = not_selected.into_iter().map(str::to_owned).collect();
    Ok(Answer::Nodes(OnNodes { waits, not_selected, outcomes, changes }))
}

fn gate(gate: &PodSchedulingGate) -> String {
    match gate.name.as_str() {
        GATE_FABRIC => "the scheduler does not look at it yet: no fabric is \
                                              chosen for its group (gate dranet.io/fabric)"
            .to_owned(),
        other => format!("the scheduler does not look at it yet: scheduling gate {other}"),
    }
}

/// A claim that another pod has takes the pod to that one's node.
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

fn person(origin: &str, answer: &Answer) -> anyhow::Result<String> {
    let nodes = match answer {
        Answer::Fine(text) => return Ok(format!("{origin} {text}.\n")),
        Answer::Refused(text) => return Ok(format!("{origin} {text}\n")),
        Answer::Nodes(nodes) => nodes,
    };
    let OnNodes { waits, not_selected, outcomes, changes } = nodes;
    let all = outcomes.looked_at() + not_selected.len();
    let mut out = match outcomes.fits.len() {
        0 => format!("{origin} fits on none of {}.\n", counted(all, "node")),
        fits => format!("{origin} fits on {fits} of {} now.\n", counted(all, "node")),
    };
    for wait in waits {
        writeln!(out, "It waits: {wait}.")?;
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
            "\n{}: left out by the pod's nodeSelector or node affinity",
            node_list(&names)
        )?;
    }
    if !changes.is_empty() {
        writeln!(out, "\nEach of these would let it run:")?;
        changes.iter().try_for_each(|change| writeln!(out, "  - {change}"))?;
    } else if outcomes.fits.is_empty() && outcomes.looked_at() > 0 {
        writeln!(out, "\nNo single change of its claims or of what is in use would let it run.")?;
    }
    Ok(out)
}

fn program(origin: &str, answer: &Answer) -> anyhow::Result<String> {
    let value = match answer {
        Answer::Fine(text) => json!({ "pod": origin, "message": text }),
        Answer::Refused(text) => json!({ "pod": origin, "refused": text }),
        Answer::Nodes(OnNodes { waits, not_selected, outcomes, changes }) => {
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
            json!({
                "pod": origin,
                "waits": waits,
                "fits": outcomes.fits,
                "groups": groups,
                "notSelected": not_selected,
                "changes": changes,
            })
        }
    };
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}
