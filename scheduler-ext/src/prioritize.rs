//! Answers one request: reads the pod's claims, makes forecasts, and assigns points.
//!
//! Constraints in the claim keep every choice aligned as requested. The extender only
//! decides where.

use crate::answer::{Answer, Basis, Reason, Scored};
use crate::answers::{AnswerInputs, Answers};
use crate::expected::Expected;
use crate::forecast::{Forecast, ForecastQuestion, held_devices};
use crate::in_flight::{Asked, InFlight, Settled};
use crate::learn::{BoundPod, Learning};
use crate::lock::lock;
use crate::score::Outcome;
use cluster_model::room::{PodClaims, pod_claims};
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// State that is kept across requests.
#[derive(Debug, Default)]
pub struct Ranker {
    answers: Answers,
    in_flight: Mutex<InFlight>,
    expected: Mutex<Arc<Expected>>,
    /// Recent answers, newest last.
    recent: Mutex<VecDeque<(ObjectKey, Arc<Answer>)>>,
}

/// The most nodes in the answers that are kept for debug pages, up to a kilobyte each.
/// kube-scheduler asks about at most a tenth of a large cluster at a time: 500 of 5,000 nodes.
const RECENT_NODES_MAX: usize = 20_000;
/// The most answers that are kept for debug pages.
const RECENT_MAX: usize = 100;

