//! `plan`: how admission would rewrite a pod, and where the pod would run.

use crate::args::{PlanArgs, PlanFormat, Shown};
use crate::barriers::Barriers;
use crate::kinds::DEVICES;
use crate::predicted::{devices, is_fit, predict_channel};
use crate::settings;
use crate::source::Seen;
use crate::subject::{self, Besides, Subject, disown};
use crate::text::{counted, of_nodes, wrapped};
use crate::{Output, plan_json, text};
use admission::admit::{AdmitError, Planned, Verdict, admit};
use admission::denial::Denial;
use admission::fabric::FabricPlacement;
use admission::plan::Policy;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::names::annotation;
use cluster_model::view::ClusterView;
use dra_allocator::{Claim, ClaimName};
use fabric_controller::preview::{Preview, preview};
use jiff::Timestamp;
use serde_json::Value;
use std::fmt::Write as _;
use topology_graph::MatrixOptions;

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<Output> {
    let (subjects, mut seen) =
        subject::read(&args.subject, &args.source, &args.admission, Besides::Groups)?;
    seen.must_know(&DEVICES)?;
    let is_grouped =
        |it: &Subject| it.pod["metadata"]["annotations"][annotation::FABRIC].is_string();
    let policy = settings::policy(&args.policy, &seen.kept);
    let groups = if policy.fabric != FabricPlacement::Off && subjects.iter().any(is_grouped) {
        Some(seen.groups()?)
    } else {
        None
    };
    let Seen { view, notes, .. } = seen;
    let mut output = Output { notes, ..Output::from(String::new()) };
    for subject in &subjects {
        let origin = &subject.origin;
        let decided = decide(subject, &view, groups.as_ref(), (&policy, args.output, &args.show))?;
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

/// `groups` is what the fabric controller sees, if it is enabled.
fn decide(
    Subject { pod, job_size, .. }: &Subject,
    view: &ClusterView,
    groups: Option<&Barriers>,
    (policy, output, shown): (&Policy, PlanFormat, &[Shown]),
) -> anyhow::Result<Output> {
    let mut verdict = match admit(pod, view, policy) {
        Ok(verdict) => verdict,
        Err(AdmitError::Denied(denial)) => return denied(&denial, output),
        Err(error) => return Err(error.into()),
    };
    let Some(planned) = verdict.planned.clone() else {
        disown(&mut verdict.pod);
        return unchanged(&verdict, output);
    };
    let fabric = groups.and_then(|Barriers { pods, nodes }| {
        let group = (&verdict.pod, &planned.template, *job_size);
        let mut view = view.clone();
        predict_channel(&planned, &mut view).ok()?;
        preview(group, &mut view, (pods, nodes), Timestamp::now())
    });
    disown(&mut verdict.pod);
    let planned = &planned;
    let mut template = serde_json::to_value(&planned.template)?;
    if let Some(namespace) = pod["metadata"]["namespace"].as_str() {
        template["metadata"]["namespace"] = namespace.into();
    }
    let text = match output {
        PlanFormat::Text => person(view, &verdict, planned, (&template, shown, fabric.as_ref()))?,
        PlanFormat::Yaml => {
            format!("{}---\n{}", text::yaml(&template)?, text::yaml(&verdict.pod)?)
        }
        PlanFormat::Json => {
            plan_json::planned(view, &verdict, planned, &template, fabric.as_ref())?
        }
    };
    let is_yaml = output == PlanFormat::Yaml;
    let warnings = verdict.warnings.iter().filter(|_| is_yaml);
    let notes = warnings.map(|warning| sentence(warning)).collect();
    Ok(Output { text, denied: false, notes })
}

/// A denial is not an object to apply, so with YAML standard output is empty.
fn denied(denial: &Denial, output: PlanFormat) -> anyhow::Result<Output> {
    let message = format!("denied: {denial}");
    let (text, notes) = match output {
        PlanFormat::Json => (plan_json::denied(denial)?, Vec::new()),
        PlanFormat::Text => (message + "\n", Vec::new()),
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
    let warnings = || verdict.warnings.iter().map(|warning| sentence(warning));
    let (text, notes) = match output {
        PlanFormat::Json => (plan_json::unchanged(verdict)?, Vec::new()),
        PlanFormat::Text => {
            let lines: Vec<String> = std::iter::once(why).chain(warnings()).collect();
            (lines.join("\n") + "\n", Vec::new())
        }
        PlanFormat::Yaml => {
            (text::yaml(&verdict.pod)?, std::iter::once(why).chain(warnings()).collect())
        }
    };
    Ok(Output { text, denied: false, notes })
}

/// The answer first, then the devices on each node, what is wrong, and what was asked for.
fn person(
    view: &ClusterView,
    verdict: &Verdict,
    planned: &Planned,
    (template, shown, fabric): (&Value, &[Shown], Option<&Preview>),
) -> anyhow::Result<String> {
    let name = planned.template.metadata.name.as_deref().unwrap_or_default();
    let claim = Claim::from_spec(ClaimName::new("", name), &planned.plan.claim)?;
    let groups = devices(view, &claim);
    let mut out = String::new();
    writeln!(out, "{}", wrapped(&answer(&groups, planned)))?;
    writeln!(out, "{}", wrapped(&planned.plan.note(name)))?;
    writeln!(out, "{}\n", wrapped(&format!("Join {}: {}.", planned.plan.join, planned.plan.why)))?;
    for (outcome, nodes) in &groups {
        writeln!(out, "{}", wrapped(&of_nodes(nodes, outcome)))?;
    }
    if !verdict.warnings.is_empty() {
        out.push('\n');
    }
    for warning in &verdict.warnings {
        writeln!(out, "{}", wrapped(&sentence(warning)))?;
    }
    out += &fabric_text(fabric);
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
        writeln!(out, "\n--show claim,pod,matrix shows more; -o yaml is for `kubectl apply`.")?;
    }
    Ok(out)
}

/// `Admitted: GPU0 with mlx5_0 and mlx5_1 (NODE), on 1 of 1 node`.
fn answer(groups: &[(String, Vec<&str>)], planned: &Planned) -> String {
    let fitting = || groups.iter().filter(|(outcome, _)| is_fit(outcome));
    let all = counted(groups.iter().map(|(_, nodes)| nodes.len()).sum(), "node");
    let fits: usize = fitting().map(|(_, nodes)| nodes.len()).sum();
    if let Some((outcome, _)) = fitting().next() {
        return format!("Admitted: {outcome}, on {fits} of {all} now");
    }
    let (serving, of) = planned.plan.nodes;
    format!(
        "Admitted: it waits, since no node has such devices free now; {serving} of {} could serve it",
        counted(of, "node")
    )
}

/// Where a group of such pods would be placed.
fn fabric_text(preview: Option<&Preview>) -> String {
    let Some(Preview { size, places, answer, domains }) = preview else { return String::new() };
    let places = places.iter().map(|(fabric, fit)| format!("{fabric}: {fit} such pods fit now\n"));
    let places: String = places.collect();
    let answer = match answer {
        Ok(fabric) => format!("would go to {fabric}"),
        Err(why) => format!("would wait: {why}"),
    };
    let domain = |(domain, pods): (&LevelDomain, &usize)| {
        format!("{} of them to {domain}.\n", counted(*pods, "pod"))
    };
    let domains: String = domains.iter().map(domain).collect();
    format!("\n# Fabric of the group\n\n{places}\nA group of {size} {answer}.\n{domains}")
}
