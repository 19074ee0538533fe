//! The next writes of a preemption, from what is seen of it. It remembers nothing, so that any replica
//! can take the next step.

use super::record::Begun;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::fmt;

/// How devices are kept for the pods until they are bound.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// By rules until the devices are written into the claims of the pods.
    #[default]
    Allocation,
    /// By rules until the devices are free. Then kube-scheduler chooses, and another pod may be faster.
    Rules,
}

/// How long each step may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) keep: Keep,
    /// How long the rules exist before the first eviction: kube-scheduler may have chosen a device
    /// before it saw its rule.
    pub(crate) settle: SignedDuration,
    /// How long PodDisruptionBudgets may refuse evictions.
    pub(crate) refused_within: SignedDuration,
    /// How long after the last eviction devices may stay in use by pods that are gone.
    pub(crate) freed_within: SignedDuration,
    /// How long pods that have their devices may stay without a node.
    pub(crate) bound_within: SignedDuration,
}

/// What is seen of a preemption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its pods, in the order of the record.
    pub(crate) pods: Vec<PodSeen>,
    /// Its victims, in the order of the record.
    pub(crate) victims: Vec<VictimSeen>,
    /// Whether the pods can get what is kept as soon as the victims have left.
    pub(crate) room: RoomSeen,
}

/// What is seen of a pod that gets devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodSeen {
    /// It does not exist any more, or it ends.
    Gone,
    /// It has no node. `allocated` is when its last claim got its devices, if all have.
    Waits {
        /// When that was.
        allocated: Option<Timestamp>,
    },
    /// It has this node.
    Bound(String),
}

/// What is seen of a pod that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VictimSeen {
    /// Nothing ends it yet.
    Runs,
    /// It is being ended.
    Ends,
    /// It has ended.
    Gone,
}

/// What the room says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RoomSeen {
    /// The pods fit as soon as all victims have left.
    Later,
    /// The pods fit now.
    Now,
    /// They do not fit: text for people.
    No(String),
}

/// What to write now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Next {
    /// The writes. Each may fail; what is seen next tells.
    pub(crate) writes: Vec<Write>,
    /// Set if the preemption ends: then the rules are removed, the head last.
    pub(crate) end: Option<End>,
    /// When to look again if nothing changes.
    pub(crate) at: Option<Timestamp>,
}

/// A write, by the index of the pod in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// The victim is evicted.
    Evict(usize),
    /// The claims of the pod get their devices.
    Allocate(usize),
}

impl Write {
    /// The victim that is evicted.
    pub(crate) fn victim(&self) -> Option<usize> {
        match self {
            Self::Evict(victim) => Some(*victim),
            Self::Allocate(_) => None,
        }
    }

    /// The pod whose claims get their devices.
    pub(crate) fn pod(&self) -> Option<usize> {
        match self {
            Self::Evict(_) => None,
            Self::Allocate(pod) => Some(*pod),
        }
    }
}

/// How a preemption ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Every pod has its node.
    Bound,
    /// The devices are free, and no longer kept ([`Keep::Rules`]).
    Released,
    /// It is given up.
    Stopped(StopReason),
}

/// Why a preemption is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The pod, by its index, is gone.
    PodGone(usize),
    /// The pod, by its index, has another node.
    Elsewhere(usize),
    /// Rules are missing.
    RulesMissing,
    /// What was decided is no longer possible: text for people.
    Changed(String),
    /// Budgets refuse evictions for too long.
    Refused,
    /// Devices stay in use although the victims are gone.
    NotFreed,
    /// kube-scheduler does not bind the pods.
    NotBound,
}

impl StopReason {
    /// Whether pods that were to get devices have no node.
    pub(crate) fn leaves_pods_unbound(&self) -> bool {
        !matches!(self, Self::Elsewhere(_))
    }

    /// A single word for metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::PodGone(_) => "PodGone",
            Self::Elsewhere(_) => "Elsewhere",
            Self::RulesMissing => "RulesMissing",
            Self::Changed(_) => "Changed",
            Self::Refused => "Refused",
            Self::NotFreed => "NotFreed",
            Self::NotBound => "NotBound",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodGone(_) => f.write_str("a pod that was to get devices is gone"),
            Self::Elsewhere(_) => f.write_str("a pod that was to get devices has another node"),
            Self::RulesMissing => f.write_str("a DeviceTaintRule that kept a device is gone"),
            Self::Changed(why) => write!(f, "the pods no longer fit: {why}"),
            Self::Refused => {
                f.write_str("PodDisruptionBudgets have refused evictions for too long")
            }
            Self::NotFreed => f.write_str("the devices are still in use after the pods are gone"),
            Self::NotBound => f.write_str("kube-scheduler has not bound the pods in time"),
        }
    }
}

