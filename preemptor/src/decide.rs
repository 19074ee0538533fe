//! Who gives way to whom: the pods and groups that wait for devices, one after another.

use super::chosen::key_of;
use super::decision::{Cluster, Decision, NoPreemption, PodId, Preemption, Refusal, Rules};
use super::pods::{WaitingPod, WaitingStage};
use super::scene::Scene;
use super::units::Units;
use super::{groups, moves, singles};
use cluster_model::predict::{self, work_max};
use cluster_model::room::{Ask, Extended, PodKey, Room};
use cluster_model::view::{ClusterView, ObjectKey};
use fabric_controller::{
    Action, ClusterCapacity, Group, PlacementPolicy, WaitingReason, decide as decide_groups,
};
use k8s_openapi::jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// For how many pods it is tried at most in a round whether others can move: that takes long.
const MOVERS_MAX: usize = 2;

/// Who waits.
enum Waiter<'a> {
    /// A pod by itself.
    Pod(&'a PodKey, &'a WaitingPod),
    /// The gated pods of a group, and why they wait.
    Group(&'a Group, WaitingReason),
}

/// Decides on the pods that wait for devices: highest priority first, then the oldest. At most one
/// preemption begins at a time. If there is none, pods move for the first one for which that helps, if the
/// rules allow it.
///
/// Pods that fit, or for which kube-scheduler itself evicts others, are left to it.
pub fn decide(cluster: Cluster<'_>, rules: &Rules, now: Timestamp) -> Decision {
    let waiters = waiters(cluster, now).into_iter();
    let mut waiters: Vec<_> =
        waiters.filter(|it| it.was_tried() && it.has_claims_made(cluster)).collect();
    if waiters.is_empty() {
        return Decision::default();
    }
    waiters.sort_by_key(Waiter::rank);
    let budget = predict::budget(cluster.view);
    let scene = Scene::new(cluster, rules, Units::new(cluster, rules, now));
    let mut room = scene.room(&budget);
    let mut refusals = Vec::new();
    // Pods for which others may move, the first of each kind.
    let mut refused_pods = Vec::new();
    // Pods that ask for the same, and for which nobody leaves.
    let mut refused: HashMap<(Arc<Ask>, i32), NoPreemption> = HashMap::new();
    for waiter in waiters {
        budget.renew(work_max(cluster.view.inventory().node_names().count()));
        let known = waiter.kind().and_then(|kind| refused.get(&kind).cloned());
        let decided = known.map(Err).or_else(|| waiter.decide(&scene, &mut room));
        match decided {
            None => {}
            Some(Ok(preemption)) => return Decision { preemption: Some(preemption), refusals },
            Some(Err(why)) => {
                if let Waiter::Pod(key, pod) = &waiter
                    && why.is_helped_by_moves()
                    && refused_pods.len() < MOVERS_MAX
                    && !waiter.kind().is_some_and(|kind| refused.contains_key(&kind))
                {
                    refused_pods.push((*key, *pod));
                }
                refused.extend(waiter.kind().map(|kind| (kind, why.clone())));
                refusals.extend(waiter.pod().map(|pod| Refusal { pod, why }));
            }
        }
    }
    let mut refused = refused_pods.into_iter().filter(|_| rules.may_move);
    let preemption = refused.find_map(|(key, pod)| {
        budget.renew(work_max(cluster.view.inventory().node_names().count()));
        moves::decide(&scene, &room.clone().besides(&key.into()), (key, pod))
    });
    Decision { preemption, refusals }
}

/// What would be decided on one pod, or on its group, if nobody waited before it. `None` if it does not
/// wait for devices. Its claims need not exist yet.
pub fn decide_on(
    pod: &ObjectKey,
    cluster: Cluster<'_>,
    rules: &Rules,
    now: Timestamp,
) -> Option<Result<Preemption, NoPreemption>> {
    let mut waiters = waiters(cluster, now).into_iter();
    let waiter = waiters.find(|waiter| waiter.has(pod))?;
    let budget = predict::budget(cluster.view);
    let scene = Scene::new(cluster, rules, Units::new(cluster, rules, now));
    waiter.decide(&scene, &mut scene.room(&budget))
}

