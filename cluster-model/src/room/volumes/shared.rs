//! Claims that several pods share: only one pod may use some volumes, and where a claim has no volume yet,
//! that of the first pod decides where the others can be.

use super::choice::Chosen;
use super::{ResolvedVolumes, is_in_zone, is_selected};
use crate::room::{Places, Room};
use dra_allocator::node::Node;
use std::collections::BTreeSet;

/// Where a volume can be used.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// Where this volume can.
    Volume(String),
    /// On nodes with these labels, by which the driver that makes it tells nodes apart
    /// (`CSINode.spec.drivers[].topologyKeys`).
    Labels(Vec<(String, Option<String>)>),
}

impl Room<'_> {
    /// Limits places for pods that share claims: to one where only one pod may use the volume, else to the
    /// fewest that are left after the first pod has its volumes, as the scheduler may begin on any node.
    pub(in crate::room) fn share_volumes(
        &self,
        volumes: &ResolvedVolumes<'_>,
        places: &mut Vec<Places<'_>>,
    ) {
        if volumes.is_for_one {
            places.truncate(1);
            for only in places.iter_mut() {
                only.count = 1;
            }
            return;
        }
        let firsts = places.iter().filter_map(|first| self.reached_from(first.node, volumes));
        let firsts: BTreeSet<Vec<Reach>> = firsts.collect();
        let fewest = firsts.into_iter().min_by_key(|reached| self.left(places, reached));
        if let Some(reached) = fewest {
            places.retain(|places| self.is_reached(places.node, &reached));
        }
    }

    /// How many places are left where these volumes can be used.
    fn left(&self, places: &[Places<'_>], reached: &[Reach]) -> usize {
        let there = places.iter().filter(|places| self.is_reached(places.node, reached));
        there.fold(0, |sum, places| sum.saturating_add(places.count))
    }

    /// Where all shared volumes can be used if the first pod is on this node.
    fn reached_from(&self, node: &str, volumes: &ResolvedVolumes<'_>) -> Option<Vec<Reach>> {
        let node = self.view.inventory().node(node)?;
        let chosen = self.chosen(node, volumes).ok()?;
        let shared = chosen.iter().filter(|chosen| chosen.is_shared());
        Some(shared.map(|chosen| self.reach(node, chosen)).collect())
    }

    fn reach(&self, node: &Node, chosen: &Chosen<'_, '_>) -> Reach {
        if let Some(volume) = chosen.volume() {
            return Reach::Volume(volume.metadata.name.clone().unwrap_or_default());
        }
        let drivers = self.view.volumes().on_node(&node.name);
        let mut drivers = drivers.into_iter().flat_map(|node| &node.spec.drivers);
        let driver = drivers.find(|driver| driver.name == chosen.provisioner());
        let keys = driver.and_then(|driver| driver.topology_keys.as_ref()).into_iter().flatten();
        let labels = keys.map(|key| (key.clone(), node.label(key).map(str::to_owned)));
        Reach::Labels(labels.collect())
    }

    fn is_reached(&self, node: &str, reached: &[Reach]) -> bool {
        let Some(node) = self.view.inventory().node(node) else { return false };
        reached.iter().all(|reach| match reach {
            Reach::Volume(name) => {
                let volume = self.view.volumes().volume(name);
                volume.is_some_and(|it| is_selected(it, node) && is_in_zone(it, node))
            }
            Reach::Labels(labels) => {
                labels.iter().all(|(key, value)| node.label(key) == value.as_deref())
            }
        })
    }
}
