//! `explain`: why a pod is pending, and what would let it run.

mod changes;
mod devices;
mod down;
mod group;
mod late;
pub(crate) mod quota;
mod remarks;
mod withheld;

use crate::Output;
use crate::answer::{
    Barred, Evicted, Explain, ExplainAtStart, ExplainChange, ExplainFine, ExplainNodes,
    ExplainPreemption, ExplainRefused,
};
use crate::args::{ExplainArgs, Form};
use crate::fabric_condition::why_waiting;
use crate::groups::CreatedPods;
use crate::in_use::InUse;
use crate::kinds::USE;
use crate::kueue;
use crate::predicted::{add_planned, pools_of};
use crate::preemption::Preemptions;
use crate::settings;
use crate::source::ReadCluster;
use crate::subject::{self, Subject};
use crate::text::{self, counted, listed, node_list, of_nodes};
use admission::admit::{AdmitError, Verdict, admit};
use admission::fabric::FabricPlacement;
use admission::plan::Policy;
use cluster_model::names::{GATE_FABRIC, annotation};
use cluster_model::predict::{Prediction, budget};
use cluster_model::room::{
    Ask, Attempt, Delay, Extended, OpenClaim, PodClaims, Preemption, Room, WhyNot, pod_claims,
};
use cluster_model::view::{ClusterView, ObjectKey};
use devices::Outcomes;
pub(crate) use devices::binding_conditions;
use fabric_controller::group_pods::GroupPods;
use fabric_controller::preview::GroupPreview;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
pub(crate) use remarks::{not_looked_at, other_scheduler};
use serde::Deserialize as _;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The cluster in which a pod is explained.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'c> {
    pub(crate) view: &'c ClusterView,
    pub(crate) policy: &'c Policy,
    pub(crate) in_use: &'c InUse,
    /// Pods by priority, and what preemptor knows.
    pub(crate) preemptions: &'c Preemptions,
    /// The fabric that is chosen for the pod's group.
    pub(crate) fabric: Option<&'c str>,
    /// ResourceQuotas.
    pub(crate) quotas: &'c [Value],
    /// Workloads of Kueue.
    pub(crate) workloads: &'c [Value],
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
    /// What preemptor does for it.
    preemption: Option<ExplainPreemption>,
    /// Nodes on which it is bound and then evicted.
    evicted: Vec<Evicted>,
    changes: Vec<ExplainChange>,
    /// What the pod can expect when it starts on nodes that bind NICs late.
    at_start: Vec<ExplainAtStart>,
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Output> {
    let (mut subjects, mut seen) = if args.pending {
        subject::read_waiting(args.all_namespaces, &args.source, &args.admission)?
    } else {
        subject::read(&args.subject, &args.source, &args.admission)?
    };
    seen.must_know(&USE)?;
    subject::put_into(&mut subjects, "default");
    let policy = settings::policy(&args.policy, &seen.kept);
    let in_use = seen.in_use()?;
    let groups = seen.group_pods()?;
    let preemptions = Preemptions::new(&seen)?;
    let (quotas, workloads) = (seen.quotas(), seen.workloads());
    let ReadCluster { view, notes, .. } = seen;
    let (policy, in_use, preemptions) = (&policy, &in_use, &preemptions);
    let (quotas, workloads) = (&*quotas, &*workloads);
    let scene = Scene { view: &view, policy, in_use, preemptions, fabric: None, quotas, workloads };
    let created = CreatedPods::new(&subjects, &view, policy, quotas);
    let mut output = Output { notes, ..Output::from(String::new()) };
    let mut answers = Vec::new();
    if subjects.is_empty() && args.output == Form::Text {
        output.text.push_str("no pod waits for devices\n");
    }
    for subject in &subjects {
        let answer = of_subject(subject, scene, (&groups, &created))?;
        let origin = &subject.origin;
        output.denied |= answer.is_kept();
        match args.output {
            Form::Text => {
                output.text += if args.pending && !output.text.is_empty() { "\n" } else { "" };
                output.text += &person(origin, &answer)?;
            }
            Form::Json | Form::Yaml => {
                answers.push(serde_json::to_value(program(origin, answer))?);
            }
        }
    }
    output.text += &text::documents(&answers, args.output == Form::Yaml)?;
    Ok(output)
}

