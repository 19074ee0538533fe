//! The answer to one request: what is known of the pod, forecasts, points.
//!
//! Constraints in the claim keep every choice aligned as it asks; this only decides
//! where.

use crate::answers::{Answers, Facts};
use crate::expected::Expected;
use crate::forecast::{Forecast, Question, held_devices};
use crate::in_flight::{Asked, Basis, InFlight, Landed};
use crate::score::{Fabric, NEUTRAL, Outcome, rank};
use cluster_model::predict::pod_claims;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use topology_graph::PathKind;

/// What the extender remembers from one request to the next.
#[derive(Debug, Default)]
pub struct Ranker {
    answers: Answers,
    in_flight: Mutex<InFlight>,
    expected: Mutex<Arc<Expected>>,
    /// The last answers, newest last.
    recent: Mutex<VecDeque<(ObjectKey, Arc<Answer>)>>,
}

/// Answers that are kept for people: half a megabyte each with 5,000 nodes.
const RECENT_MAX: usize = 32;

/// A node's points and where they come from.
#[derive(Clone, Debug)]
pub struct Scored {
    /// The node.
    pub node: String,
    /// 0 to 10.
    pub score: i64,
    /// Why.
    pub reason: Reason,
}

/// Why a node has its points.
#[derive(Clone, Debug)]
pub enum Reason {
    /// From the allocation that the scheduler would make.
    Predicted(Outcome, Arc<Forecast>),
    /// From one of several that it may make.
    Likely(Outcome, Arc<Forecast>),
    /// Nothing is known, for this reason.
    Unknown(Arc<str>),
}

/// The answer to a request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Every node of the request; none where the pod asks for nothing that is ours.
    pub nodes: Vec<Scored>,
    /// How many nodes were forecast from memory.
    pub hits: usize,
}

impl Ranker {
    /// Scores every node for a pod. Empty where the pod has no claim to predict, which
    /// the scheduler takes as no opinion. `stop` is true when there is no more time;
    /// what is not known then is neutral.
    pub fn prioritize(
        &self,
        pod: &Pod,
        nodes: &[String],
        view: &ClusterView,
        now: Instant,
        stop: &dyn Fn() -> bool,
    ) -> Answer {
        let claims = match pod_claims(pod, view) {
            Ok(claims) if claims.open.is_empty() => return Answer::default(),
            Ok(claims) => claims,
            Err(reason) => return neutral(nodes, &reason.into()),
        };
        let expected = self.expected();
        let key = ObjectKey::of(&pod.metadata);
        let mut in_flight = lock(&self.in_flight);
        // What was assumed of this pod before came to nothing: it asks again.
        in_flight.forget(&key);
        let mut in_use = view.inventory().state().clone();
        in_flight.assumed().for_each(|device| {
            in_use.insert(device.clone());
        });
        let held = held_devices(view, &claims.allocated);
        let question = Question { claims: &claims.open, held: &held, mix: expected.mix() };
        let facts = Facts {
            view,
            in_use: &in_use,
            assumed: &|node| in_flight.of(node),
            mix_version: expected.mix_version(),
            stop,
        };
        let answered = match self.answers.of(question, nodes, facts) {
            Ok(answered) => answered,
            Err(reason) => return neutral(nodes, &reason.into()),
        };
        let mut candidates = HashMap::new();
        let mut reasons = Vec::with_capacity(nodes.len());
        for node in nodes {
            let reason = match answered.nodes.get(node) {
                None => Reason::Unknown("no time was left".into()),
                Some((_, Err(reason))) => Reason::Unknown(reason.clone()),
                Some((basis, Ok(forecast))) => {
                    candidates.insert(node.clone(), (*basis, forecast.clone()));
                    known(*basis, forecast, &expected, view.fabric(node))
                }
            };
            reasons.push(reason);
        }
        let points = rank(&reasons.iter().map(Reason::outcome).collect::<Vec<_>>());
        let scored = nodes.iter().zip(points).zip(reasons);
        let nodes: Vec<_> = scored
            .map(|((node, score), reason)| Scored { node: node.clone(), score, reason })
            .collect();
        let made = claims.open.iter().filter(|claim| claim.is_made);
        let asked = Asked {
            uid: pod.metadata.uid.clone(),
            claims: made.map(|claim| claim.key.clone()).collect(),
            candidates,
            first: first(&nodes),
            at: now,
        };
        if !asked.claims.is_empty() {
            in_flight.asked(key, asked);
        }
        Answer { nodes, hits: answered.hits }
    }

