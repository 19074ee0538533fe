//! `plan`: how admission would rewrite a pod, and where the pod would run.

pub(crate) mod now;

use crate::args::{PlanArgs, PlanFormat, Shown};
use crate::groups::CreatedPods;
use crate::in_use::InUse;
use crate::kinds::DEVICES;
use crate::predicted::{AlikeNodes, add_planned};
use crate::settings;
use crate::source::ReadCluster;
use crate::subject::{self, Subject, disown};
use crate::text::{counted, fitted, of_nodes};
use crate::{Output, plan_json, text};
use admission::admit::{AdmitError, Planned, Verdict, admit};
use admission::denial::Denial;
use admission::fabric::FabricPlacement;
use admission::plan::Policy;
use cluster_model::names::annotation;
use cluster_model::view::ClusterView;
use fabric_controller::group_pods::GroupPods;
use fabric_controller::preview::{GroupPreview, Preview};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use now::Now;
use serde::Deserialize as _;
use serde_json::Value;
use std::fmt::Write as _;
use std::slice;
use topology_graph::MatrixOptions;

/// The end of a text to which nothing more was asked for.
pub(crate) const MORE: &str =
    "\n--show claim,pod,matrix shows more; -o yaml is for `kubectl apply`.\n";

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<Output> {
    let (subjects, mut seen) = subject::read(&args.subject, &args.source, &args.admission)?;
    seen.must_know(&DEVICES)?;
    let policy = settings::policy(&args.policy, &seen.kept);
    let in_use = seen.in_use()?;
    let groups = seen.group_pods()?;
    let quotas = seen.quotas();
    let ReadCluster { view, notes, .. } = seen;
    let mut output = Output { notes, ..Output::from(String::new()) };
    for subject in &subjects {
        let origin = &subject.origin;
        let cluster =
            Surroundings { view: &view, in_use: &in_use, groups: &groups, quotas: &quotas };
        let decided = decide(subject, cluster, (&policy, args.output, &args.show))?;
        match args.output {
            PlanFormat::Text if subjects.len() > 1 => {
                write!(output.text, "# {origin}\n\n{}\n", decided.text)?;
            }
            PlanFormat::Yaml if !output.text.is_empty() => {
                write!(output.text, "---\n{}", decided.text)?;
            }
            PlanFormat::Text | PlanFormat::Yaml | PlanFormat::Json => output.text += &decided.text,
        }
        output.denied |= decided.denied;
        output.notes.extend(decided.notes);
    }
    Ok(output)
}

/// The cluster around a planned pod.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'c> {
    pub(crate) view: &'c ClusterView,
    pub(crate) in_use: &'c InUse,
    pub(crate) groups: &'c GroupPods,
    pub(crate) quotas: &'c [Value],
}

/// What admission makes of a pod, and where it would go now.
pub(crate) fn decide(
    subject: &Subject,
    Surroundings { view, in_use, groups, quotas }: Surroundings<'_>,
    (policy, output, shown): (&Policy, PlanFormat, &[Shown]),
) -> anyhow::Result<Output> {
    let Subject { pod, job_size, refused, count, surge, .. } = subject;
    if let Some(why) = refused {
        return of_refused(why, output);
    }
    let mut verdict = match admit(pod, view, policy) {
        Ok(verdict) => verdict,
        Err(AdmitError::Denied(denial)) => return denied(&denial, output),
        Err(error) => return Err(error.into()),
    };
    let Some(planned) = verdict.planned.clone() else {
        disown(&mut verdict.pod);
        return unchanged(&verdict, output);
    };
    let is_grouped = pod["metadata"]["annotations"][annotation::FABRIC].is_string();
    let fabric = if is_grouped && policy.fabric != FabricPlacement::Off {
        let created = CreatedPods::new(slice::from_ref(subject), view, policy, quotas);
        let created = created.of(&verdict.pod).filter(|created| (*created as u64) < *count);
        place_of_group((&verdict.pod, &planned, (*job_size, created)), view, (groups, in_use))
    } else {
        None
    };
    let mut admitted = Pod::deserialize(&verdict.pod)?;
    // A file may write a pod without a namespace.
    let namespace = admitted.metadata.namespace.get_or_insert_with(|| "default".to_owned()).clone();
    let mut with_template = view.clone();
    add_planned(&mut with_template, &planned, &namespace)?;
    let now = Now::new(&admitted, &with_template, (in_use, quotas));
    let surge = surge.as_ref();
    verdict
        .warnings
        .extend(surge.and_then(|surge| surge.warning((&admitted, *count), &with_template, in_use)));
    disown(&mut verdict.pod);
    let planned = &planned;
    let mut template = serde_json::to_value(&planned.template)?;
    if let Some(namespace) = pod["metadata"]["namespace"].as_str() {
        template["metadata"]["namespace"] = namespace.into();
    }
    let text = match output {
        PlanFormat::Text => {
            person(view, &verdict, &now, (planned, &template, shown, fabric.as_ref()))?
        }
        PlanFormat::Yaml => {
            format!("{}---\n{}", text::yaml(&template)?, text::yaml(&verdict.pod)?)
        }
        PlanFormat::Json => {
            plan_json::planned((view, &now), &verdict, planned, &template, fabric.as_ref())?
        }
    };
    let is_yaml = output == PlanFormat::Yaml;
    let warnings = verdict.warnings.iter().filter(|_| is_yaml);
    let notes = warnings.map(|warning| sentence(warning)).collect();
    Ok(Output { text, denied: false, notes })
}

