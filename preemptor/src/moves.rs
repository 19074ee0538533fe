//! Pods that let themselves be moved leave for a pod that waits, whatever their priority: a plan of
//! [`defrag`](crate::defrag) as a preemption, after which there is room for them on other nodes.

use super::decision::Preemption;
use super::defrag::{MOVES_MAX, Movable, Wanted, fewest_moves};
use super::pods::WaitingPod;
use super::scene::Scene;
use super::singles::preemption_on;
use cluster_model::room::{PodKey, Room};

/// The moves after which a pod fits, if all of them go to places that are free now, and no budget forbids
/// one. None while something else has begun.
pub(crate) fn decide<'a>(
    scene: &Scene<'a>,
    room: &Room<'a>,
    (key, pod): (&PodKey, &WaitingPod),
) -> Option<Preemption> {
    if !scene.cluster.begun.is_empty() {
        return None;
    }
    let wanted = Wanted::Pods(&pod.kind, 1);
    let plan = fewest_moves(scene.cluster, wanted, &Movable::default(), MOVES_MAX)?;
    if plan.moves.is_empty() || !plan.is_direct() {
        return None;
    }
    let moved = plan.moves.iter().map(|it| scene.units.single(&it.from, &it.pod.uid));
    let mut moved: Vec<usize> = moved.collect::<Option<_>>()?;
    moved.sort_unstable();
    scene.allowed_harm(&moved)?;
    let node = plan.nodes.first()?;
    let decided = preemption_on(scene, room, (key, pod), (node, &moved)).ok()?;
    Some(Preemption { moves: true, ..decided })
}
