//! `capacity`: how many more pods of a shape fit, and what would have to move for one more.

mod count;
mod shape;

pub use shape::{PodShape, PodShapeError};

use crate::Output;
use crate::args::{CapacityArgs, Form};
use crate::moves::{Move, fewest};
use crate::predicted::nodes;
use crate::settings;
use crate::source::{self, Seen};
use crate::text::{self, counted, table};
use admission::admit::{AdmitError, admit};
use admission::plan::Policy;
use cluster_model::view::ClusterView;
use count::{Room, rooms};
use dra_allocator::{Claim, ClaimName};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The answer for one shape.
struct Answer {
    shape: PodShape,
    /// Why admission denies such pods.
    denied: Option<String>,
    rooms: Vec<Room>,
    /// The fewest claims to move for one more pod, if none fits now but one could.
    to_move: Option<Move>,
}

impl Answer {
    fn now(&self) -> usize {
        self.rooms.iter().map(|room| room.now).sum()
    }

    fn empty(&self) -> usize {
        self.rooms.iter().map(|room| room.empty).sum()
    }
}

pub(crate) fn run(args: &CapacityArgs) -> anyhow::Result<Output> {
    let Seen { view, kept, namespace, notes, .. } =
        source::read_as_admission(&args.source, &args.admission, &["Deployment"], &[])?;
    let namespace = namespace.as_deref().unwrap_or("default");
    let policy = settings::policy(&args.policy, &kept);
    let shapes = if args.shapes.is_empty() { shape::USUAL.to_vec() } else { args.shapes.clone() };
    let answers: anyhow::Result<Vec<Answer>> =
        shapes.iter().map(|shape| answer(*shape, namespace, &view, &policy)).collect();
    let answers = answers?;
    let largest = largest(namespace, &view, &policy)?;
    let text = match args.output {
        Form::Text => person(&answers, largest)?,
        Form::Json => text::document(&program(&answers, largest), false)?,
        Form::Yaml => text::document(&program(&answers, largest), true)?,
    };
    Ok(Output { notes, ..Output::from(text) })
}

fn answer(
    shape: PodShape,
    namespace: &str,
    view: &ClusterView,
    policy: &Policy,
) -> anyhow::Result<Answer> {
    let claim = match claim(shape, namespace, view, policy)? {
        Ok(claim) => claim,
        Err(denied) => {
            return Ok(Answer { shape, denied: Some(denied), rooms: Vec::new(), to_move: None });
        }
    };
    let mut answer = Answer { shape, denied: None, rooms: rooms(view, &claim), to_move: None };
    if answer.now() == 0 && answer.empty() > 0 {
        answer.to_move = fewest(view, nodes(view), std::slice::from_ref(&claim));
    }
    Ok(answer)
}

/// Returns the claim that admission would create for such a pod, or its denial.
fn claim(
    shape: PodShape,
    namespace: &str,
    view: &ClusterView,
    policy: &Policy,
) -> anyhow::Result<Result<Claim, String>> {
    let verdict = match admit(&shape.pod(namespace), view, policy) {
        Ok(verdict) => verdict,
        Err(AdmitError::Denied(denial)) => return Ok(Err(denial.to_string())),
        Err(error) => return Err(error.into()),
    };
    let Some(planned) = verdict.planned else {
        anyhow::bail!("admission made no claim for a pod of shape {shape}");
    };
    Ok(Ok(Claim::from_spec(ClaimName::new("", "capacity"), &planned.plan.claim)?))
}

/// The largest pod, with as many NICs as GPUs, that fits now.
fn largest(
    namespace: &str,
    view: &ClusterView,
    policy: &Policy,
) -> anyhow::Result<Option<PodShape>> {
    for number in (1..=count::most_gpus(view)).rev() {
        let shape = PodShape { gpus: number, nics: number, level: None };
        if let Ok(claim) = claim(shape, namespace, view, policy)?
            && rooms(view, &claim).iter().any(|room| room.now > 0)
        {
            return Ok(Some(shape));
        }
    }
    Ok(None)
}

fn person(answers: &[Answer], largest: Option<PodShape>) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for answer in answers {
        for room in &answer.rooms {
            rows.push(vec![
                answer.shape.to_string(),
                room.machine.clone(),
                room.fabric.clone().unwrap_or_else(|| "-".to_owned()),
                room.nodes.to_string(),
                room.now.to_string(),
                room.empty.to_string(),
            ]);
        }
    }
    let mut out = String::new();
    if !rows.is_empty() {
        out += &table(&["SHAPE", "MACHINE", "FABRIC", "NODES", "FIT NOW", "FIT EMPTY"], &rows);
        out.push('\n');
    }
    for answer in answers {
        if let Some(denied) = &answer.denied {
            writeln!(out, "{}: admission denies such pods: {denied}", answer.shape)?;
        }
        if let Some(Move { node, claims }) = &answer.to_move {
            let who = claims.join(", ");
            writeln!(
                out,
                "{}: none fits now; one would on node {node} without {}: {who}",
                answer.shape,
                counted(claims.len(), "claim"),
            )?;
        }
    }
    match largest {
        Some(shape) => writeln!(out, "largest aligned pod that fits now: {shape}")?,
        None => writeln!(out, "no aligned pod fits now")?,
    }
    Ok(out)
}

fn program(answers: &[Answer], largest: Option<PodShape>) -> Value {
    let shape = |answer: &Answer| {
        let rooms: Vec<_> = answer
            .rooms
            .iter()
            .map(|room| {
                json!({
                    "machine": room.machine,
                    "fabric": room.fabric,
                    "nodes": room.nodes,
                    "fitNow": room.now,
                    "fitEmpty": room.empty,
                })
            })
            .collect();
        let to_move =
            answer.to_move.as_ref().map(|it| json!({ "node": it.node, "claims": it.claims }));
        json!({
            "shape": answer.shape.to_string(),
            "denied": answer.denied,
            "fitNow": answer.now(),
            "fitEmpty": answer.empty(),
            "rooms": rooms,
            "toMove": to_move,
        })
    };
    let shapes: Vec<_> = answers.iter().map(shape).collect();
    let largest = largest.map(|shape| shape.to_string());
    json!({ "shapes": shapes, "largest": largest })
}