/// Explains a pod with its group, whose pods are placed together.
pub(crate) fn of_subject(
    subject: &Subject,
    scene: Scene<'_>,
    (groups, created): (&GroupPods, &CreatedPods),
) -> anyhow::Result<Answer> {
    let Subject { pod, job_size, refused, .. } = subject;
    if let Some(why) = refused {
        return Ok(Answer::Refused(why.clone()));
    }
    let now = Timestamp::now();
    if !pod["metadata"]["uid"].is_null() {
        let group = GroupPreview::existing(&Pod::deserialize(pod)?, groups);
        return of_group(pod, group.as_ref(), (scene.view, scene));
    }
    let verdict = admit(pod, scene.view, scene.policy).ok();
    let verdict = verdict.filter(|_| scene.policy.fabric != FabricPlacement::Off);
    let Some((verdict, planned)) = verdict.as_ref().and_then(|it| Some((it, it.planned.as_ref()?)))
    else {
        return answer(pod, scene);
    };
    let size = (*job_size, created.of(&verdict.pod));
    let Some(group) = GroupPreview::planned(&verdict.pod, size, groups, now) else {
        return answer(pod, scene);
    };
    let mut view = scene.view.clone();
    add_planned(&mut view, planned, pod["metadata"]["namespace"].as_str().unwrap_or("default"))?;
    match group.answer(&view, &scene.in_use.nodes, now) {
        Ok(fabric) => answer(pod, Scene { fabric: Some(&fabric), ..scene }),
        Err(_) => of_group(pod, Some(&group), (&view, scene)),
    }
}

