//! Points for storage that is left where volumes of a pod are chosen or made (`plugins/volumebinding`).

use super::MOST;
use crate::room::{Ask, Room};
use std::collections::BTreeMap;

impl Room<'_> {
    /// The points of nodes.
    pub(super) fn points_for_storage(&self, nodes: &[&str], ask: &Ask) -> Vec<i64> {
        nodes.iter().map(|node| self.points_for_storage_on(node, ask).unwrap_or_default()).collect()
    }

    fn points_for_storage_on(&self, node: &str, ask: &Ask) -> Option<i64> {
        let resolved = self.volumes(ask).ok().filter(|_| !ask.volumes.is_empty())?;
        let chosen = self.chosen(self.view.inventory().node(node)?, &resolved).ok()?;
        let exist = chosen.iter().any(|it| !it.is_made());
        let mut classes: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for it in chosen.iter().filter(|it| it.is_made() != exist) {
            let (class, asked, Some(left)) = it.storage() else { continue };
            let (requested, capacity) = classes.entry(class).or_default();
            *requested += asked;
            // Volumes that are made share what is left.
            *capacity = if it.is_made() { left } else { *capacity + left };
        }
        let number = i64::try_from(classes.len()).ok().filter(|number| *number > 0)?;
        let sum: i64 = classes.values().map(|it| points(*it)).sum();
        // Rounded to the nearest, as the plugin does.
        Some((2 * sum + number) / (2 * number))
    }
}

/// The points of a class: fewer the more of the capacity is asked for.
fn points((requested, capacity): (i64, i64)) -> i64 {
    if capacity == 0 || requested > capacity {
        return 0;
    }
    MOST - requested * MOST / capacity
}
