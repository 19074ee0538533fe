//! `fabric`: groups that wait for a fabric or a `ComputeDomain`, the reasons, and the room on each
//! fabric.

mod domains;

use crate::Output;
use crate::answer::{Fabric, Fabrics, MissingDomain, SourceConflict, WaitingGroup};
use crate::args::FabricArgs;
use crate::fabric_condition::why_waiting;
use crate::kinds::{DEPLOYMENTS, PODS, USE};
use crate::nodes::NodeState;
use crate::preemption::Preemptions;
use crate::settings::{FABRIC_CONTROLLER, level_sources};
use crate::source::{self, Source};
use crate::text::{counted, table};
use cluster_model::names::{annotation, label};
use cluster_model::room::Nodes;
use cluster_model::view::ClusterView;
use fabric_controller::conflicts::{Conflict, conflicts};
use fabric_controller::preview::GroupPreview;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

pub(crate) fn run(args: &FabricArgs) -> anyhow::Result<Output> {
    let source = Source::open(&args.source)?;
    let mut queries = source::of_view();
    queries.push(PODS.all("groups are unknown"));
    queries.push(source::compute_domains());
    queries.extend(source::foreign_topologies());
    queries.push(DEPLOYMENTS.one(
        &args.admission_namespace,
        FABRIC_CONTROLLER,
        "fabric-controller is assumed to have the built-in sources of levels",
    ));
    queries.extend(source::of_preemption(&args.admission_namespace));
    let kinds = &["Deployment", "Event", "Node", "Pod", "PodDisruptionBudget"];
    let mut seen = source.read(&queries, kinds)?;
    seen.must_know(&USE)?;
    seen.must_know(&[PODS])?;
    let facts = seen.nodes()?;
    let messages: BTreeMap<_, _> = seen.of_kind("Pod").filter_map(message).collect();
    let preemptions = Preemptions::new(&seen)?;
    let previews = GroupPreview::waiting(&seen.group_pods()?, &seen.view, &facts, Timestamp::now());
    let waiting = previews.into_iter().map(|preview| {
        let name = preview.key.to_string();
        let next = preview.answer.map(|fabric| format!("{fabric} is chosen for it next"));
        WaitingGroup {
            job: preview.job,
            pods: preview.pods,
            why: messages.get(&name).cloned().unwrap_or_else(|| next.unwrap_or_else(|why| why)),
            places: preview.places.into_iter().collect(),
            preemption: preemptions.of_group(&preview.key, &seen.view, &facts),
            name,
        }
    });
    let waiting = waiting.collect();
    let compute_domains = domains::missing(&source, &mut seen)?;
    let conflicts = conflicts(&seen.view, &level_sources(&seen.kept));
    let answer = Fabrics {
        fabrics: fabrics(&seen.view, &facts),
        waiting,
        compute_domains,
        conflicts: conflicts.iter().map(conflict).collect(),
    };
    let text = args.output.write(&answer, || person(&answer, &conflicts))?;
    Ok(Output { notes: seen.notes, ..Output::from(text) })
}

/// Why a group waits, as the fabric controller wrote it to a pod.
fn message(pod: &Value) -> Option<(String, String)> {
    let metadata = &pod["metadata"];
    metadata["annotations"][annotation::FABRIC].as_str()?;
    let group = metadata["labels"][label::FABRIC_GROUP].as_str()?;
    let message = why_waiting(pod)?;
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    Some((format!("{namespace}/{group}"), message.to_owned()))
}

/// The fabrics, by name.
fn fabrics(view: &ClusterView, facts: &Nodes) -> Vec<Fabric> {
    let mut fabrics: BTreeMap<String, Fabric> = BTreeMap::new();
    for node in view.present_nodes() {
        let state = NodeState::new(view, node, facts);
        let Some(name) = state.fabric else { continue };
        let fabric = fabrics.entry(name.clone()).or_default();
        let (gpus, nics) = (state.gpus, state.nics);
        fabric.name = name;
        fabric.nodes += 1;
        if state.closed.is_some() {
            continue;
        }
        fabric.nodes_free += usize::from(gpus.free == gpus.all && nics.free == nics.all);
        fabric.gpus_free += gpus.free;
        fabric.nics_free += nics.free;
    }
    fabrics.into_values().collect()
}

fn person(answer: &Fabrics, conflicts: &[Conflict]) -> anyhow::Result<String> {
    let Fabrics { fabrics, waiting, compute_domains, .. } = answer;
    let mut out = String::new();
    if fabrics.is_empty() {
        writeln!(out, "no node has a fabric (label {})", label::NODE_FABRIC)?;
    } else {
        let rows: Vec<_> = fabrics
            .iter()
            .map(|it| {
                let numbers = [it.nodes, it.nodes_free, it.gpus_free, it.nics_free];
                let numbers = numbers.iter().map(ToString::to_string);
                std::iter::once(it.name.clone()).chain(numbers).collect::<Vec<_>>()
            })
            .collect();
        out += &table(&["FABRIC", "NODES", "NODES FREE", "GPUS FREE", "NICS FREE"], &rows);
    }
    if waiting.is_empty() {
        writeln!(out, "\nno group waits for a fabric")?;
    }
    for WaitingGroup { name: _, job, pods, why, places, preemption } in waiting {
        writeln!(out, "\n{job}: {} wait: {why}", counted(*pods, "pod"))?;
        for (fabric, number) in places {
            writeln!(out, "  {fabric}: {} of the group fit now", counted(*number, "pod"))?;
        }
        if let Some(preemption) = preemption {
            writeln!(out, "  {preemption}")?;
        }
    }
    for MissingDomain { name, job, pods, why } in compute_domains {
        let pods = counted(*pods, "pod");
        writeln!(out, "\n{job}: {pods} wait for ComputeDomain {name}: {why}")?;
    }
    if !conflicts.is_empty() {
        writeln!(out, "\nsources that disagree; the first one is in use:")?;
        conflicts.iter().try_for_each(|conflict| writeln!(out, "  {conflict}"))?;
    }
    Ok(out)
}

fn conflict(it: &Conflict) -> SourceConflict {
    let parts = it.parts.iter();
    SourceConflict {
        level: it.level_name().to_owned(),
        domain: it.domain.clone(),
        source: it.source.clone(),
        other: it.other.clone(),
        parts: parts.map(|(name, nodes)| (name.clone(), nodes.iter().cloned().collect())).collect(),
    }
}