/// The API server refuses the pod.
fn of_refused(why: &str, output: PlanFormat) -> anyhow::Result<Output> {
    let (text, notes) = match output {
        PlanFormat::Json => (plan_json::refused(&format!("the pod {why}"))?, Vec::new()),
        PlanFormat::Text => (format!("The pod {why}\n"), Vec::new()),
        PlanFormat::Yaml => (String::new(), vec![format!("the pod {why}")]),
    };
    Ok(Output { text, denied: true, notes })
}

/// A denial is not an object to apply, so with YAML standard output is empty.
fn denied(denial: &Denial, output: PlanFormat) -> anyhow::Result<Output> {
    let message = format!("denied: {denial}");
    let (text, notes) = match output {
        PlanFormat::Json => (plan_json::denied(denial)?, Vec::new()),
        PlanFormat::Text => (fitted(&message) + "\n", Vec::new()),
        PlanFormat::Yaml => (String::new(), vec![message]),
    };
    Ok(Output { text, denied: true, notes })
}

/// Formats a warning as a sentence; a question already ends with its mark.
fn sentence(warning: &str) -> String {
    let stop = if warning.ends_with('?') { "" } else { "." };
    format!("Warning: {warning}{stop}")
}

/// The pod as it is, with remarks: a misspelled annotation has no effect.
fn unchanged(verdict: &Verdict, output: PlanFormat) -> anyhow::Result<Output> {
    let why = format!(
        "The pod would be created as it is: it has no annotation {}, or already a claim that \
         admission made.",
        annotation::ALIGNED_NICS
    );
    let remarks =
        std::iter::once(why).chain(verdict.warnings.iter().map(|warning| sentence(warning)));
    let (text, notes) = match output {
        PlanFormat::Json => (plan_json::unchanged(verdict)?, Vec::new()),
        PlanFormat::Text => {
            let lines: Vec<String> = remarks.collect();
            (fitted(&lines.join("\n")) + "\n", Vec::new())
        }
        PlanFormat::Yaml => (text::yaml(&verdict.pod)?, remarks.collect()),
    };
    Ok(Output { text, denied: false, notes })
}

/// Where the group of a pod would be placed, with the number of pods of its job, and that of those that are
/// created if it is smaller.
fn place_of_group(
    (pod, planned, size): (&Value, &Planned, (Option<u64>, Option<usize>)),
    view: &ClusterView,
    (groups, in_use): (&GroupPods, &InUse),
) -> Option<Preview> {
    let mut view = view.clone();
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
    add_planned(&mut view, planned, namespace).ok()?;
    let now = Timestamp::now();
    let group = GroupPreview::planned(pod, size, groups, now)?;
    Some(group.preview(&view, &in_use.nodes, now))
}

