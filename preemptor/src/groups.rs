//! Groups of fabric-controller: all pods of a job get room on one fabric, or nobody leaves.

use super::chosen::{placement, preemption};
use super::decision::{NoPreemption, Preemption};
use super::scene::Scene;
use super::search::{Found, TRIES, Trial};
use super::units::Harm;
use cluster_model::names::label;
use cluster_model::room::Room;
use cluster_model::view::ObjectKey;
use fabric_controller::Group;
use fabric_controller::decide::supposed::places;
use std::collections::BTreeSet;

/// The most fabrics on which the least harmful set is searched for: those first where the lowest
/// priorities suffice.
const FABRICS_MAX: usize = 8;
/// The most units of which other sets than the first one are tried.
const UNITS_MAX: usize = 24;

/// Whether a group fits on a fabric.
struct FabricTrial<'t, 'a> {
    scene: &'t Scene<'a>,
    room: Room<'a>,
    group: &'t Group,
    fabric: &'t str,
}

impl Trial for FabricTrial<'_, '_> {
    fn set(&mut self, unit: usize, leaves: bool) {
        self.scene.units.set(&mut self.room, unit, leaves);
    }

    fn suffices(&mut self) -> bool {
        places(self.group, self.scene.cluster.groups, (&self.room, self.fabric)).is_some()
    }
}

/// The priority with which a group takes devices from others: the lowest of its pods that wait. `None` if
/// one of them takes none.
pub(crate) fn priority(group: &Group) -> Option<i32> {
    let priorities = group.gated().map(|member| member.ask.preempting_priority());
    priorities.collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// The preemption for the gated pods of a group that fits on no fabric of this room.
pub(crate) fn decide<'a>(
    scene: &Scene<'a>,
    room: &Room<'a>,
    group: &Group,
) -> Result<Preemption, NoPreemption> {
    let priority = priority(group).ok_or(NoPreemption::NeverPreempts)?;
    let lower = scene.lower(priority);
    let view = scene.cluster.view;
    let home = group.fabric(|node| view.node_label(node, label::NODE_FABRIC).map(str::to_owned));
    let mut best: Option<(&str, Found<Harm>)> = None;
    let fabrics = scene.fabrics();
    let open = || fabrics.iter().filter(|(name, _)| home.as_deref().is_none_or(|it| it == **name));
    let mut trials: Vec<_> = open()
        .filter_map(|(fabric, nodes)| {
            let here = scene.units.on(nodes.iter().copied());
            let here: BTreeSet<usize> = here.intersection(&lower.free).copied().collect();
            let trial = FabricTrial { scene, room: room.clone(), group, fabric };
            Some((highest(trial, &here)?, *fabric, here))
        })
        .collect();
    trials.sort_by_key(|(highest, fabric, _)| (*highest, *fabric));
    let mut tries = TRIES;
    for (_, fabric, here) in trials.into_iter().take(FABRICS_MAX) {
        let mut trial = FabricTrial { scene, room: room.clone(), group, fabric };
        let known = best.as_ref().map(|(_, (harm, _))| harm.clone());
        if let Some(found) = least(scene, &mut trial, &here, &mut tries)
            && known.is_none_or(|harm| found.0 < harm)
        {
            best = Some((fabric, found));
        }
    }
    let Some((fabric, (_, victims))) = best else {
        return Err(scene.refusal(&lower, |units| {
            open().any(|(fabric, _)| fits_without(scene, room, units, (group, fabric)))
        }));
    };
    let room = scene.room_without(room, &victims);
    let placed = places(group, scene.cluster.groups, (&room, fabric));
    let placed = placed.ok_or(NoPreemption::DoesNotHelp)?.into_iter().map(|place| {
        let key = ObjectKey { namespace: group.key.namespace.clone(), name: place.pod };
        let pod = scene.cluster.pods.waiting_pod(&key)?;
        placement(view, (key, pod), (&place.node, place.domains), place.devices)
    });
    let placed = placed.collect::<Option<Vec<_>>>().ok_or(NoPreemption::ExtendedResource)?;
    Ok(preemption(&scene.units, &victims, (priority, Some(fabric)), placed))
}

/// The priority up to which all of these units must leave so that the group fits; `None` if it never
/// does.
fn highest(mut trial: FabricTrial<'_, '_>, units: &BTreeSet<usize>) -> Option<i32> {
    let priorities: BTreeSet<i32> =
        units.iter().map(|unit| trial.scene.units.get(*unit).highest).collect();
    let priorities: Vec<i32> = priorities.into_iter().collect();
    let room = trial.room.clone();
    let enough = priorities.partition_point(|most| {
        let leaving = units.iter().filter(|unit| trial.scene.units.get(**unit).highest <= *most);
        trial.room = trial.scene.room_without(&room, leaving);
        !trial.suffices()
    });
    priorities.get(enough).copied()
}

/// The least harmful set of these units.
fn least(
    scene: &Scene<'_>,
    trial: &mut FabricTrial<'_, '_>,
    units: &BTreeSet<usize>,
    tries: &mut usize,
) -> Option<Found<Harm>> {
    let order = scene.reprieve_order(units);
    trial.set_all(&order, true);
    if !trial.suffices() {
        return None;
    }
    let first = scene.first(&order, trial);
    // Of many units, what can be better is not found in time.
    if order.len() > UNITS_MAX {
        return first;
    }
    let known = first.as_ref().map(|(harm, _)| harm.clone());
    scene.better(&order, trial, known, tries).or(first)
}

fn fits_without<'a>(
    scene: &Scene<'a>,
    room: &Room<'a>,
    units: &BTreeSet<usize>,
    (group, fabric): (&Group, &str),
) -> bool {
    let room = scene.room_without(room, units);
    places(group, scene.cluster.groups, (&room, fabric)).is_some()
}
