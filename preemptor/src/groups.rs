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
use fabric_controller::decide::supposed::Supposed;
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
    places: &'t Supposed<'t>,
}

impl Trial for FabricTrial<'_, '_> {
    type Harm = Harm;

    fn set(&mut self, unit: usize, leaves: bool) {
        self.scene.units.set(&mut self.room, unit, leaves);
    }

    fn suffices(&mut self) -> bool {
        self.places.find(&self.room).is_some()
    }

    fn with_place(&mut self, harm: Harm) -> Harm {
        let places = self.places.find(&self.room).unwrap_or_default();
        let taken = places.iter().map(|place| (&*place.node, &*place.devices));
        harm.at(self.scene.places.loss(&self.room, taken))
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
    let fabrics = scene.fabrics();
    let open = fabrics.iter().filter(|(name, _)| home.as_deref().is_none_or(|it| it == **name));
    let fabrics: Vec<_> = open
        .map(|(fabric, nodes)| {
            let places = Supposed::new(group, scene.cluster.groups, view, (fabric, nodes));
            let here = nodes.iter().flat_map(|node| scene.units.on(node)).copied();
            let here: BTreeSet<usize> = here.filter(|unit| lower.free.contains(unit)).collect();
            (places, here)
        })
        .collect();
    let mut trials: Vec<_> = fabrics
        .iter()
        .filter_map(|(places, here)| {
            let trial = FabricTrial { scene, room: room.clone(), places };
            Some((highest(trial, here)?, places, here))
        })
        .collect();
    trials.sort_by_key(|(highest, places, _)| (*highest, places.fabric()));
    let mut best: Option<(&Supposed<'_>, Found<Harm>)> = None;
    let mut tries = TRIES;
    for (_, places, here) in trials.into_iter().take(FABRICS_MAX) {
        let mut trial = FabricTrial { scene, room: room.clone(), places };
        let known = best.as_ref().map(|(_, (harm, _))| harm);
        if let Some(found) = least(scene, &mut trial, (here, known), &mut tries)
            && known.is_none_or(|harm| found.0 < *harm)
        {
            best = Some((places, found));
        }
    }
    let Some((places, (_, victims))) = best else {
        return Err(scene.refusal(&lower, |units| {
            fabrics
                .iter()
                .any(|(places, _)| places.find(&scene.room_without(room, units)).is_some())
        }));
    };
    let found = places.find(&scene.room_without(room, &victims));
    let members = found.ok_or(NoPreemption::DoesNotHelp)?.into_iter().map(|place| {
        let key = ObjectKey { namespace: group.key.namespace.clone(), name: place.pod };
        let pod = scene.cluster.pods.waiting_pod(&key)?;
        placement(view, (key, pod), (&place.node, place.domains), place.devices)
    });
    let members = members.collect::<Option<Vec<_>>>().ok_or(NoPreemption::ExtendedResource)?;
    Ok(preemption(&scene.units, &victims, (priority, Some(places.fabric())), members))
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

/// The least harmful set of these units, unless it is more harmful than the best one known.
fn least(
    scene: &Scene<'_>,
    trial: &mut FabricTrial<'_, '_>,
    (units, known): (&BTreeSet<usize>, Option<&Harm>),
    tries: &mut usize,
) -> Option<Found<Harm>> {
    let order = scene.reprieve_order(units.iter().copied());
    trial.set_all(&order, true);
    if !trial.suffices() {
        return None;
    }
    let first = scene.first(&order, trial, known);
    // Of many units, what can be better is not found in time.
    if order.len() > UNITS_MAX {
        return first;
    }
    let known = first.as_ref().map(|(harm, _)| harm).or(known).cloned();
    scene.better(&order, trial, known, tries).or(first)
}