/// The answer first, then the devices on each node, what is wrong, and what was asked for.
fn person(
    view: &ClusterView,
    verdict: &Verdict,
    now: &Now<'_>,
    (planned, template, shown, fabric): (&Planned, &Value, &[Shown], Option<&Preview>),
) -> anyhow::Result<String> {
    let mut out = String::new();
    writeln!(out, "{}", answer(now, planned))?;
    let is_kept_off = now.unknown.is_none() && now.serving < planned.plan.nodes.0;
    let summary = if is_kept_off && now.open.iter().all(|alike| !alike.is_fit) {
        planned.plan.summary_of_devices()
    } else {
        planned.plan.summary()
    };
    writeln!(out, "{summary}")?;
    writeln!(out, "Join {}: {}.\n", planned.plan.join, planned.plan.why)?;
    for AlikeNodes { text, nodes, .. } in &now.open {
        writeln!(out, "{}", of_nodes(nodes, text))?;
    }
    for (reason, nodes) in &now.kept_off {
        writeln!(out, "{}", of_nodes(nodes, reason))?;
    }
    if !verdict.warnings.is_empty() {
        out.push('\n');
    }
    for warning in &verdict.warnings {
        writeln!(out, "{}", sentence(warning))?;
    }
    out += &fabric_text(fabric);
    out = fitted(&out);
    if shown.contains(&Shown::Matrix) {
        write!(out, "\n{}", text::matrices(view, MatrixOptions::default())?)?;
    }
    if shown.contains(&Shown::Claim) {
        write!(out, "\n# ResourceClaimTemplate\n\n{}", text::yaml(template)?)?;
    }
    if shown.contains(&Shown::Pod) {
        write!(out, "\n# Rewritten pod\n\n{}", text::yaml(&verdict.pod)?)?;
    }
    if shown.is_empty() {
        out += MORE;
    }
    Ok(out)
}

/// `Admitted: GPU0 with mlx5_0 and mlx5_1 (NODE), on 1 of 2 nodes now; 1 is cordoned`.
fn answer(now: &Now<'_>, planned: &Planned) -> String {
    let fitting: Vec<_> = now.open.iter().filter(|alike| alike.is_fit).collect();
    let open: usize = now.open.iter().map(|alike| alike.nodes.len()).sum();
    let others: usize = now.kept_off.values().map(Vec::len).sum();
    let closed = now.closed.iter().map(|(state, number)| {
        let are = if *number == 1 { "is" } else { "are" };
        format!("; {number} {are} {state}")
    });
    let closed: String = closed.collect();
    let fits: usize = fitting.iter().map(|alike| alike.nodes.len()).sum();
    if let Some(AlikeNodes { text, .. }) = fitting.first() {
        let all = counted(open + others, "node");
        return format!("Admitted: {text}, on {fits} of {all} now{closed}");
    }
    if let Some(refused) = &now.refused {
        return format!("Admitted: it waits, since {refused}{closed}");
    }
    let why = match (open, others) {
        (0, 1..) => "no node takes it now",
        (_, 0) => "no node has such devices free now",
        (_, 1..) => "no node that takes it has such devices free now",
    };
    let (serving, of) = match open + others {
        0 => planned.plan.nodes,
        all => (now.serving, all),
    };
    let of = counted(of, "node");
    format!("Admitted: it waits, since {why}; {serving} of {of} could serve it{closed}")
}

/// Where a group of such pods would be placed.
fn fabric_text(preview: Option<&Preview>) -> String {
    let Some(preview) = preview else { return String::new() };
    let Preview { size, is_one_by_one, places, answer, domains } = preview;
    let places = places.iter().map(|(fabric, fit)| format!("{fabric}: {fit} such pods fit now\n"));
    let places: String = places.collect();
    let answer = match answer {
        Ok(fabric) => format!("would go to {fabric}"),
        Err(why) => format!("would wait: {why}"),
    };
    let domains = domains
        .iter()
        .map(|(domain, pods)| format!("{} of them to {domain}.\n", counted(*pods, "pod")));
    let domains: String = domains.collect();
    let group = if *is_one_by_one {
        format!(
            "Nobody says how many pods the group has, so they are placed one by one: the first {answer}"
        )
    } else {
        format!("A group of {size} {answer}")
    };
    format!("\n# Fabric of the group\n\n{places}\n{group}.\n{domains}")
}
