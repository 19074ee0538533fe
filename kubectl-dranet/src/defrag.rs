//! `defrag`: the fewest pods to move so that others fit, and their moves.

mod apply;
mod kept;

use crate::Output;
use crate::answer::{Defrag, DefragMove};
use crate::args::{DefragArgs, Form};
use crate::kinds::{PODS, USE};
use crate::predicted::add_planned;
use crate::preemption::Preemptions;
use crate::settings;
use crate::source::ReadCluster;
use crate::subject::{self, Subject};
use crate::text::{self, counted, listed};
use admission::admit::admit;
use admission::plan::Policy;
use anyhow::Context as _;
use cluster_model::names::annotation;
use cluster_model::room::{Ask, Nodes};
use cluster_model::view::ClusterView;
use fabric_controller::group::Group;
use k8s_openapi::api::core::v1::Pod;
use preemptor::defrag::{Movable, Move, Plan, Wanted, fewest_moves};
use serde::Deserialize as _;
use std::fmt::Write as _;
use std::sync::Arc;

/// The cluster in which pods are moved.
struct Scene<'c> {
    view: &'c ClusterView,
    nodes: &'c Nodes,
    preemptions: &'c Preemptions,
    policy: &'c Policy,
}

pub(crate) fn run(args: &DefragArgs) -> anyhow::Result<Output> {
    let (mut subjects, mut seen) = subject::read(&args.subject, &args.source, &args.admission)?;
    seen.must_know(&USE)?;
    seen.must_know(&[PODS])?;
    subject::put_into(&mut subjects, "default");
    let policy = settings::policy(&args.policy, &seen.kept);
    let nodes = seen.nodes()?;
    let preemptions = Preemptions::new(&seen)?;
    let ReadCluster { view, notes, .. } = seen;
    let scene = Scene { view: &view, nodes: &nodes, preemptions: &preemptions, policy: &policy };
    let owners = args.movable_owners.iter().map(|owner| (owner.kind.clone(), owner.name.clone()));
    let movable = Movable { owners: owners.collect() };
    let mut output = Output { notes, ..Output::from(String::new()) };
    let mut answers = Vec::new();
    for subject in &subjects {
        let (count, plan) = plan(args, subject, (&scene, &movable))?;
        let answer = answer(subject, count, plan.as_ref(), (&scene, &movable));
        output.denied |= plan.is_none();
        match args.output {
            Form::Text => output.text += &person(&answer, args.max_moves)?,
            Form::Json | Form::Yaml => answers.push(serde_json::to_value(&answer)?),
        }
        if args.apply
            && let Some(plan) = plan.filter(|plan| !plan.moves.is_empty())
        {
            let applied = apply::run(args, &plan);
            output.denied |= !applied.is_done;
            output.text += &applied.text;
            if let Some(error) = applied.error {
                return Err(error);
            }
        }
    }
    output.text += &text::documents(&answers, args.output == Form::Yaml)?;
    Ok(output)
}

/// How many pods are to fit, and the plan.
fn plan(
    args: &DefragArgs,
    subject: &Subject,
    (scene, movable): (&Scene<'_>, &Movable),
) -> anyhow::Result<(usize, Option<Plan>)> {
    let Subject { pod, refused, origin, .. } = subject;
    if let Some(why) = refused {
        anyhow::bail!("{origin} {why}");
    }
    let count = usize::try_from(args.count)?;
    let typed = Pod::deserialize(pod)?;
    if let Some(group) = scene.preemptions.waiting_group(&typed) {
        let cluster = scene.preemptions.cluster(scene.view, scene.nodes);
        let plan = fewest_moves(cluster, Wanted::Group(group), movable, args.max_moves);
        return Ok((gated(group), plan));
    }
    let verdict = admit(pod, scene.view, scene.policy)
        .with_context(|| format!("{origin} cannot be scheduled"))?;
    let admitted = Pod::deserialize(&verdict.pod)?;
    let mut view = scene.view.clone();
    if let Some(planned) = &verdict.planned {
        let namespace = admitted.metadata.namespace.as_deref().unwrap_or_default();
        add_planned(&mut view, planned, namespace)?;
    }
    let ask = Arc::new(Ask::new(&admitted));
    if let Err(why) = ask.claims(&view) {
        anyhow::bail!("{origin} cannot be scheduled: {why}");
    }
    let cluster = scene.preemptions.cluster(&view, scene.nodes);
    Ok((count, fewest_moves(cluster, Wanted::Pods(&ask, count), movable, args.max_moves)))
}

fn gated(group: &Group) -> usize {
    group.gated().count()
}

fn answer(
    subject: &Subject,
    count: usize,
    plan: Option<&Plan>,
    (scene, movable): (&Scene<'_>, &Movable),
) -> Defrag {
    let bound = scene.preemptions.pods.bound();
    Defrag {
        pod: subject.origin.clone(),
        count,
        moves: plan.map(|plan| plan.moves.iter().map(told).collect()),
        nodes: plan.map(|plan| plan.nodes.clone()).unwrap_or_default(),
        movable: bound.filter(|(_, _, pod)| movable.has(pod)).count(),
    }
}

fn told(Move { pod, owner: (kind, name), from, to, devices }: &Move) -> DefragMove {
    DefragMove {
        pod: pod.key.to_string(),
        owner: format!("{kind} {name}"),
        from: from.clone(),
        to: to.clone(),
        devices: devices.len(),
    }
}

fn person(answer: &Defrag, most: usize) -> anyhow::Result<String> {
    let Defrag { pod, count, moves, nodes, movable } = answer;
    let who = if *count == 1 { pod.clone() } else { format!("{count} pods of {pod}") };
    let fit = if *count == 1 { "fits" } else { "fit" };
    let mut out = String::new();
    match moves.as_deref() {
        None if *movable == 0 => writeln!(
            out,
            "{who}: no pod may be moved. Set the annotation {}: \"true\" on pods that may be evicted, or \
             name their controllers with --movable-owner.",
            annotation::MOVABLE
        )?,
        None => writeln!(
            out,
            "{who}: no plan of at most {} of the {} that may be moved was found.",
            counted(most, "move"),
            counted(*movable, "pod")
        )?,
        Some([]) => writeln!(out, "{who} {fit} now, on {}: nothing has to move.", listed(nodes))?,
        Some(moves) => {
            writeln!(
                out,
                "{who} {fit} on {} after {}:",
                listed(nodes),
                counted(moves.len(), "move")
            )?;
            for (number, it) in moves.iter().enumerate() {
                let DefragMove { pod, owner, from, to, devices } = it;
                let devices = counted(*devices, "device");
                let number = number + 1;
                writeln!(out, "  {number}. pod {pod} of {owner} ({devices}) from {from} to {to}")?;
            }
        }
    }
    Ok(out)
}