/// The pods and groups that wait and that no begun preemption serves.
fn waiters(cluster: Cluster<'_>, now: Timestamp) -> Vec<Waiter<'_>> {
    let Cluster { view, nodes, pods, groups, .. } = cluster;
    let served = cluster.served();
    let pods = pods.waiting().filter(|(_, pod)| {
        !pod.waits_for_fabric
            && pod.stage != WaitingStage::Gated
            && !served.contains(&*pod.uid)
            && (pod.ask.has_claims() || Extended::new(&pod.ask.requests, view).is_some())
    });
    let pods = pods.map(|(key, pod)| Waiter::Pod(key, pod)).collect();
    let own = groups.iter().filter(|group| !group.is_pod_group()).cloned();
    let own: Vec<Group> = own.collect();
    if !own.iter().any(Group::has_gated) {
        return pods;
    }
    let budget = predict::budget(view);
    let capacity = ClusterCapacity::new(view, nodes, &budget);
    let decisions = decide_groups(&own, capacity, &PlacementPolicy::default(), now);
    let waiting = decisions.into_iter().filter_map(|decision| {
        let group = groups.iter().find(|group| group.key == decision.group)?;
        let is_served = group.members.iter().any(|member| served.contains(&*member.uid));
        match decision.action {
            Action::Wait(why) if !is_served && group.has_gated() && waits_for_room(&why) => {
                Some(Waiter::Group(group, why))
            }
            Action::Wait(_) | Action::Place { .. } | Action::Evict { .. } => None,
        }
    });
    waiting.chain(pods).collect()
}

/// Whether a group waits for room, or for something that keeps it from being looked at.
fn waits_for_room(why: &WaitingReason) -> bool {
    matches!(
        why,
        WaitingReason::NoRoom { .. }
            | WaitingReason::Full { .. }
            | WaitingReason::NotWhole { .. }
            | WaitingReason::OtherGates(_)
            | WaitingReason::Unknown(_)
            | WaitingReason::Expensive
    )
}

impl Waiter<'_> {
    /// Highest priority first, then the oldest.
    fn rank(&self) -> (Reverse<i32>, Option<Timestamp>, ObjectKey) {
        match self {
            Self::Pod(key, pod) => (Reverse(pod.priority), Some(pod.created), (*key).into()),
            Self::Group(group, _) => {
                let key = ObjectKey {
                    namespace: group.key.namespace.clone(),
                    name: group.key.label.clone(),
                };
                let priority = group.gated().map(|member| member.priority).min();
                (Reverse(priority.unwrap_or_default()), group.waits_since(), key)
            }
        }
    }

    /// What a single pod asks for, and its priority.
    fn kind(&self) -> Option<(Arc<Ask>, i32)> {
        match self {
            Self::Pod(_, pod) => Some((Arc::clone(&pod.kind), pod.priority)),
            Self::Group(..) => None,
        }
    }

    /// Whether this is the pod, or has it.
    fn has(&self, asked: &ObjectKey) -> bool {
        match self {
            Self::Pod(key, _) => *key.name == *asked.name && *key.namespace == *asked.namespace,
            Self::Group(group, _) => {
                group.key.namespace == asked.namespace
                    && group.gated().any(|member| member.name == asked.name)
            }
        }
    }

    /// Whether its scheduler runs, and has found no node. Nobody leaves for a pod that nobody would bind.
    fn was_tried(&self) -> bool {
        match self {
            Self::Pod(_, pod) => pod.stage == WaitingStage::Unschedulable,
            Self::Group(..) => true,
        }
    }

    /// Whether all claims exist: they are made soon after their pods.
    fn has_claims_made(&self, cluster: Cluster<'_>) -> bool {
        let Cluster { view, pods, .. } = cluster;
        match self {
            Self::Pod(_, pod) => are_claims_made(pod, view),
            Self::Group(group, _) => group.gated().all(|member| {
                let namespace = group.key.namespace.clone();
                let key = ObjectKey { namespace, name: member.name.clone() };
                pods.waiting_pod(&key).is_some_and(|pod| are_claims_made(pod, view))
            }),
        }
    }

    /// The pod, or the first one of the group.
    fn pod(&self) -> Option<PodId> {
        match self {
            Self::Pod(key, pod) => Some(PodId { key: (*key).into(), uid: pod.uid.to_string() }),
            Self::Group(group, _) => {
                let first = group.gated().min_by_key(|member| &member.name)?;
                let namespace = group.key.namespace.clone();
                let key = ObjectKey { namespace, name: first.name.clone() };
                Some(PodId { key, uid: first.uid.clone() })
            }
        }
    }

    /// The preemption, or why there is none; `None` if none is needed. A pod that fits takes its place.
    fn decide<'a>(
        &self,
        scene: &Scene<'a>,
        room: &mut Room<'a>,
    ) -> Option<Result<Preemption, NoPreemption>> {
        let preemptors = &scene.rules.preemptors;
        match self {
            Self::Pod(key, pod) => {
                let view = scene.cluster.view;
                let own = room.clone().besides(&(*key).into());
                match own.attempt(&pod.ask, view.present_nodes()).map(|attempt| attempt.fits()) {
                    Err(why) => return Some(Err(NoPreemption::Unknown(why))),
                    Ok(fits) if !fits.is_empty() => {
                        room.take(&pod.kind, 1, fits);
                        return None;
                    }
                    Ok(_) => {}
                }
                if pod.is_in_pod_group {
                    return Some(Err(NoPreemption::InPodGroup));
                }
                let Some(preempting) = pod.ask.preempting() else {
                    return Some(Err(NoPreemption::NeverPreempts));
                };
                let by_scheduler = own.attempt(&preempting, view.present_nodes());
                if by_scheduler.is_ok_and(|attempt| !attempt.fits().is_empty()) {
                    return None;
                }
                if !preemptors.has(&key.namespace, pod.priority_class.as_deref()) {
                    return Some(Err(NoPreemption::NotAllowed));
                }
                Some(singles::decide(scene, &own, (key, pod)))
            }
            Self::Group(group, why) => {
                let is_allowed = group.gated().all(|member| {
                    preemptors.has(&group.key.namespace, member.priority_class.as_deref())
                });
                Some(match why {
                    WaitingReason::NoRoom { .. } | WaitingReason::Full { .. } if !is_allowed => {
                        Err(NoPreemption::NotAllowed)
                    }
                    WaitingReason::NoRoom { .. } | WaitingReason::Full { .. } => {
                        groups::decide(scene, room, group)
                    }
                    WaitingReason::NotWhole { .. } | WaitingReason::OtherGates(_) => {
                        Err(NoPreemption::NotYet(why.to_string()))
                    }
                    _ => Err(NoPreemption::Unknown(why.to_string())),
                })
            }
        }
    }
}

fn are_claims_made(pod: &WaitingPod, view: &ClusterView) -> bool {
    let claims = pod.ask.claims(view).unwrap_or_default();
    claims.iter().all(|claim| view.claim(&key_of(&claim.name)).is_some())
}