/// The next step.
pub(crate) fn step(begun: &Begun, seen: &Seen, limits: &Limits, now: Timestamp) -> Next {
    match settled(begun, seen) {
        Some(end) => Next { end: Some(end), ..Next::default() },
        None if seen.pods.iter().all(PodSeen::has_devices) => wait_for_nodes(seen, limits, now),
        None => match &seen.room {
            RoomSeen::No(why) => stop(StopReason::Changed(why.clone())),
            room => go_on(begun, seen, (room, limits), now),
        },
    }
}

/// How many victims have been evicted: not those that ended by themselves before the first eviction.
pub(crate) fn evicted(begun: &Begun, seen: &Seen, limits: &Limits, now: Timestamp) -> usize {
    let left = seen.victims.iter().filter(|victim| **victim != VictimSeen::Runs);
    if now < later(begun.since, limits.settle) { 0 } else { left.count() }
}

/// How the preemption has ended, whatever the room says.
fn settled(begun: &Begun, seen: &Seen) -> Option<End> {
    let pods = seen.pods.iter().zip(&begun.record.pods);
    if pods.clone().all(|(seen, pod)| *seen == PodSeen::Bound(pod.node.clone())) {
        return Some(End::Bound);
    }
    let why = pods.enumerate().find_map(|(index, (seen, pod))| match seen {
        PodSeen::Gone => Some(StopReason::PodGone(index)),
        PodSeen::Bound(node) if *node != pod.node => Some(StopReason::Elsewhere(index)),
        PodSeen::Bound(_) | PodSeen::Waits { .. } => None,
    });
    let missing = (!begun.is_whole()).then_some(StopReason::RulesMissing);
    why.or(missing).map(End::Stopped)
}

fn wait_for_nodes(seen: &Seen, limits: &Limits, now: Timestamp) -> Next {
    let allocated = seen.pods.iter().filter_map(|pod| match pod {
        PodSeen::Waits { allocated } => *allocated,
        PodSeen::Gone | PodSeen::Bound(_) => None,
    });
    let until = allocated.max().map(|at| later(at, limits.bound_within));
    wait_until(until.unwrap_or(now), StopReason::NotBound, now)
}

/// Evicts the victims, then gives the pods their devices.
fn go_on(begun: &Begun, seen: &Seen, (room, limits): (&RoomSeen, &Limits), now: Timestamp) -> Next {
    if seen.victims.iter().any(|victim| *victim != VictimSeen::Gone) {
        return evict(begun, seen, limits, now);
    }
    match (room, limits.keep) {
        (RoomSeen::Now, Keep::Allocation) => {
            let open = seen.pods.iter().enumerate().filter(|(_, pod)| !pod.has_devices());
            let writes = open.map(|(index, _)| Write::Allocate(index)).collect();
            Next { writes, ..Next::default() }
        }
        (RoomSeen::Now, Keep::Rules) => Next { end: Some(End::Released), ..Next::default() },
        _ => wait_until(later(begun.since, limits.freed_within), StopReason::NotFreed, now),
    }
}

fn evict(begun: &Begun, seen: &Seen, limits: &Limits, now: Timestamp) -> Next {
    let running: Vec<usize> = seen
        .victims
        .iter()
        .enumerate()
        .filter(|(_, victim)| **victim == VictimSeen::Runs)
        .map(|(index, _)| index)
        .collect();
    let first = later(begun.since, limits.settle);
    let last = later(begun.since, limits.refused_within);
    match running {
        // They end in their own time.
        running if running.is_empty() => Next::default(),
        _ if now < first => Next { at: Some(first), ..Next::default() },
        _ if now >= last => stop(StopReason::Refused),
        running => {
            let writes = running.into_iter().map(Write::Evict).collect();
            Next { writes, at: Some(last), ..Next::default() }
        }
    }
}

fn wait_until(until: Timestamp, otherwise: StopReason, now: Timestamp) -> Next {
    if now < until { Next { at: Some(until), ..Next::default() } } else { stop(otherwise) }
}

fn stop(why: StopReason) -> Next {
    Next { end: Some(End::Stopped(why)), ..Next::default() }
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

impl PodSeen {
    /// Whether it has its devices, and needs nothing more from this program.
    fn has_devices(&self) -> bool {
        match self {
            Self::Gone => false,
            Self::Waits { allocated } => allocated.is_some(),
            Self::Bound(_) => true,
        }
    }
}
