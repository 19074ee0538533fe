//! Which pods of lower priority give way to a pod (`plugins/defaultpreemption`). Only what a node has
//! besides devices is freed: kube-scheduler 1.37 evicts no pod for devices of claims.

use super::nodes::{BoundPod, NodeInfo};
use super::{Ask, Nodes, PodKey, Room, WhyNot};
use crate::view::ObjectKey;
use std::cmp::Reverse;

/// A node, and the pods on it that are evicted for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption<'n> {
    /// The node.
    pub node: &'n str,
    /// The pods, at least one, those of higher priority first.
    pub victims: Vec<ObjectKey>,
    /// This node and those on which as much harm is done: when pods started decides between them.
    pub equal: Vec<&'n str>,
    /// What it waits for besides the grace periods of pods that are evicted.
    pub delay: Option<Delay>,
}

/// Why it may take long until a pod to which others give way is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// kube-scheduler evicts the last pod by itself, and asks only the plugins that refused the other pod
    /// whether this helps. Those that would have refused it next are not asked, and then it is tried again
    /// after five minutes (`prepareCandidateAsync`, `flushUnschedulableEntitiesLeftover`).
    TriedAgain,
    /// One of the pods is being deleted already: how long that takes yet is not known
    /// (`PodEligibleToPreemptOthers`).
    Ending,
}

/// Pods that must leave a node.
struct Victims {
    /// With their priorities, those of higher priority first.
    pods: Vec<(i32, ObjectKey)>,
    /// What the last one keeps the pod from, when the others have left.
    last: Option<WhyNot>,
    /// Whether one of them is being deleted already.
    is_ending: bool,
}

/// What is compared of the victims on nodes: the highest priority, the weights together, the number.
type Harm = (i32, i64, usize);

/// What a victim of this priority weighs: never nothing, so that fewer victims weigh less.
pub fn weight(priority: i32) -> i64 {
    i64::from(priority) + i64::from(i32::MAX) + 1
}

impl Room<'_> {
    /// The node on which pods give way to this one with the least harm: the lowest of the highest
    /// priorities, then of their sum, then the fewest pods, then the first name
    /// (`pickOneNodeForPreemption`; disruption budgets and start times are not known). `None` if the pod
    /// takes nothing from others, or if that would not help.
    ///
    /// # Errors
    /// Returns a reason if a claim of the pod is unknown.
    pub fn preempt<'n>(
        &self,
        ask: &Ask,
        nodes: impl IntoIterator<Item = &'n str>,
    ) -> Result<Option<Preemption<'n>>, String> {
        let Some(preempting) = ask.preempting() else { return Ok(None) };
        let attempt = self.attempt(ask, nodes)?;
        let closed = attempt.barred().iter().filter(|(_, why)| why.may_give_way());
        let mut closed: Vec<&'n str> = closed.map(|(node, _)| *node).collect();
        closed.sort_unstable();
        // Fewer pods elsewhere may be what a spread constraint or an affinity does not allow.
        if ask.spread.is_empty() && ask.near.is_empty() {
            closed = self.attempt(&preempting, closed)?.fits();
        }
        let mut best: Option<(Harm, Preemption<'n>)> = None;
        for node in closed {
            let Some(Victims { pods: victims, last, is_ending }) = self.victims(node, ask)? else {
                continue;
            };
            let priorities = victims.iter().map(|(priority, _)| *priority);
            let Some(highest) = priorities.clone().max() else { continue };
            let harm = (highest, priorities.map(weight).sum(), victims.len());
            match &mut best {
                Some((least, best)) if harm == *least => best.equal.push(node),
                Some((least, _)) if harm > *least => {}
                _ => {
                    let victims = victims.into_iter().map(|(_, key)| key).collect();
                    let mut refusals = attempt.barred().iter().map(|(_, why)| why);
                    let is_tried_at_once =
                        last.is_none_or(|last| refusals.any(|why| why.filter() == last.filter()));
                    let delay = match is_tried_at_once {
                        _ if is_ending => Some(Delay::Ending),
                        true => None,
                        false => Some(Delay::TriedAgain),
                    };
                    best = Some((harm, Preemption { node, victims, equal: vec![node], delay }));
                }
            }
        }
        Ok(best.map(|(_, preemption)| preemption))
    }

    /// The pods that must leave a node: all of lower priority, without those that can stay, the most
    /// important first (`SelectVictimsOnNode`). `None` if that is not enough.
    fn victims(&self, node: &str, ask: &Ask) -> Result<Option<Victims>, String> {
        let Some(priority) = ask.preempting_priority() else { return Ok(None) };
        let mut lower: Vec<(&PodKey, &BoundPod)> = self.nodes.below(node, priority).collect();
        lower.sort_by_key(|(key, pod)| (Reverse(pod.priority), *key));
        let mut room = self.clone();
        room.left.extend(lower.iter().map(|(key, _)| (*key).clone()));
        if room.why_not(node, ask)?.is_some() {
            return Ok(None);
        }
        let mut victims = Victims { pods: Vec::new(), last: None, is_ending: false };
        for (key, pod) in lower {
            room.left.remove(key);
            if let Some(why) = room.why_not(node, ask)? {
                room.left.insert(key.clone());
                victims.pods.push((pod.priority, key.into()));
                victims.is_ending |= pod.is_ending;
                victims.last = Some(why);
            }
        }
        Ok(Some(victims))
    }
}

impl Nodes {
    /// The pods of a node of lower priority.
    fn below(&self, node: &str, priority: i32) -> impl Iterator<Item = (&PodKey, &BoundPod)> {
        let pods = self.get(node).into_iter().flat_map(NodeInfo::pods);
        pods.filter(move |(_, pod)| pod.is_below(priority))
    }
}