/// Explains a pod that waits for the fabric of its group, if it does. What lets the pod run need not let
/// its group run.
fn of_group(
    pod: &Value,
    group: Option<&GroupPreview>,
    (view, scene): (&ClusterView, Scene<'_>),
) -> anyhow::Result<Answer> {
    let mut answer = answer(pod, scene)?;
    if let (Some(group), Answer::Nodes(nodes)) = (group, &mut answer) {
        let next = group.answer(view, &scene.in_use.nodes, Timestamp::now());
        let said = why_waiting(pod).map(str::to_owned);
        let why = said.or_else(|| next.as_ref().err().cloned());
        nodes.waits = vec![gate(GATE_FABRIC, why.as_deref())];
        nodes.changes = if next.is_err() { group::changes(group, view, scene) } else { Vec::new() };
    }
    Ok(answer)
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
    let is_made = typed.metadata.uid.is_some();
    let node = typed.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    if let Some(node) = node.filter(|_| is_made) {
        return Ok(late::bound(&typed, scene.view, node));
    }
    match (admitted(pod, is_made, scene)?, node) {
        (Err(refusal), _) => Ok(Answer::Refused(refusal)),
        // Nobody schedules it, and the webhook leaves it as it is.
        (Ok(_), Some(node)) => Ok(late::bound(&typed, scene.view, node)),
        (Ok(verdict), None) => of_admitted(pod, &verdict, scene),
    }
}

/// What the webhook makes of the pod, or why no scheduler gets to see it as it should be.
fn admitted(
    pod: &Value,
    is_made: bool,
    Scene { view, policy, .. }: Scene<'_>,
) -> anyhow::Result<Result<Verdict, String>> {
    Ok(match admit(pod, view, policy) {
        Ok(verdict) if is_made && pod["metadata"]["annotations"][annotation::PLAN].is_string()
            && verdict.planned.is_some() =>
        {
            Err("waits: admission has not created its ResourceClaimTemplate; see the events of the pod, \
                 and `kubectl dranet doctor`, which says whether admission may create it"
                .to_owned())
        }
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
    let admitted = Pod::deserialize(&verdict.pod)?;
    let mut view = Cow::Borrowed(scene.view);
    if let Some(planned) = &verdict.planned {
        let namespace = admitted.metadata.namespace.as_deref().unwrap_or_default();
        add_planned(view.to_mut(), planned, namespace)?;
    }
    let view = &*view;
    let ask = Ask::new(&admitted).on_fabric(scene.fabric);
    let budget = budget(view);
    let room = scene.in_use.room(view, &budget).besides(&ObjectKey::new(&admitted.metadata));
    let tried = pod_claims(&admitted, view).and_then(|known| {
        let attempt = room.attempt(&ask, view.present_nodes())?;
        Ok((known, attempt))
    });
    let (known, attempt) = match tried {
        Ok(tried) => tried,
        Err(reason) => {
            let reason = not_there(&admitted, view).unwrap_or(reason);
            return Ok(Answer::Refused(format!("cannot be scheduled: {reason}")));
        }
    };
    let has_devices = !known.open.is_empty() || !known.allocated.is_empty();
    if !has_devices && Extended::new(&ask.requests, view).is_none() {
        return Ok(without_devices(&attempt, &verdict.warnings));
    }
    let refused = quota::refusal(&admitted, &known, scene.quotas, view);
    let tried = Tried { pod, admitted: &admitted, ask: &ask, known: &known };
    let mut nodes = on_nodes(&tried, &attempt, &room, scene)?;
    nodes.waits.extend(refused);
    let claims: Result<Vec<_>, String> = known.open.iter().map(OpenClaim::parse).collect();
    nodes.at_start =
        late::at_start(view, &nodes.outcomes.fits, &known, &claims.unwrap_or_default());
    Ok(Answer::Nodes(Box::new(nodes)))
}

/// A pod and what was found out about it.
struct Tried<'p> {
    /// The pod as it was given.
    pod: &'p Value,
    /// The pod as admission left it.
    admitted: &'p Pod,
    ask: &'p Ask,
    known: &'p PodClaims,
}

/// The answer about a pod that requests no devices: usually nothing, but a misspelt annotation is
/// why it requests none.
fn without_devices(attempt: &Attempt<'_, '_>, warnings: &[String]) -> Answer {
    let why = "requests no devices: it has neither a claim nor the annotation \
               dranet.io/aligned-nics";
    if let [first, ..] = warnings {
        return Answer::Refused(format!("{why}; {first}"));
    }
    let mut why_not: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (node, result) in attempt.each() {
        let Prediction::No(reason) = result else { return Answer::Fine(why.to_owned()) };
        why_not.entry(reason.to_string()).or_default().push(node);
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
    tried: &Tried<'_>,
    attempt: &Attempt<'_, '_>,
    room: &Room<'_>,
    scene: Scene<'_>,
) -> anyhow::Result<OnNodes> {
    let Tried { pod, admitted, ask, known } = tried;
    let spec = admitted.spec.clone().unwrap_or_default();
    // A pod from a file has no gate yet, except for its group's fabric if that is not chosen.
    let gates = spec.scheduling_gates.iter().flatten();
    let gates = gates.filter(|gate| scene.fabric.is_none() || gate.name != GATE_FABRIC);
    let is_gated = scene.fabric.is_none() && gates.clone().any(|gate| gate.name == GATE_FABRIC);
    let of_kueue = kueue::why(pod, scene.workloads);
    let waits = gates.map(|it| {
        let is_kueues = kueue::is_gate(&it.name);
        let why = if is_kueues { of_kueue.as_deref() } else { why_waiting(pod) };
        gate(&it.name, why)
    });
    let mut waits: Vec<String> = waits.collect();
    let mut preemption = None;
    if attempt.fits().is_empty() {
        preemption = scene.preemptions.explain(admitted, room.view(), &scene.in_use.nodes);
    }
    let mut remarks = remarks::about(admitted, room.view(), preemption.is_some());
    for key in &known.allocated {
        let pools = pools_of(room.view(), key);
        let pools: Vec<_> = pools.iter().map(String::as_str).collect();
        remarks.extend(elsewhere(room.view(), key, admitted, &pools));
    }
    waits.extend(devices::binding(attempt));
    let mut not_selected = Vec::new();
    let mut barred: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (node, why) in attempt.barred() {
        match why {
            WhyNot::NotSelected => not_selected.push((*node).to_owned()),
            // What it waits for says where its claims have devices.
            WhyNot::ClaimElsewhere { .. } => {}
            why => barred.entry(why.to_string()).or_default().push((*node).to_owned()),
        }
    }
    let mut outcomes = Outcomes::new(room, attempt, scene.preemptions)?;
    let evicted = attempt.each().filter_map(|(node, result)| {
        let Prediction::Fits(fit) = result else { return None };
        Some(Evicted::new(node, &room.eviction(node, ask, &fit.allocations)?))
    });
    let evicted = evicted.collect();
    if outcomes.fits.is_empty()
        && let Ok(Some(Preemption { node, victims, delay, .. })) =
            room.preempt(ask, room.view().present_nodes())
    {
        let victims: Vec<String> = victims.iter().map(ToString::to_string).collect();
        let later = match delay {
            None => "",
            Some(Delay::TriedAgain) => ", but may try it again only after five minutes",
            Some(Delay::Ending) => {
                "; it waits until pods that are being deleted already have ended"
            }
        };
        remarks.push(format!(
            "kube-scheduler evicts {} of lower priority for it on node {node}{later}",
            listed(&victims)
        ));
        for nodes in barred.values_mut() {
            nodes.retain(|barred| barred != node);
        }
        barred.retain(|_, nodes| !nodes.is_empty());
        if let Some(Ok(attempt)) = ask.preempting().map(|ask| room.attempt(&ask, [node])) {
            waits.extend(devices::binding(&attempt));
        }
        outcomes.fits.push(node.to_owned());
    }
    if scene.fabric.is_some() && !outcomes.fits.is_empty() {
        remarks.extend(preempted_for_group(room, ask, attempt));
    }
    let (mut down, mut withheld, mut changes) = Default::default();
    if outcomes.fits.is_empty() {
        let candidates: Vec<&str> =
            attempt.alike().flat_map(|alike| alike.nodes.iter().copied()).collect();
        if attempt.failing().is_none() {
            down = down::sentences(room, &candidates, ask);
        }
        withheld = withheld::sentences(room.view(), &candidates);
        // What lets this pod run need not let its group run.
        if !is_gated {
            let pods = (*pod, *admitted);
            changes = changes::smallest(pods, (scene, room), &candidates, (&outcomes, ask))?;
        }
    }
    Ok(OnNodes {
        waits,
        remarks,
        not_selected,
        barred,
        down,
        withheld,
        outcomes,
        preemption,
        evicted,
        changes,
        at_start: Vec::new(),
    })
}

/// The nodes on which pods of lower priority give way to other pods of the group, which have the same
/// priority.
fn preempted_for_group(room: &Room<'_>, ask: &Ask, attempt: &Attempt<'_, '_>) -> Option<String> {
    let full = attempt.barred().iter().filter(|(_, why)| why.may_give_way());
    let more = room.attempt(&ask.preempting()?, full.map(|(node, _)| *node)).ok()?;
    let nodes: Vec<&str> = more.fits();
    (!nodes.is_empty()).then(|| {
        format!(
            "for other pods of its group, kube-scheduler can evict pods of lower priority on {}",
            node_list(&nodes)
        )
    })
}

/// Returns a text about the first missing template or claim that a pod names.
pub(crate) fn not_there(pod: &Pod, view: &ClusterView) -> Option<String> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let entries = pod.spec.as_ref()?.resource_claims.iter().flatten();
    entries.into_iter().find_map(|entry| {
        let template = entry.resource_claim_template_name.as_ref();
        let Some(name) = template.or(entry.resource_claim_name.as_ref()) else {
            return Some(format!(
                "its claim `{}` names neither a resourceClaimName nor a resourceClaimTemplateName, so \
                 the API server refuses it; before Kubernetes 1.31 they were in a field `source`",
                entry.name
            ));
        };
        let key = ObjectKey { namespace: namespace.clone(), name: name.clone() };
        let (kind, is_there) = match template {
            Some(_) => ("ResourceClaimTemplate", view.template(&key).is_some()),
            None => ("ResourceClaim", view.claim(&key).is_some()),
        };
        (!is_there).then(|| {
            format!("there is no {kind} `{key}`, which its claim `{}` needs", entry.name)
        })
    })
}

/// Why the scheduler does not consider a pod with this gate; `why` is why its group has no fabric, or why
/// Kueue holds it.
fn gate(gate: &str, why: Option<&str>) -> String {
    let what = match (gate, why) {
        (GATE_FABRIC, None) => {
            "no fabric is chosen for its group (gate dranet.io/fabric)".to_owned()
        }
        (GATE_FABRIC, Some(why)) => format!("no fabric is chosen for its group: {why}"),
        (other, Some(why)) if kueue::is_gate(other) => why.to_owned(),
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
    if let Some(preemption) = &nodes.preemption {
        writeln!(out, "\n{preemption}.")?;
    }
    if !nodes.changes.is_empty() {
        writeln!(out, "\nEach of these changes would let it run:")?;
        nodes.changes.iter().try_for_each(|change| writeln!(out, "  - {change}"))?;
    }
    if !outcomes.fits.is_empty() {
        let fits: Vec<_> = outcomes.fits.iter().map(String::as_str).collect();
        writeln!(out, "\n{}", of_nodes(&fits, "fits"))?;
    }
    nodes.evicted.iter().try_for_each(|evicted| writeln!(out, "{}.", evicted.text))?;
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
        writeln!(out, "\n{}: {}", node_list(&names), WhyNot::NotSelected)?;
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
        evicted: if_any(nodes.evicted),
        withheld: if_any(nodes.withheld),
        preemption: nodes.preemption,
        changes: nodes.changes,
    }))
}

/// A list that is left out of the answer if it is empty.
fn if_any<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
