//! Puts all pods of a job on the same rail: on a rail-optimised fabric, NICs of one rail
//! are one switch apart, and other rails are reached over the spine.
//!
//! The rail depends only on the job and the machines, so pods that are created at any
//! time by any replica get the same one. It does not depend on what is free.

use crate::demand::Demand;
use crate::denial::Denial;
use crate::fabric;
use crate::intent::{AlignmentPolicy, Fabric, Intent};
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use cluster_model::names::{annotation, attribute};
use dra_allocator::{AttributeValue, Device};
use k8s_openapi::api::core::v1::Pod;
use sha2::{Digest as _, Sha256};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::slice;

/// Keeps the NICs of one rail, and the machines that have any. Returns the rail, if the
/// pod requests one.
pub(crate) fn keep_one(
    intent: &Intent,
    demand: &Demand,
    machines: &mut Vec<Machine<'_>>,
) -> Result<Option<i64>, Denial> {
    let Some(group) = &intent.rail_group else { return Ok(None) };
    let mut nodes: BTreeMap<i64, usize> = BTreeMap::new();
    for machine in machines.iter() {
        let rails = machine.devices.nics.values().filter_map(|nic| rail(nic));
        for rail in rails.filter(|rail| serves(intent, demand, machine, *rail)) {
            *nodes.entry(rail).or_default() += machine.nodes.len();
        }
    }
    let Some(rail) = choose(&nodes, group) else {
        return Err(deny(format!(
            "no node that can serve the pod publishes {} on a NIC that is near enough to its GPUs",
            attribute::RAIL
        )));
    };
    for machine in machines.iter_mut() {
        machine.devices.nics.retain(|_, nic| self::rail(nic) == Some(rail));
    }
    machines.retain(|machine| !machine.devices.nics.is_empty());
    Ok(Some(rail))
}

/// Chooses the rail of a group among those that at least half as many nodes can serve as
/// the best one: the one with the highest hash of group and rail. One more rail or node
/// rarely changes the choice.
fn choose(nodes: &BTreeMap<i64, usize>, group: &str) -> Option<i64> {
    let most = nodes.values().max()?;
    let common = nodes.iter().filter(|(_, count)| 2 * **count >= *most).map(|(rail, _)| *rail);
    let hash = |rail: &i64| Sha256::digest(format!("{group}\0{rail}"));
    common.max_by_key(|rail| (hash(rail), Reverse(*rail)))
}

/// Returns true if the machine can serve the pod with NICs of this rail.
fn serves(intent: &Intent, demand: &Demand, machine: &Machine<'_>, wanted: i64) -> bool {
    if intent.policy == AlignmentPolicy::Preferred {
        return true;
    }
    let weakest = Nearness::weakest(slice::from_ref(machine));
    let mut cells = intent.level.map_or(weakest, Nearness::Level).cells(machine);
    for cell in &mut cells {
        cell.nics.retain(|nic| rail(machine.devices.nics[nic]) == Some(wanted));
    }
    demand.fits(&cells)
}

fn rail(nic: &Device) -> Option<i64> {
    match nic.attribute(attribute::RAIL)? {
        AttributeValue::Int(rail) => Some(*rail),
        _ => None,
    }
}

/// Adds the group that shares the rail to the intent, if the pod requests the same rail.
pub(crate) fn resolve(intent: Intent, pod: &Pod) -> Result<Intent, Denial> {
    if !intent.same_rail {
        return Ok(intent);
    }
    let fabric = intent.fabric.clone().unwrap_or(Fabric::Same);
    let group = fabric::group(pod, &fabric).ok_or_else(|| {
        deny("the pod has no controller and no job label, so no other pod shares its rail")
    })?;
    Ok(Intent { rail_group: Some(group), ..intent })
}

pub(crate) fn deny(why: impl Into<String>) -> Denial {
    Denial::new(annotation::RAIL, "same", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_spread_over_rails_and_keep_their_rail() {
        let nodes: BTreeMap<i64, usize> = (0..8).map(|rail| (rail, 10)).collect();
        let groups: Vec<_> = (0..400).map(|group| format!("{group:016x}")).collect();
        let rails: Vec<_> = groups.iter().map(|group| choose(&nodes, group).unwrap()).collect();
        for rail in 0..8 {
            let jobs = rails.iter().filter(|it| **it == rail).count();
            assert!((20..100).contains(&jobs), "{jobs} of 400 jobs on rail {rail}");
        }
        let more: BTreeMap<i64, usize> = nodes.into_iter().chain([(8, 1)]).collect();
        let again: Vec<_> = groups.iter().map(|group| choose(&more, group).unwrap()).collect();
        assert_eq!(again, rails, "a rail of one node moves no job");
    }

    #[test]
    fn a_rail_of_few_nodes_is_used_if_it_is_the_only_one() {
        assert_eq!(choose(&BTreeMap::from([(3, 1)]), "a"), Some(3));
        assert_eq!(choose(&BTreeMap::new(), "a"), None);
    }
}
