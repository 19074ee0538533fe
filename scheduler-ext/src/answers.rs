//! Caches forecasts until their inputs change.

use crate::answer::{Assumed, Basis};
use crate::expected::Expected;
use crate::forecast::{Forecast, ForecastQuestion};
use crate::lock::lock;
use crate::machine::{Cells, NodeMachine};
use crate::score::Costs;
use cluster_model::late_node::LateNode;
use cluster_model::predict::{Fit, Prediction, predict_each};
use cluster_model::room::OpenClaim;
use cluster_model::view::{ClusterView, late_binding};
use dra_allocator::{AllocatedState, Claim};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle, available_parallelism};
use topology_graph::ShapeHash;

/// The size of the kept questions and answers, in bytes: some 40 usual ones.
const BYTES_MAX: u64 = 96 << 20;
/// What the answers of 5,000 nodes take.
const ANSWERS: usize = 2 << 20;
/// What a question takes for each byte of its text: the text, and the claims in the allocator's
/// form. Tenants write claims, of up to 1.5 megabytes.
const TEXT_FACTOR: usize = 12;

/// The fewest nodes that justify another thread.
const PART_MIN: usize = 32;

/// The answers to recent questions, and the machines that they were made from.
#[derive(Debug)]
pub struct Answers {
    questions: moka::sync::Cache<String, Arc<KnownQuestion>>,
    machines: Mutex<Machines>,
}

/// One question, and the nodes' answers to it.
#[derive(Debug)]
struct KnownQuestion {
    claims: Vec<Claim>,
    nodes: Mutex<Nodes>,
}

/// The answers of nodes, each with the values it was computed from.
type Nodes = HashMap<String, (Basis, Entry), RandomState>;

/// A node's answer: a forecast, or the reason why there is none.
pub type Entry = Result<Arc<Forecast>, Arc<str>>;

/// Machines by node, valid until their devices change.
#[derive(Debug, Default)]
struct Machines {
    nodes: HashMap<String, (u64, Arc<NodeMachine>), RandomState>,
    shapes: HashMap<ShapeHash, Arc<Cells>>,
    no_graph: Arc<Cells>,
}

/// The nodes' answers to one request.
#[derive(Debug)]
pub struct Answered {
    /// For each node in order; `None` if there was no time left.
    pub nodes: Vec<Option<(Basis, Entry)>>,
    /// How many answers were already known.
    pub hits: usize,
}

/// Inputs of the answers, besides the question.
#[derive(Clone, Copy)]
pub struct AnswerInputs<'a> {
    /// The cluster.
    pub view: &'a ClusterView,
    /// Devices that are in use or assumed to be.
    pub in_use: &'a AllocatedState,
    /// Nodes with assumed pods.
    pub assumed: &'a HashMap<String, Assumed>,
    /// The version of the mix of expected pods.
    pub mix: u64,
    /// Returns true if there is no time left.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl fmt::Debug for AnswerInputs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerInputs").field("mix", &self.mix).finish_non_exhaustive()
    }
}

impl Default for Answers {
    fn default() -> Self {
        let questions = moka::sync::Cache::builder().max_capacity(BYTES_MAX).weigher(
            |key: &String, _: &Arc<KnownQuestion>| {
                u32::try_from(ANSWERS + TEXT_FACTOR * key.len()).unwrap_or(u32::MAX)
            },
        );
        let questions = questions.build();
        Self { questions, machines: Mutex::default() }
    }
}

impl Answers {
    /// The answers of these nodes.
    ///
    /// # Errors
    /// Describes what the allocator does not support in a claim.
    pub fn of(
        &self,
        question: ForecastQuestion<'_>,
        nodes: &[String],
        inputs: AnswerInputs<'_>,
    ) -> Result<Answered, String> {
        let known = self.known(question)?;
        let mut answered: Vec<_> = {
            let before = lock(&known.nodes);
            nodes.iter().map(|node| current(&before, node, inputs)).collect()
        };
        let missing: Vec<usize> =
            (0..nodes.len()).filter(|index| answered[*index].is_none()).collect();
        let hits = nodes.len() - missing.len();
        if missing.is_empty() {
            return Ok(Answered { nodes: answered, hits });
        }
        let names: Vec<&str> = missing.iter().map(|index| nodes[*index].as_str()).collect();
        let fresh = self.ask(question, &known.claims, &names, inputs);
        let mut before = lock(&known.nodes);
        before.extend(fresh.into_iter().map(|(node, answer)| (node.to_owned(), answer)));
        for index in missing {
            answered[index] = current(&before, &nodes[index], inputs);
        }
        Ok(Answered { nodes: answered, hits })
    }

    /// The machine of a node.
    pub fn machine(&self, view: &ClusterView, node: &str) -> Arc<NodeMachine> {
        lock(&self.machines).of(view, node)
    }

    /// Forgets nodes that the last scan has not seen. A question is kept for as long as it is asked, and
    /// new nodes have new names.
    pub(crate) fn keep(&self, there: &Expected) {
        lock(&self.machines).keep(there);
        for (_, known) in &self.questions {
            keep(&mut lock(&known.nodes), there);
        }
    }

