//! What the place of pods takes from other pods, by the score of scheduler-ext.

use cluster_model::room::Room;
use dra_allocator::{ClaimAllocation, DeviceId};
use scheduler_ext::answers::Answers;
use scheduler_ext::score::{Costs, Mix};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// What places take: less is better, and fields are compared in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlaceLoss {
    /// Cells of machines, and whole machines, with GPUs and NICs that were all free before.
    cells: u32,
    /// The loss of the extender's score, in thousandths of a device.
    room: u64,
}

/// Computes what places take. Machines and losses are kept for the next ones.
#[derive(Default)]
pub(crate) struct PlaceScore {
    machines: Answers,
    costs: RefCell<Costs>,
    /// The extender's default: what it has learned is not known here.
    mix: Mix,
}

impl PlaceScore {
    /// What is lost if pods take these devices of nodes.
    pub(crate) fn loss<'p>(
        &self,
        room: &Room<'_>,
        placed: impl IntoIterator<Item = (&'p str, &'p [ClaimAllocation])>,
    ) -> PlaceLoss {
        let mut taken: BTreeMap<&str, Vec<DeviceId>> = BTreeMap::new();
        for (node, allocations) in placed {
            let results = allocations.iter().flat_map(|allocation| &allocation.results);
            let own = results.filter(|result| !result.admin_access);
            taken.entry(node).or_default().extend(own.map(|result| result.device.clone()));
        }
        let mut costs = self.costs.borrow_mut();
        let mut loss = PlaceLoss::default();
        for (node, devices) in taken {
            let machine = self.machines.machine(room.view(), node);
            let [before, after] = machine.rooms(room.in_use(), &devices);
            let whole = machine.whole();
            loss.cells += before.broken(&after, whole);
            loss.room += costs.of([&before, &after, whole], &self.mix).loss;
        }
        loss
    }
}
