//! The answer to one request, and the inputs of each score.

use crate::forecast::Forecast;
use crate::score::{NEUTRAL, Outcome, rank};
use cluster_model::view::NodeVersion;
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

/// The answer to a request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Every node of the request; empty if the pod requests no device that is predicted.
    pub nodes: Vec<Scored>,
    /// For how many nodes the forecast was already in memory.
    pub hits: usize,
}

/// The most nodes that a line of the log names.
const SHOWN_MAX: usize = 8;

impl fmt::Display for Answer {
    /// The best nodes: `a 10, b 4, c 0 (its graph is missing) and 92 more`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nodes: Vec<&Scored> = self.nodes.iter().collect();
        nodes.sort_by_key(|scored| Reverse(scored.score));
        for (index, Scored { node, score, reason, .. }) in nodes.iter().take(SHOWN_MAX).enumerate()
        {
            write!(f, "{}{node} {score}", if index == 0 { "" } else { ", " })?;
            if let Reason::Unknown(why) = reason {
                write!(f, " ({why})")?;
            }
        }
        match nodes.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A node's score and its inputs.
#[derive(Clone, Debug)]
pub struct Scored {
    /// The node.
    pub node: String,
    /// From 0 to 10.
    pub score: i64,
    /// The reason for the score.
    pub reason: Reason,
    /// The inputs of the forecast; none if the outcome is unknown.
    pub basis: Option<Basis>,
}

/// The reason for a node's score.
#[derive(Clone, Debug)]
pub enum Reason {
    /// The allocation that the scheduler will make.
    Predicted(Outcome, Arc<Forecast>),
    /// One of several allocations that the scheduler may make.
    Likely(Outcome, Arc<Forecast>),
    /// The outcome is unknown, for this reason.
    Unknown(Arc<str>),
}

/// The inputs of a forecast. The same basis gives the same forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    /// The version of the node in the view.
    pub node: NodeVersion,
    /// The pods that were assumed to be on the node.
    pub assumed: Assumed,
    /// The version of the mix of expected pods.
    pub mix: u64,
    /// Whether the scheduler has only this choice.
    pub is_exact: bool,
}

/// The pods assumed to be on a node. The default means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    /// Changes whenever the assumption changes, and is never reused, except for 0: no
    /// assumption.
    pub version: u64,
    /// Number of pods that are assumed to be there.
    pub pods: u32,
}

impl Answer {
    /// Ranks the nodes by their outcomes.
    pub fn rank(known: impl Iterator<Item = (String, Option<Basis>, Reason)>, hits: usize) -> Self {
        let known: Vec<_> = known.collect();
        let outcomes: Vec<_> = known.iter().map(|(_, _, reason)| reason.outcome()).collect();
        Self {
            nodes: known
                .into_iter()
                .zip(rank(&outcomes))
                .map(|((node, basis, reason), score)| Scored { node, score, reason, basis })
                .collect(),
            hits,
        }
    }

    /// Joins partial answers to one question, and ranks their nodes together.
    #[must_use]
    pub fn join(parts: Vec<Self>) -> Self {
        let hits = parts.iter().map(|part| part.hits).sum();
        let nodes = parts.into_iter().flat_map(|part| part.nodes);
        Self::rank(nodes.map(|scored| (scored.node, scored.basis, scored.reason)), hits)
    }

    /// Gives every node the neutral score, for one reason.
    pub fn neutral(nodes: &[String], reason: &Arc<str>) -> Self {
        Self {
            nodes: nodes
                .iter()
                .map(|node| Scored {
                    node: node.clone(),
                    score: NEUTRAL,
                    reason: Reason::Unknown(reason.clone()),
                    basis: None,
                })
                .collect(),
            hits: 0,
        }
    }

    /// The node with the highest score, if it is the only one with it. Among nodes with
    /// equal scores the scheduler's own plugins decide.
    pub fn first(&self) -> Option<&Scored> {
        let known = self.nodes.iter().filter(|scored| scored.reason.outcome().is_some());
        let best = known.clone().map(|scored| scored.score).max()?;
        let mut at_best = known.filter(|scored| scored.score == best);
        at_best.next().filter(|_| at_best.next().is_none())
    }
}

impl Scored {
    /// The forecast and its inputs.
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
    /// The predicted outcome, if known.
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