    /// Predicts the nodes' outcomes, in parallel parts.
    fn ask<'n>(
        &self,
        question: ForecastQuestion<'_>,
        claims: &[Claim],
        nodes: &[&'n str],
        inputs: AnswerInputs<'_>,
    ) -> Vec<(&'n str, (Basis, Entry))> {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let part = nodes.len().div_ceil(processors).max(PART_MIN);
        if nodes.len() <= part {
            return self.ask_in_turn(question, claims, nodes, inputs);
        }
        thread::scope(|scope| {
            let parts: Vec<_> = nodes
                .chunks(part)
                .map(|nodes| scope.spawn(move || self.ask_in_turn(question, claims, nodes, inputs)))
                .collect();
            let answers = parts.into_iter().map(ScopedJoinHandle::join);
            answers.flat_map(|part| part.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }

    fn ask_in_turn<'n>(
        &self,
        question: ForecastQuestion<'_>,
        claims: &[Claim],
        nodes: &[&'n str],
        inputs: AnswerInputs<'_>,
    ) -> Vec<(&'n str, (Basis, Entry))> {
        let AnswerInputs { view, in_use, stop, .. } = inputs;
        let predictions = predict_each(view, nodes.iter().copied(), claims, in_use, stop);
        let mut costs = Costs::default();
        let answers = predictions.into_iter().map(|(node, prediction)| {
            let mut basis = basis(node, inputs);
            let entry = match prediction {
                Prediction::Fits(Fit { allocations, is_exact }) => {
                    basis.is_exact = is_exact;
                    let machine = self.machine(view, node);
                    let node = (&*machine, LateNode::new(view, node, in_use));
                    Ok(Arc::new(Forecast::new(question, node, &allocations, in_use, &mut costs)))
                }
                // The scheduler found room, but the view has none: the view is outdated.
                Prediction::No(why) => Err(why.to_string().into()),
            };
            (node, (basis, entry))
        });
        answers.collect()
    }

    fn known(&self, question: ForecastQuestion<'_>) -> Result<Arc<KnownQuestion>, String> {
        let key = key(question);
        if let Some(known) = self.questions.get(&key) {
            return Ok(known);
        }
        let claims: Result<Vec<_>, _> = question.claims.iter().map(OpenClaim::parse).collect();
        let known = Arc::new(KnownQuestion { claims: claims?, nodes: Mutex::default() });
        self.questions.insert(key, known.clone());
        Ok(known)
    }
}

/// Removes the nodes that are gone, once there are more than the cluster has.
fn keep<V>(nodes: &mut HashMap<String, V, RandomState>, there: &Expected) {
    if nodes.len() > there.rooms.len() {
        nodes.retain(|node, _| there.rooms.contains_key(node));
    }
}

impl Machines {
    fn keep(&mut self, there: &Expected) {
        keep(&mut self.nodes, there);
        // One reference is that of the map.
        self.shapes.retain(|_, cells| Arc::strong_count(cells) > 1);
    }

    fn of(&mut self, view: &ClusterView, node: &str) -> Arc<NodeMachine> {
        let version = view.node_version(node).devices;
        match self.nodes.get(node) {
            Some((of, machine)) if *of == version => return machine.clone(),
            _ => {}
        }
        let cells = match view.topology(node) {
            None => self.no_graph.clone(),
            Some(graph) => self
                .shapes
                .entry(graph.shape())
                .or_insert_with(|| Arc::new(Cells::new(graph.clone())))
                .clone(),
        };
        let machine = Arc::new(NodeMachine::of(view, node, cells));
        self.nodes.insert(node.to_owned(), (version, machine.clone()));
        machine
    }
}

#[cfg(test)]
impl Answers {
    /// How many nodes and shapes are held, over all questions.
    pub(crate) fn held(&self) -> usize {
        let machines = lock(&self.machines);
        let answers = self.questions.iter().map(|(_, known)| lock(&known.nodes).len());
        machines.nodes.len() + machines.shapes.len() + answers.sum::<usize>()
    }
}

/// The answer of a node, if what it was computed from has not changed.
fn current(known: &Nodes, node: &str, inputs: AnswerInputs<'_>) -> Option<(Basis, Entry)> {
    known.get(node).filter(|(of, _)| of.is_same(basis(node, inputs))).cloned()
}

fn basis(node: &str, inputs: AnswerInputs<'_>) -> Basis {
    let AnswerInputs { view, assumed, mix, .. } = inputs;
    let assumed = assumed.get(node).copied().unwrap_or_default();
    Basis { node: view.node_version(node), assumed, mix, is_exact: false }
}

/// The part of the question that determines the answer. Names of claims and the
/// configuration of devices do not matter, except for NICs that are chosen when the pod starts.
fn key(question: ForecastQuestion<'_>) -> String {
    let ForecastQuestion { claims, held, mix: _ } = question;
    let mut key = String::new();
    for claim in claims {
        let asked = claim.spec.devices.as_ref().map(|devices| {
            (serde_json::to_string(&devices.requests), serde_json::to_string(&devices.constraints))
        });
        let late = late_binding(&claim.spec);
        let _infallible = write!(key, "\n{} {asked:?} {late:?}", claim.is_ours);
    }
    for device in held {
        let _infallible = write!(key, "\n{device}");
    }
    key
}