impl Ranker {
    /// Scores every node for a pod. Empty if the pod has no claim to predict, which the
    /// scheduler treats as no preference. `stop` returns true when there is no time left;
    /// the remaining nodes get the neutral score.
    pub fn prioritize(
        &self,
        pod: &Pod,
        nodes: &[String],
        view: &ClusterView,
        now: Instant,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Arc<Answer> {
        let claims = match pod_claims(pod, view) {
            Ok(claims) if claims.open.is_empty() => return Arc::default(),
            Ok(claims) => claims,
            Err(reason) => return Arc::new(Answer::neutral(nodes, &reason.into())),
        };
        let key = ObjectKey::new(&pod.metadata);
        let answer = Arc::new(self.answer(&claims, nodes, view, Some(&key), stop));
        let made = claims.open.iter().filter(|claim| claim.is_made);
        let claims: Vec<_> = made.map(|claim| claim.key.clone()).collect();
        if !claims.is_empty() {
            let first = answer.first().map(|scored| scored.node.clone());
            let is_seen = claims.iter().all(|key| view.claim(key).is_some());
            let asked = Asked { claims, is_seen, answer: answer.clone(), first, at: now };
            lock(&self.in_flight).asked(key, asked);
        }
        answer
    }

    /// Scores these nodes for a pod with the most common claim of the cluster, compared
    /// with each other. Assumes nothing from the result.
    pub fn standard(&self, nodes: &[String], view: &ClusterView) -> Answer {
        let Some(claim) = self.expected().standard().cloned() else {
            return Answer::neutral(nodes, &"no claim of the cluster holds devices".into());
        };
        let claims = PodClaims { open: vec![claim.as_ref().clone()], allocated: Vec::new() };
        self.answer(&claims, nodes, view, None, &|| false)
    }

    /// Answers for these claims. An assumption about `pod` ends, because the scheduler
    /// asks again.
    fn answer(
        &self,
        claims: &PodClaims,
        nodes: &[String],
        view: &ClusterView,
        pod: Option<&ObjectKey>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Answer {
        let expected = self.expected();
        let (assumed, in_use) = {
            let mut in_flight = lock(&self.in_flight);
            if let Some(pod) = pod {
                in_flight.asked_again(pod);
            }
            (in_flight.assumed().clone(), in_flight.in_use(view.inventory().state()))
        };
        let held = held_devices(view, &claims.allocated);
        let question = ForecastQuestion { claims: &claims.open, held: &held, mix: expected.mix() };
        let (in_use, assumed, mix) = (&in_use, &assumed, expected.mix_version());
        let inputs = AnswerInputs { view, in_use, assumed, mix, stop };
        let answered = match self.answers.of(question, nodes, inputs) {
            Ok(answered) => answered,
            Err(reason) => return Answer::neutral(nodes, &reason.into()),
        };
        let no_time: Arc<str> = "no time was left".into();
        let known = nodes.iter().zip(answered.nodes).map(|(node, answer)| match answer {
            None => (node.clone(), None, Reason::Unknown(no_time.clone())),
            Some((_, Err(reason))) => (node.clone(), None, Reason::Unknown(reason)),
            Some((basis, Ok(forecast))) => {
                let reason = known(basis, forecast, &expected, (node, view));
                (node.clone(), Some(basis), reason)
            }
        });
        Answer::rank(known, answered.hits)
    }

    /// Keeps an answer for debug pages.
    pub fn keep(&self, pod: ObjectKey, answer: Arc<Answer>) {
        let mut recent = lock(&self.recent);
        recent.retain(|(known, _)| *known != pod);
        recent.push_back((pod, answer));
        let mut nodes: usize = recent.iter().map(|(_, answer)| answer.nodes.len()).sum();
        while recent.len() > RECENT_MAX || (nodes > RECENT_NODES_MAX && recent.len() > 1) {
            let Some((_, oldest)) = recent.pop_front() else { return };
            nodes -= oldest.nodes.len();
        }
    }

    /// The latest answer about a pod, if it is still kept.
    pub fn last_answer(&self, pod: &ObjectKey) -> Option<Arc<Answer>> {
        let recent = lock(&self.recent);
        recent.iter().find(|(known, _)| known == pod).map(|(_, answer)| answer.clone())
    }

    /// The node's scores in the kept answers, newest first.
    pub fn last_answers_on(&self, node: &str) -> Vec<(ObjectKey, Scored)> {
        let recent = lock(&self.recent);
        recent
            .iter()
            .rev()
            .filter_map(|(pod, answer)| {
                let scored = answer.nodes.iter().find(|scored| scored.node == node)?;
                Some((pod.clone(), scored.clone()))
            })
            .collect()
    }

    /// The outcomes of pods in flight.
    pub fn settle(&self, view: &ClusterView, now: Instant) -> Settled {
        lock(&self.in_flight).settle(view, now)
    }

    /// Scans the whole cluster again.
    pub fn learn(&self, view: &ClusterView) {
        let mut learning = self.learning();
        while self.look(&mut learning, view) {}
        self.expect(learning);
    }

    /// Starts a scan in steps, so that no request waits for the whole scan.
    pub fn learning(&self) -> Learning {
        Learning::new(self.expected())
    }

    /// The next step of a scan; returns true while there are more.
    pub fn look(&self, learning: &mut Learning, view: &ClusterView) -> bool {
        learning.step(view, &|node| self.answers.machine(view, node))
    }

    /// Stores what was learned. Returns the pods that were bound since the last scan.
    pub fn expect(&self, learning: Learning) -> Vec<BoundPod> {
        let (after, bound) = learning.finish();
        self.answers.keep(&after);
        *lock(&self.expected) = Arc::new(after);
        bound
    }

    /// The current expectations.
    pub fn expected(&self) -> Arc<Expected> {
        lock(&self.expected).clone()
    }

    /// Starts with these expectations.
    pub fn new(expected: Expected) -> Self {
        Self { expected: Mutex::new(Arc::new(expected)), ..Self::default() }
    }
}

fn known(
    basis: Basis,
    forecast: Arc<Forecast>,
    expected: &Expected,
    (node, view): (&str, &ClusterView),
) -> Reason {
    let mut cost = forecast.cost;
    if forecast.is_first {
        for whole_nodes in expected.whole_nodes_with(node, view) {
            cost = cost.breaking_one_of(whole_nodes, expected.mix());
        }
    }
    let outcome = Outcome { gets: forecast.gets, cost };
    if basis.is_exact {
        Reason::Predicted(outcome, forecast)
    } else {
        Reason::Likely(outcome, forecast)
    }
}

#[cfg(test)]
mod month;
