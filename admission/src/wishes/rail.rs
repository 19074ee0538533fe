//! Puts all pods of a job on the same rails, one for each NIC of a pod: on a rail-optimised fabric, NICs of one rail
//! are one switch apart, and other rails are reached over the spine.
//!
//! The rails depend only on the job and the machines, so pods that are created at any
//! time by any replica get the same ones. They do not depend on what is free.

use super::{Asker, FabricWish};
use crate::alignment::AlignmentPolicy;
use crate::demand::Demand;
use crate::denial::Denial;
use crate::group::{self, Fabric, SAME};
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use cluster_model::names::{annotation, attribute};
use cluster_model::node_devices::int;
use cluster_model::view::ClusterView;
use dra_allocator::Device;
use k8s_openapi::api::core::v1::Pod;
use sha2::{Digest as _, Sha256};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use topology_graph::Level;

/// The wish for NICs of the same rails as all pods of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SameRail {
    /// The group. It is set after the annotations are read, since it depends on the whole pod.
    group: Option<String>,
}

impl SameRail {
    pub(super) fn read(asker: &Asker<'_>) -> Result<Option<Self>, Denial> {
        match asker.annotation(annotation::RAIL) {
            None => Ok(None),
            Some(SAME) => Ok(Some(Self::default())),
            Some(value) => Err(Denial::new(annotation::RAIL, value, "invalid value")
                .allowed(format!("\"{SAME}\""))),
        }
    }

    /// Sets the group that shares the rail.
    pub(super) fn resolve(
        &mut self,
        pod: &Pod,
        fabric: Option<&FabricWish>,
        view: &ClusterView,
    ) -> Result<(), Denial> {
        let fabric = fabric.map_or(&Fabric::Same, |fabric| &fabric.group);
        let own = group::own_pod_group(pod, view).map_err(|unknown| {
            Self::deny(format!(
                "{unknown} of the pod is not known yet; create the group first, and try again"
            ))
        })?;
        let group = group::group(pod, fabric, own.and_then(|own| own.root)).ok_or_else(|| {
            Self::deny(
                "the pod has no controller and no job label, so no other pod shares its rail",
            )
        })?;
        self.group = Some(group);
        Ok(())
    }

    /// Keeps the NICs of as many rails as the pod requests NICs, and the machines that have them.
    /// Returns the rails.
    pub(super) fn keep(
        &self,
        demand: &Demand,
        asked: (AlignmentPolicy, Option<Level>),
        machines: &mut Vec<Machine<'_>>,
    ) -> Result<Vec<i64>, Denial> {
        let Some(group) = &self.group else { return Ok(Vec::new()) };
        let width = usize::try_from(demand.all_nics()).unwrap_or(usize::MAX);
        let all: BTreeSet<i64> = machines.iter().flat_map(rails_of).collect();
        let all: Vec<i64> = all.into_iter().collect();
        let mut nodes = served(machines, demand, asked, blocks(&all, width));
        if nodes.is_empty() {
            let sets = all.windows(width).map(<[i64]>::to_vec).collect();
            nodes = served(machines, demand, asked, sets);
        }
        let Some(rails) = choose(&nodes, group) else {
            return Err(Self::deny(format!(
                "no node that can serve the pod publishes {} on {} near enough to its GPUs",
                attribute::RAIL,
                match width {
                    1 => "a NIC that is".to_owned(),
                    _ => format!("{width} NICs, one of each rail, that are"),
                }
            )));
        };
        machines.retain(|machine| has_set(machine, &rails));
        for machine in machines.iter_mut() {
            machine
                .devices
                .nics
                .retain(|_, nic| rail(nic).is_some_and(|rail| rails.contains(&rail)));
        }
        Ok(rails)
    }

    /// Denies a pod whose group has no common rail.
    pub(crate) fn deny(why: impl Into<String>) -> Denial {
        Denial::new(annotation::RAIL, SAME, why)
    }
}

