//! `explain`: why a pod is pending, and what would let it run.

mod changes;
mod devices;
mod down;
mod late;
pub(crate) mod quota;
mod remarks;
mod withheld;

use crate::Output;
use crate::answer::{
    Barred, Explain, ExplainAtStart, ExplainChange, ExplainFine, ExplainNodes, ExplainRefused,
};
use crate::args::{ExplainArgs, Form};
use crate::barriers::{Barriers, NOT_SELECTED, Needs};
use crate::extended::Extended;
use crate::fabric_condition::why_waiting;
use crate::kinds::USE;
use crate::predicted::{nodes, pools_of};
use crate::settings;
use crate::source::Seen;
use crate::subject::{self, Subject};
use crate::text::{self, counted, node_list, of_nodes};
use admission::admit::{AdmitError, Verdict, admit};
use admission::plan::Policy;
use admission::rewrite::CLAIM;
use cluster_model::names::GATE_FABRIC;
use cluster_model::placement::Placement;
use cluster_model::predict::{PodClaims, pod_claims};
use cluster_model::view::{ClusterView, ObjectKey};
use devices::Outcomes;
use dra_allocator::{Claim, ClaimName};
use fabric_controller::requirements::PodRequirements;
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
pub(crate) use remarks::not_looked_at;
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The cluster in which a pod is explained.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'c> {
    pub(crate) view: &'c ClusterView,
    pub(crate) policy: &'c Policy,
    pub(crate) barriers: &'c Barriers,
    /// The fabric that is chosen for the pod's group.
    pub(crate) fabric: Option<&'c str>,
    /// ResourceQuotas.
    pub(crate) quotas: &'c [Value],
}

