//! The answer to one request, and what each of its scores was made from.

use crate::forecast::Forecast;
use crate::score::{NEUTRAL, Outcome, rank};
use cluster_model::view::NodeVersion;
use std::sync::Arc;

/// The answer to a request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Every node of the request; none where the pod asks for no device that is predicted.
    pub nodes: Vec<Scored>,
    /// How many nodes had a forecast in memory.
    pub hits: usize,
}

/// A node's score and where it comes from.
#[derive(Clone, Debug)]
pub struct Scored {
    /// The node.
    pub node: String,
    /// 0 to 10.
    pub score: i64,
    /// Why.
    pub reason: Reason,
    /// What the forecast was made from; none where nothing is known.
    pub basis: Option<Basis>,
}

/// Why a node has its score.
#[derive(Clone, Debug)]
pub enum Reason {
    /// From the allocation that the scheduler would make.
    Predicted(Outcome, Arc<Forecast>),
    /// From one of several that it may make.
    Likely(Outcome, Arc<Forecast>),
    /// Nothing is known, for this reason.
    Unknown(Arc<str>),
}

/// What a forecast was made from: the same basis gives the same forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    /// The node as the view had it.
    pub node: NodeVersion,
    /// What was assumed of it.
    pub assumed: Assumed,
    /// The version of the mix of expected pods.
    pub mix: u64,
    /// Whether the scheduler has no choice but this.
    pub is_exact: bool,
}

/// What is assumed of a node; the default where no pod is assumed to be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    /// Changes whenever it does, and never comes again, except for 0: nothing is assumed.
    pub version: u64,
    /// Pods that are assumed to be there.
    pub pods: u32,
}

impl Answer {
    /// Ranks the nodes by what is known of each.
    pub fn rank(known: impl Iterator<Item = (String, Option<Basis>, Reason)>, hits: usize) -> Self {
        let known: Vec<_> = known.collect();
        let outcomes: Vec<_> = known.iter().map(|(_, _, reason)| reason.outcome()).collect();
        let scored = |((node, basis, reason), score)| Scored { node, score, reason, basis };
        Self { nodes: known.into_iter().zip(rank(&outcomes)).map(scored).collect(), hits }
    }

    /// The nodes of several answers to one question, ranked together.
    #[must_use]
    pub fn join(parts: Vec<Self>) -> Self {
        let hits = parts.iter().map(|part| part.hits).sum();
        let nodes = parts.into_iter().flat_map(|part| part.nodes);
        Self::rank(nodes.map(|scored| (scored.node, scored.basis, scored.reason)), hits)
    }

    /// The neutral score for every node, for one reason.
    pub fn neutral(nodes: &[String], reason: &Arc<str>) -> Self {
        let scored = |node: &String| Scored {
            node: node.clone(),
            score: NEUTRAL,
            reason: Reason::Unknown(reason.clone()),
            basis: None,
        };
        Self { nodes: nodes.iter().map(scored).collect(), hits: 0 }
    }

    /// The node with the highest score, if no other has it: the scheduler decides
    /// between equal nodes by its own plugins.
    pub fn first(&self) -> Option<&Scored> {
        let known = || self.nodes.iter().filter(|scored| scored.reason.outcome().is_some());
        let best = known().map(|scored| scored.score).max()?;
        let mut at_best = known().filter(|scored| scored.score == best);
        at_best.next().filter(|_| at_best.next().is_none())
    }
}

impl Scored {
    /// The forecast, with what it was made from.
    pub fn forecast(&self) -> Option<(Basis, &Arc<Forecast>)> {
        match &self.reason {
            Reason::Predicted(_, forecast) | Reason::Likely(_, forecast) => {
                Some((self.basis?, forecast))
            }
            Reason::Unknown(_) => None,
        }
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

impl Basis {
    /// Whether both give the same forecast.
    pub fn is_same(self, other: Self) -> bool {
        (self.node, self.assumed, self.mix) == (other.node, other.assumed, other.mix)
    }
}