/// How many nodes can serve the pod with each of these sets of rails; without sets that none can.
fn served(
    machines: &[Machine<'_>],
    demand: &Demand,
    asked: (AlignmentPolicy, Option<Level>),
    sets: Vec<Vec<i64>>,
) -> BTreeMap<Vec<i64>, usize> {
    sets.into_iter()
        .filter_map(|set| {
            let able = machines.iter().filter(|machine| serves(asked, demand, machine, &set));
            let nodes: usize = able.map(|machine| machine.nodes.len()).sum();
            (nodes > 0).then_some((set, nodes))
        })
        .collect()
}

/// Divides the rails into sets of this many, in order of their numbers, so that sets of other
/// widths are parts of them or have them as parts. A rest that is too small is filled up.
fn blocks(rails: &[i64], width: usize) -> Vec<Vec<i64>> {
    let rest = rails.len() % width;
    let last = (rest > 0 && rails.len() > width).then(|| rails[rails.len() - width..].to_vec());
    rails.chunks_exact(width).map(<[i64]>::to_vec).chain(last).collect()
}

/// Chooses the rails of a group among those that at least half as many nodes can serve as the best
/// ones: those with the rail of the highest hash of group and rail, which is the same for any number
/// of NICs. One more rail or node rarely changes the choice.
fn choose(nodes: &BTreeMap<Vec<i64>, usize>, group: &str) -> Option<Vec<i64>> {
    let most = nodes.values().max()?;
    let common = nodes.iter().filter(|(_, count)| 2 * **count >= *most).map(|(rails, _)| rails);
    common.max_by_key(|rails| rails.iter().map(|rail| rank(*rail, group)).max()).cloned()
}

/// By which a group chooses among rails.
fn rank(rail: i64, group: &str) -> (impl Ord + use<>, Reverse<i64>) {
    (Sha256::digest(format!("{group}\0{rail}")), Reverse(rail))
}

/// Returns true if the machine can serve the pod with NICs of these rails.
fn serves(
    (policy, level): (AlignmentPolicy, Option<Level>),
    demand: &Demand,
    machine: &Machine<'_>,
    wanted: &[i64],
) -> bool {
    if !has_set(machine, wanted) {
        return false;
    }
    if policy == AlignmentPolicy::Preferred {
        return true;
    }
    let weakest = Nearness::weakest(slice::from_ref(machine));
    let mut cells = level.map_or(weakest, Nearness::Level).cells(machine);
    for cell in &mut cells {
        cell.nics.retain(|nic| {
            rail(machine.devices.nics[nic]).is_some_and(|rail| wanted.contains(&rail))
        });
    }
    demand.fits(&cells)
}

/// Returns true if the machine has a NIC of the rail, or exactly one of each rail if there are
/// several: otherwise two pods with as many NICs could have different rails.
fn has_set(machine: &Machine<'_>, wanted: &[i64]) -> bool {
    let rails: Vec<i64> = rails_of(machine).collect();
    match wanted {
        [one] => rails.contains(one),
        several => several.iter().all(|one| rails.iter().filter(|rail| *rail == one).count() == 1),
    }
}

fn rails_of<'m>(machine: &'m Machine<'_>) -> impl Iterator<Item = i64> + 'm {
    machine.devices.nics.values().filter_map(|nic| rail(nic))
}

fn rail(nic: &Device) -> Option<i64> {
    int(nic, attribute::RAIL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten_nodes_each(sets: Vec<Vec<i64>>) -> BTreeMap<Vec<i64>, usize> {
        sets.into_iter().map(|set| (set, 10)).collect()
    }

    #[test]
    fn jobs_are_spread_over_rails_and_keep_their_rail() {
        let nodes = ten_nodes_each((0..8).map(|rail| vec![rail]).collect());
        let groups: Vec<_> = (0..400).map(|group| format!("{group:016x}")).collect();
        let rails: Vec<_> = groups.iter().map(|group| choose(&nodes, group).unwrap()).collect();
        for rail in 0..8 {
            let jobs = rails.iter().filter(|it| **it == [rail]).count();
            assert!((20..100).contains(&jobs), "{jobs} of 400 jobs on rail {rail}");
        }
        let more: BTreeMap<_, usize> = nodes.into_iter().chain([(vec![8], 1)]).collect();
        let again: Vec<_> = groups.iter().map(|group| choose(&more, group).unwrap()).collect();
        assert_eq!(again, rails, "a rail of one node moves no job");
    }

    /// Pods of one group with one, two, four and eight NICs reach each other within rails.
    #[test]
    fn the_rails_of_fewer_nics_are_among_those_of_more() {
        let all: Vec<i64> = (0..8).collect();
        for group in (0..100).map(|group| format!("{group:016x}")) {
            let sets = [1, 2, 4, 8]
                .map(|width| choose(&ten_nodes_each(blocks(&all, width)), &group).unwrap());
            for pair in sets.windows(2) {
                assert!(pair[0].iter().all(|rail| pair[1].contains(rail)), "{sets:?}");
            }
        }
    }

    #[test]
    fn rails_are_divided_in_order() {
        for (rails, width, expected) in [
            (&[0, 1, 2, 3][..], 2, vec![vec![0, 1], vec![2, 3]]),
            (&[0, 1, 2], 2, vec![vec![0, 1], vec![1, 2]]),
            (&[0, 2, 5], 1, vec![vec![0], vec![2], vec![5]]),
            (&[0, 1], 4, vec![]),
            (&[], 1, vec![]),
        ] {
            assert_eq!(blocks(rails, width), expected, "{rails:?} by {width}");
        }
    }

    #[test]
    fn a_rail_of_few_nodes_is_used_if_it_is_the_only_one() {
        assert_eq!(choose(&BTreeMap::from([(vec![3], 1)]), "a"), Some(vec![3]));
        assert_eq!(choose(&BTreeMap::new(), "a"), None);
    }
}