    /// Keeps an answer for people to look at.
    pub fn keep(&self, pod: ObjectKey, answer: Arc<Answer>) {
        let mut recent = lock(&self.recent);
        recent.retain(|(known, _)| *known != pod);
        if recent.len() >= RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back((pod, answer));
    }

    /// The last answer about a pod, where it is kept.
    pub fn last_answer(&self, pod: &ObjectKey) -> Option<Arc<Answer>> {
        let recent = lock(&self.recent);
        recent.iter().find(|(known, _)| known == pod).map(|(_, answer)| answer.clone())
    }

    /// What a node had in the answers that are kept, newest first.
    pub fn last_answers_on(&self, node: &str) -> Vec<(ObjectKey, Scored)> {
        let recent = lock(&self.recent);
        let of = |(pod, answer): &(ObjectKey, Arc<Answer>)| {
            let scored = answer.nodes.iter().find(|scored| scored.node == node)?;
            Some((pod.clone(), scored.clone()))
        };
        recent.iter().rev().filter_map(of).collect()
    }

    /// What became of the pods in flight.
    pub fn settle(&self, view: &ClusterView, now: Instant) -> Vec<Landed> {
        lock(&self.in_flight).settle(view, now)
    }

    /// The farthest path among the pairs that a pod got; none where it got no pair, or is
    /// on a node that is not known.
    pub fn path(&self, view: &ClusterView, landed: &Landed) -> Option<PathKind> {
        let of = landed.forecast.as_ref()?;
        self.answers.machine(view, &of.node).farthest_path(&landed.actual)
    }

    /// Looks again at what the cluster runs and what is free on its fabrics.
    pub fn learn(&self, view: &ClusterView) {
        let before = self.expected();
        let after = before.learn(view, &|node| self.answers.machine(view, node));
        *lock(&self.expected) = Arc::new(after);
    }

    /// The pods that are expected, and the fabrics.
    pub fn expected(&self) -> Arc<Expected> {
        lock(&self.expected).clone()
    }
}

impl Ranker {
    /// One that starts with this expectation.
    pub fn new(expected: Expected) -> Self {
        Self { expected: Mutex::new(Arc::new(expected)), ..Self::default() }
    }
}

impl Reason {
    /// What is predicted, where something is.
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Predicted(outcome, _) | Self::Likely(outcome, _) => Some(*outcome),
            Self::Unknown(_) => None,
        }
    }
}

fn known(
    basis: Basis,
    forecast: &Arc<Forecast>,
    expected: &Expected,
    fabric: Option<&str>,
) -> Reason {
    let whole_nodes = fabric.map_or(0, |fabric| expected.whole_nodes(fabric));
    let fabric = Fabric { whole_nodes, breaks_one: forecast.breaks_one };
    let mut cost = forecast.cost;
    cost.loss += fabric.loss(expected.mix());
    let outcome = Outcome { gets: forecast.gets, cost };
    if basis.is_exact {
        Reason::Predicted(outcome, forecast.clone())
    } else {
        Reason::Likely(outcome, forecast.clone())
    }
}

/// The node of the highest score, where it is one alone: among equals the scheduler
/// chooses by its own lights.
fn first(nodes: &[Scored]) -> Option<String> {
    let known = || nodes.iter().filter(|scored| scored.reason.outcome().is_some());
    let best = known().map(|scored| scored.score).max()?;
    let mut at_best = known().filter(|scored| scored.score == best);
    match (at_best.next(), at_best.next()) {
        (Some(only), None) => Some(only.node.clone()),
        _ => None,
    }
}

fn neutral(nodes: &[String], reason: &Arc<str>) -> Answer {
    let scored = |node: &String| Scored {
        node: node.clone(),
        score: NEUTRAL,
        reason: Reason::Unknown(reason.clone()),
    };
    Answer { nodes: nodes.iter().map(scored).collect(), hits: 0 }
}

/// What is kept is whole at any moment, so that a panic elsewhere spoils nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