/// The explanation of a pod.
pub(crate) enum Answer {
    /// Nothing keeps it from running, for this reason.
    Fine(String),
    /// It was not admitted, or nothing is known about it.
    Refused(String),
    /// The results of its claims on the nodes.
    Nodes(Box<OnNodes>),
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
    /// Sentences about devices that are down or tainted, and without which it would fit.
    down: Vec<String>,
    /// Sentences about NICs that nodes do not publish.
    withheld: Vec<String>,
    outcomes: Outcomes,
    changes: Vec<ExplainChange>,
    /// What the pod can expect when it starts on nodes that bind NICs late.
    at_start: Vec<ExplainAtStart>,
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Output> {
    let (mut subjects, mut seen) = subject::read(&args.subject, &args.source, &args.admission)?;
    seen.must_know(&USE)?;
    subject::put_into(&mut subjects, "default");
    let policy = settings::policy(&args.policy, &seen.kept);
    let barriers = seen.groups()?;
    let quotas: Vec<Value> = seen.of_kind("ResourceQuota").cloned().collect();
    let Seen { view, notes, .. } = seen;
    let (policy, barriers, quotas) = (&policy, &barriers, &quotas);
    let scene = Scene { view: &view, policy, barriers, fabric: None, quotas };
    let mut output = Output { notes, ..Output::from(String::new()) };
    let mut answers = Vec::new();
    for Subject { pod, origin, .. } in &subjects {
        let answer = answer(pod, scene)?;
        output.denied |= answer.is_kept();
        match args.output {
            Form::Text => output.text += &person(origin, &answer)?,
            Form::Json | Form::Yaml => {
                answers.push(serde_json::to_value(program(origin, answer))?);
            }
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
pub(crate) fn answer(pod: &Value, scene: Scene<'_>) -> anyhow::Result<Answer> {
    let typed: Pod = serde_json::from_value(pod.clone())?;
    if let Some(node) = typed.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) {
        return Ok(late::bound(&typed, scene.view, node));
    }
    match admitted(pod, typed.metadata.uid.is_some(), scene)? {
        Ok(verdict) => of_admitted(pod, &verdict, scene),
        Err(refusal) => Ok(Answer::Refused(refusal)),
    }
}

/// What the webhook makes of the pod, or why no scheduler gets to see it as it should be.
fn admitted(
    pod: &Value,
    is_made: bool,
    Scene { view, policy, .. }: Scene<'_>,
) -> anyhow::Result<Result<Verdict, String>> {
    Ok(match admit(pod, view, policy) {
        Ok(verdict) if is_made && verdict.planned.is_some() => Err(
            "was created without the webhook: it has annotations but no claim; see `kubectl dranet \
             doctor`, and create it again"
                .to_owned(),
        ),
        Ok(verdict) => Ok(verdict),
        Err(AdmitError::Denied(denial)) => Err(format!("is denied: {denial}")),
        Err(error) => return Err(error.into()),
    })
}

fn of_admitted(pod: &Value, verdict: &Verdict, scene: Scene<'_>) -> anyhow::Result<Answer> {
    let view = scene.view;
    let admitted = Pod::deserialize(&verdict.pod)?;
    let (claims, known) = match claims(&admitted, verdict, view) {
        Ok(found) => found,
        Err(reason) => return Ok(Answer::Refused(format!("cannot be scheduled: {reason}"))),
    };
    let own = PodRequirements::new(&admitted, None);
    let extended = Extended::new(&own.requests, view);
    let needs = Needs { own, extended, fabric: scene.fabric.map(str::to_owned) };
    if claims.is_empty() && known.allocated.is_empty() && needs.extended.is_none() {
        return Ok(without_devices(&admitted, &verdict.warnings, &needs, scene));
    }
    let planned = verdict.planned.as_ref().map(|planned| &planned.plan.claim);
    let refused = quota::refusal(&admitted, planned, &known, scene.quotas, view);
    let mut answer = on_nodes((pod, &admitted), (&claims, &known), &needs, scene)?;
    if let Answer::Nodes(nodes) = &mut answer {
        nodes.waits.extend(refused);
        nodes.at_start = late::at_start(view, &nodes.outcomes.fits, (planned, &known), &claims);
    }
    Ok(answer)
}

/// The open claims of an admitted pod in the allocator's form, and all its claims.
///
/// # Errors
/// Why the pod cannot be scheduled.
pub(crate) fn claims(
    pod: &Pod,
    verdict: &Verdict,
    view: &ClusterView,
) -> Result<(Vec<Claim>, PodClaims), String> {
    let mut claims = Vec::new();
    let mut pod = pod.clone();
    if let Some(planned) = &verdict.planned {
        let claim = Claim::from_spec(ClaimName::new("", "dranet"), &planned.plan.claim);
        claims.push(claim.map_err(|error| error.to_string())?);
        // Its template is not in the view.
        let spec = pod.spec.get_or_insert_default();
        spec.resource_claims.iter_mut().for_each(|all| all.retain(|it| it.name != CLAIM));
    }
    let known = pod_claims(&pod, view);
    let known = known.map_err(|reason| not_there(&pod, view).unwrap_or(reason))?;
    for open in &known.open {
        claims.push(open.parse()?);
    }
    Ok((claims, known))
}

/// The answer about a pod that requests no devices: usually nothing, but a misspelt annotation is
/// why it requests none.
fn without_devices(pod: &Pod, warnings: &[String], needs: &Needs, scene: Scene<'_>) -> Answer {
    let why = "requests no devices: it has neither a claim nor the annotation \
               dranet.io/aligned-nics";
    if let [first, ..] = warnings {
        return Answer::Refused(format!("{why}; {first}"));
    }
    let Scene { view, barriers, .. } = scene;
    let placement = Placement::new(pod);
    let mut why_not: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in nodes(view) {
        let barred = barriers.keeps_off(view, (&placement, needs), node);
        let Some(reason) = barred else { return Answer::Fine(why.to_owned()) };
        why_not.entry(reason).or_default().push(node);
    }
    if why_not.is_empty() {
        return Answer::Fine(why.to_owned());
    }
    let reasons = why_not.iter().map(|(why, nodes)| of_nodes(nodes, why));
    let reasons: Vec<_> = reasons.collect();
    Answer::Refused(format!("requests no devices and fits on no node; {}", reasons.join("; ")))
}

/// The answer about a pod with claims, node by node.
fn on_nodes(
    (pod, admitted): (&Value, &Pod),
    (claims, known): (&[Claim], &PodClaims),
    needs: &Needs,
    scene: Scene<'_>,
) -> anyhow::Result<Answer> {
    let Scene { view, policy, barriers, .. } = scene;
    let spec = admitted.spec.clone().unwrap_or_default();
    // A pod from a file has no gate yet, except for its group's fabric if that is not chosen.
    let gates = spec.scheduling_gates.iter().flatten();
    let gates = gates.filter(|gate| scene.fabric.is_none() || gate.name != GATE_FABRIC);
    let mut waits: Vec<String> = gates.map(|it| gate(it, why_waiting(pod))).collect();
    let mut candidates: Vec<&str> = nodes(view).collect();
    for key in &known.allocated {
        let pools = pools_of(view, key);
        candidates.retain(|node| pools.contains(*node));
        let pools: Vec<_> = pools.iter().map(String::as_str).collect();
        waits.extend(elsewhere(view, key, admitted, &pools));
    }
    let placement = Placement::new(admitted);
    let (candidates, not_selected): (Vec<&str>, Vec<&str>) =
        candidates.into_iter().partition(|node| placement.allows(view, node));
    let mut barred: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut is_open = |node: &&str| match barriers.bar(view, needs, node) {
        None => true,
        Some(why) => {
            barred.entry(why).or_default().push((*node).to_owned());
            false
        }
    };
    let candidates: Vec<&str> = candidates.into_iter().filter(|node| is_open(node)).collect();
    let mut outcomes = Outcomes::default();
    let (mut down, mut withheld) = (Vec::new(), Vec::new());
    let mut changes = Vec::new();
    for (nodes, claims) in by_claims(&candidates, claims, needs, barriers)? {
        outcomes.extend(Outcomes::new(view, &nodes, &claims)?);
        if outcomes.fits.is_empty() {
            down.extend(down::sentences(view, &nodes, &claims));
            withheld.extend(withheld::sentences(view, &nodes));
            changes.extend(changes::smallest(pod, view, policy, &nodes, (&outcomes, &claims))?);
        }
    }
    if !outcomes.fits.is_empty() {
        (down, withheld, changes) = (Vec::new(), Vec::new(), Vec::new());
    }
    let not_selected = not_selected.into_iter().map(str::to_owned).collect();
    Ok(Answer::Nodes(Box::new(OnNodes {
        waits,
        remarks: remarks::about(admitted),
        not_selected,
        barred,
        down,
        withheld,
        outcomes,
        changes,
        at_start: Vec::new(),
    })))
}

/// The claims that the pod has on each of these nodes: where no device plugin offers an extended
/// resource, a claim stands for it.
pub(crate) fn by_claims<'n>(
    nodes: &[&'n str],
    claims: &[Claim],
    needs: &Needs,
    barriers: &Barriers,
) -> anyhow::Result<Vec<(Vec<&'n str>, Vec<Claim>)>> {
    let Some(extended) = &needs.extended else {
        return Ok(vec![(nodes.to_vec(), claims.to_vec())]);
    };
    let mut by_missing: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        let missing = barriers.nodes.get(node).map(|facts| extended.missing_on(facts));
        by_missing.entry(missing.unwrap_or_default()).or_default().push(node);
    }
    by_missing
        .into_iter()
        .map(|(missing, nodes)| {
            let mut claims = claims.to_vec();
            if !missing.is_empty() {
                claims.push(extended.claim(&missing)?.0);
            }
            anyhow::Ok((nodes, claims))
        })
        .collect()
}

/// Returns a text about the first missing template or claim that a pod names.
fn not_there(pod: &Pod, view: &ClusterView) -> Option<String> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let entries = pod.spec.as_ref()?.resource_claims.iter().flatten();
    entries.into_iter().find_map(|entry| {
        let key = |name: &String| ObjectKey { namespace: namespace.clone(), name: name.clone() };
        if entry.resource_claim_template_name.is_none() && entry.resource_claim_name.is_none() {
            return Some(format!(
                "its claim `{}` names neither a resourceClaimName nor a resourceClaimTemplateName, so \
                 the API server refuses it; before Kubernetes 1.31 they were in a field `source`",
                entry.name
            ));
        }
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

/// Why the scheduler does not consider a pod with this gate; `group` is why its group has no fabric.
fn gate(gate: &PodSchedulingGate, group: Option<&str>) -> String {
    let what = match (gate.name.as_str(), group) {
        (GATE_FABRIC, None) => {
            "no fabric is chosen for its group (gate dranet.io/fabric)".to_owned()
        }
        (GATE_FABRIC, Some(why)) => format!("no fabric is chosen for its group: {why}"),
        (other, _) => format!("scheduling gate {other}"),
    };
    format!("the scheduler does not consider it yet: {what}")
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
    let OnNodes { waits, remarks, not_selected, barred, down, withheld, outcomes, .. } = &**nodes;
    let all =
        outcomes.looked_at() + not_selected.len() + barred.values().map(Vec::len).sum::<usize>();
    let mut out = String::new();
    for wait in waits {
        writeln!(out, "{origin} waits: {wait}.")?;
    }
    let who = if waits.is_empty() { origin } else { "Its claim" };
    match outcomes.fits.len() {
        0 => writeln!(out, "{who} fits on none of {}.", counted(all, "node"))?,
        fits => writeln!(out, "{who} fits on {fits} of {} now.", counted(all, "node"))?,
    }
    for sentence in down.iter().chain(withheld) {
        writeln!(out, "{sentence}.")?;
    }
    if !nodes.changes.is_empty() {
        writeln!(out, "\nEach of these changes would let it run:")?;
        nodes.changes.iter().try_for_each(|change| writeln!(out, "  - {change}"))?;
    }
    if !outcomes.fits.is_empty() {
        let fits: Vec<_> = outcomes.fits.iter().map(String::as_str).collect();
        writeln!(out, "\n{}", of_nodes(&fits, "fits"))?;
    }
    nodes.at_start.iter().try_for_each(|alike| writeln!(out, "\n{}", late::sentence(alike)))?;
    for group in &outcomes.groups {
        let names: Vec<_> = group.nodes.iter().map(String::as_str).collect();
        writeln!(out, "\n{}", of_nodes(&names, &group.verdict))?;
        group.reasons.iter().try_for_each(|reason| writeln!(out, "  {reason}"))?;
        if !group.in_use.is_empty() {
            writeln!(out, "  in use on {}: {}", names[0], group.in_use.join(", "))?;
        }
    }
    if !not_selected.is_empty() {
        let names: Vec<_> = not_selected.iter().map(String::as_str).collect();
        writeln!(out, "\n{}: {NOT_SELECTED}", node_list(&names))?;
    }
    for (why, nodes) in barred {
        let names: Vec<_> = nodes.iter().map(String::as_str).collect();
        writeln!(out, "\n{}", of_nodes(&names, why))?;
    }
    let has_remedy = !nodes.changes.is_empty() || !down.is_empty();
    if !has_remedy && outcomes.fits.is_empty() && outcomes.looked_at() > 0 {
        writeln!(out, "\nNo single change of its claims or of what is in use would let it run.")?;
    }
    if !remarks.is_empty() {
        out.push('\n');
        remarks.iter().try_for_each(|remark| writeln!(out, "Note: {remark}."))?;
    }
    Ok(out)
}

/// Machine-readable answer.
pub(crate) fn program(origin: &str, answer: Answer) -> Explain {
    let pod = origin.to_owned();
    let nodes = match answer {
        Answer::Fine(message) => return Explain::Fine(ExplainFine { pod, message }),
        Answer::Refused(refused) => return Explain::Refused(ExplainRefused { pod, refused }),
        Answer::Nodes(nodes) => *nodes,
    };
    let Outcomes { fits, groups } = nodes.outcomes;
    let barred = nodes.barred.into_iter().map(|(why, nodes)| Barred { why, nodes });
    Explain::Nodes(Box::new(ExplainNodes {
        pod,
        waits: nodes.waits,
        remarks: nodes.remarks,
        fits,
        groups,
        not_selected: nodes.not_selected,
        barred: if_any(barred.collect()),
        down: if_any(nodes.down),
        at_start: if_any(nodes.at_start),
        withheld: if_any(nodes.withheld),
        changes: nodes.changes,
    }))
}

/// A list that is left out of the answer if it is empty.
fn if_any<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
