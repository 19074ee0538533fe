//! PCIe links as they run: those above NICs, their data paths, disks, and switches with
//! any of these below. A GPU slows its link down by itself when it is idle, and so do the
//! ports that are in it, so what theirs run at says nothing.

use std::collections::BTreeSet;
use std::iter::successors;

use super::Branches;
use crate::Snapshot;
use crate::graph::{Branch, Place, Role};

pub(super) fn settle(snapshot: &Snapshot, branches: &mut Branches) {
    let steady = above_what_runs_steadily(branches);
    for branch in branches.values_mut().filter(|branch| steady.contains(&branch.place())) {
        let function = branch.place().address().and_then(|address| snapshot.function(address));
        let runs = function.filter(|function| is_lower_end(branch, function.bridges.len()));
        branch.vertex.current_link = runs.and_then(|function| function.current_link);
    }
}

fn above_what_runs_steadily(branches: &Branches) -> BTreeSet<Place> {
    let parent = |place: &Place| branches.get(place).and_then(|branch| branch.parent);
    let ends = branches
        .values()
        .filter(|branch| matches!(branch.role(), Role::Nic | Role::DataPath | Role::Nvme));
    ends.flat_map(|branch| successors(Some(branch.place()), parent)).collect()
}

/// Ports are by turns a link's upper end and, below it, its lower one; what a port at an
/// upper end tells is the link of what is below it.
fn is_lower_end(branch: &Branch, ports_above: usize) -> bool {
    !branch.role().is_port() || !ports_above.is_multiple_of(2)
}
