//! PCIe links at their current speed: above NICs, their data paths and disks, and above switches
//! with any of these below. Links above GPUs and inside their adapters are not included: an idle
//! GPU slows them down, so their current speed means nothing.

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
    let ends = branches
        .values()
        .filter(|branch| matches!(branch.role(), Role::Nic | Role::DataPath | Role::Nvme));
    ends.flat_map(|branch| successors(Some(branch.place()), |place| branches.get(place)?.parent))
        .collect()
}

/// Returns true if the port is the lower end of a link. Along a path, ports alternate between upper
/// and lower ends; the link that an upper end shows is the one of the device below it.
fn is_lower_end(branch: &Branch, ports_above: usize) -> bool {
    !branch.role().is_port() || !ports_above.is_multiple_of(2)
}
