//! What an allocation takes from the pods that are still to come.

use super::{Demand, Free, Mix, Room};

/// What is lost for pods still to come. Smaller is better, in the order of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost {
    /// Devices that pods of the mix can no longer get, in thousandths of a device: over
    /// shapes and levels, the share of the shape times its GPUs times how many pods of
    /// it less are expected to find their devices in one cell of the level.
    pub loss: u64,
    /// Nodes of the fabric on which nothing is in use, before the allocation; 0 where the
    /// node is on no fabric or no gangs are expected. Gangs need many on one fabric: the
    /// fabric that has fewest is broken first.
    pub whole_nodes: u32,
    /// GPUs, or NICs on a node without any, that are free on the node afterwards: a node
    /// that is nearly full is the last that could become whole again.
    pub left: u32,
}

/// Millionths of one.
const WHOLE: u64 = 1_000_000;

/// A thousandth of a device, in millionths of millionths: shares are rounded to
/// millionths, and what differs by less than a step is equal.
const STEP: u128 = 1_000_000_000;

/// Devices of a cell whose end is thought of one by one, at most: binomial coefficients of
/// more do not fit.
const HELD_MAX: u32 = 60;

impl Cost {
    /// What a node, free as `before`, loses by an allocation that leaves `after`; `whole`
    /// is what would be free with nothing in use. Its fabric is not counted.
    pub fn of(before: &Room, after: &Room, whole: &Room, mix: &Mix) -> Self {
        let weighed = |(demand, share): &(Demand, u32)| {
            let pods = lost_on_node([before, after, whole], *demand);
            u128::from(*share) * u128::from(demand.worth()) * u128::from(pods)
        };
        let loss = mix.shares().iter().map(weighed).sum::<u128>();
        let loss = loss.saturating_add(STEP / 2) / STEP;
        let left = after.node();
        let has_gpus = before.node().gpus > 0;
        Self {
            loss: u64::try_from(loss).unwrap_or(u64::MAX),
            whole_nodes: 0,
            left: if has_gpus { left.gpus } else { left.nics },
        }
    }

    /// The same on a fabric with so many whole nodes.
    #[must_use]
    pub fn on_fabric(self, whole_nodes: u32, mix: &Mix) -> Self {
        Self { whole_nodes: if mix.has_gangs() { whole_nodes } else { 0 }, ..self }
    }
}

/// How many pods of a shape less are expected to fit, over all cells of all levels, in
/// millionths.
fn lost_on_node(rooms: [&Room; 3], demand: Demand) -> u64 {
    let [before, after, whole] = rooms.map(|room| room.levels().iter().flatten());
    let cells = before.zip(after).zip(whole);
    let changed =
        cells.filter(|((before, after), whole)| before != after && whole.fits(demand) > 0);
    let lost = changed.map(|((before, after), whole)| {
        expected(*before, *whole, demand).saturating_sub(expected(*after, *whole, demand))
    });
    lost.sum()
}

/// How many pods of a shape are expected to find their devices in a cell by the time that
/// one comes, in millionths: what is in use may be free again by then or not, which is
/// counted as equally likely for each device, GPUs together with NICs.
///
/// So a node that is nearly empty has more to lose for pods that need all of it than one
/// that is nearly full, though neither has room for them now.
fn expected(free: Free, whole: Free, demand: Demand) -> u64 {
    let held = Free {
        gpus: whole.gpus.saturating_sub(free.gpus),
        nics: whole.nics.saturating_sub(free.nics),
    };
    let all = held.gpus.max(held.nics).min(HELD_MAX);
    // Of `all` devices, `ways` choices of `freed`.
    let mut ways = 1_u64;
    let mut sum = 0_u128;
    for freed in 0..=all {
        let then =
            Free { gpus: free.gpus + freed.min(held.gpus), nics: free.nics + freed.min(held.nics) };
        sum += u128::from(ways) * u128::from(then.fits(demand));
        ways = ways * u64::from(all - freed) / u64::from(freed + 1);
    }
    u64::try_from((sum * u128::from(WHOLE)) >> all).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(count: u32) -> Free {
        Free { gpus: count, nics: count }
    }

    #[test]
    fn what_is_in_use_may_be_free_again() {
        let of = |free: u32, gpus: u32| expected(pairs(free), pairs(8), Demand::gpus(gpus));
        assert_eq!((of(8, 8), of(7, 8), of(6, 8)), (WHOLE, WHOLE / 2, WHOLE / 4));
        // Three of four end: 4 ways, all end: 1 way, of 16.
        assert_eq!(of(4, 4), WHOLE + WHOLE / 16);
        assert_eq!(of(0, 1), 4 * WHOLE);
        // A GPU without a NIC is of no use.
        let gpus_only = Free { gpus: 2, nics: 0 };
        assert_eq!(expected(gpus_only, gpus_only, Demand::gpus(1)), 0);
    }

    #[test]
    fn many_devices_do_not_overflow() {
        let shape = Demand { gpus: 0, nics: 1, nodes: 1 };
        let many = Free { gpus: 0, nics: 1_000 };
        assert_eq!(expected(Free::default(), many, shape), u64::from(HELD_MAX) / 2 * WHOLE);
    }

    /// A node that is fuller is better, whatever the mix, where there are pods that need
    /// all of it.
    #[test]
    fn of_nodes_without_inner_cells_the_fullest_is_best() {
        let room = |free| Room::new(vec![vec![pairs(free)]]);
        let mix = Mix::default();
        let cost = |free| Cost::of(&room(free), &room(free - 1), &room(8), &mix);
        let costs: Vec<_> = (1..=8).map(cost).collect();
        assert!(costs.is_sorted(), "{costs:?}");
    }
}
