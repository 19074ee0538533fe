//! What an allocation takes away from future pods.

use super::{Demand, Free, Mix, Room};

/// The loss for future pods. Smaller is better; fields are compared in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost {
    /// Devices that pods of the mix can no longer get, in thousandths of a device. Sum
    /// over shapes and levels of: the shape's share, times its GPUs, times the decrease
    /// in the expected number of its pods that have each GPU and its NICs in one cell of
    /// that level.
    pub loss: u64,
    /// Nodes of the fabric on which nothing was in use before the allocation; 0 if the
    /// node has no fabric or no gangs are expected. Gangs need many whole nodes on one
    /// fabric, so the fabric with the fewest is used first.
    pub whole_nodes: u32,
    /// NICs that nobody has before the allocation and somebody has after it. It is smaller if a
    /// pod with a share gets NICs that others share already, so whole NICs stay free.
    pub nics: u32,
    /// Free GPUs on the node after the allocation, or free NICs on a node without GPUs. A
    /// fuller node is preferred, because it is the least likely to become whole again.
    pub left: u32,
    /// As `loss`, but for pods that want all their devices in one cell, and for the
    /// current room. Among otherwise equal nodes, the one that keeps its cells comes
    /// first.
    pub cells: u64,
}

/// One, in millionths.
const WHOLE: u64 = 1_000_000;

/// A thousandth of a device, in millionths of millionths. Shares are rounded to
/// millionths, so smaller differences are treated as equal.
const STEP: u128 = 1_000_000_000;

/// The most devices in use per cell that are considered one by one; binomial coefficients
/// of more would overflow.
const HELD_MAX: u32 = 60;

/// Probabilities are fixed-point numbers with this many fractional bits, which is exact
/// for up to this many devices.
const ONE: u32 = 60;

impl Cost {
    /// The loss of a node whose room goes from `before` to `after`; `whole` is its room
    /// with nothing in use. The fabric is not included.
    pub fn of(before: &Room, after: &Room, whole: &Room, mix: &Mix) -> Self {
        let rooms = [before, after, whole].map(Room::levels);
        let mut changed = Changed { rooms, units: Vec::new() };
        let left = after.node();
        let has_gpus = before.node().gpus > 0;
        Self {
            loss: weighed(mix, |demand| changed.lost_pods(demand)),
            whole_nodes: 0,
            nics: before.node().nics.saturating_sub(left.nics),
            left: if has_gpus { left.gpus } else { left.nics },
            cells: weighed(mix, |demand| lost_in_cells([before, after], demand)),
        }
    }

    /// Adds the fabric, which has this many whole nodes.
    #[must_use]
    pub fn on_fabric(self, whole_nodes: u32, mix: &Mix) -> Self {
        Self { whole_nodes: if mix.has_gangs() { whole_nodes } else { 0 }, ..self }
    }
}

/// The pods of each shape, in millionths, in thousandths of a device of the mix.
fn weighed(mix: &Mix, mut pods: impl FnMut(Demand) -> u64) -> u64 {
    let of = |(demand, share): &(Demand, u32)| {
        u128::from(*share) * u128::from(demand.worth()) * u128::from(pods(*demand))
    };
    let loss = mix.shares().iter().map(of).sum::<u128>();
    u64::try_from(loss.saturating_add(STEP / 2) / STEP).unwrap_or(u64::MAX)
}

/// How many pods of a shape less find all their devices in one cell below the node.
fn lost_in_cells(rooms: [&Room; 2], demand: Demand) -> u64 {
    let pods = rooms.map(|room| {
        let levels = room.levels().split_last().map_or(&[][..], |(_, inner)| inner);
        levels.iter().flatten().map(|cell| u64::from(cell.fits(demand))).sum::<u64>()
    });
    pods[0].saturating_sub(pods[1]) * WHOLE
}

/// The levels of a node before and after an allocation, and with nothing in use.
struct Changed<'r> {
    rooms: [&'r [Vec<Free>]; 3],
    /// By unit: how many of it the levels that change are expected to have.
    units: Vec<(Demand, Vec<Level>)>,
}

/// How many of a unit are expected before and after an allocation on so many levels, which
/// have the same cells.
struct Level {
    before: Spread,
    after: Spread,
    levels: u64,
}

impl Changed<'_> {
    /// How many pods of a shape less are expected to fit, over all levels, in millionths.
    fn lost_pods(&mut self, demand: Demand) -> u64 {
        let (unit, count) = demand.units();
        let known = self.units.iter().position(|(known, _)| *known == unit);
        let number = known.unwrap_or_else(|| {
            self.units.push((unit, self.levels(unit)));
            self.units.len() - 1
        });
        let lost = |level: &Level| {
            let [before, after] = [&level.before, &level.after].map(|it| it.expected(count));
            before.saturating_sub(after) * level.levels
        };
        self.units[number].1.iter().map(lost).sum()
    }

    fn levels(&self, unit: Demand) -> Vec<Level> {
        let [before, after, whole] = self.rooms;
        let mut known: Vec<Level> = Vec::new();
        let mut last = None;
        let levels = before.iter().zip(after).zip(whole);
        for cells in levels.filter(|((before, after), _)| before != after) {
            if let Some(level) = known.last_mut().filter(|_| last == Some(cells)) {
                level.levels += 1;
                continue;
            }
            let ((before, after), whole) = cells;
            let [before, after] = [before, after].map(|cells| Spread::of(cells, whole, unit));
            known.push(Level { before, after, levels: 1 });
            last = Some(cells);
        }
        known
    }
}

/// How likely it is that a level has so many of a unit by the time that a pod comes: what is in use may be free again by then or not, which is counted as equally
/// likely for each device, GPUs together with NICs.
///
/// So for pods that need a whole node, a nearly empty node has more to lose than a nearly
/// full one, although neither has room for them now.
struct Spread {
    /// The smallest number: the units that are free now.
    fewest: u32,
    /// Probabilities of the smallest number, one more, and so on.
    likely: Vec<u128>,
}

impl Spread {
    /// Of a level's cells, which are as `whole` with nothing in use.
    fn of(cells: &[Free], whole: &[Free], unit: Demand) -> Self {
        let mut spread = Self { fewest: 0, likely: vec![1 << ONE] };
        for (free, whole) in cells.iter().zip(whole) {
            spread.add(*free, *whole, unit);
        }
        spread
    }

    fn add(&mut self, free: Free, whole: Free, unit: Demand) {
        let (fewest, most) = (free.fits(unit), whole.fits(unit));
        self.fewest += fewest;
        if most <= fewest {
            return;
        }
        let held = Free {
            gpus: whole.gpus.saturating_sub(free.gpus),
            nics: whole.nics.saturating_sub(free.nics),
        };
        let all = held.gpus.max(held.nics).min(HELD_MAX);
        let mut sums = vec![0; self.likely.len() + (most - fewest) as usize];
        // Of `all` devices, `ways` choices of `freed`.
        let mut ways = 1_u64;
        for freed in 0..=all {
            let gpus = free.gpus + freed.min(held.gpus);
            let nics = free.nics + freed.min(held.nics);
            let more = (Free { gpus, nics }.fits(unit) - fewest) as usize;
            for (sum, likely) in sums[more..].iter_mut().zip(&self.likely) {
                *sum += (likely * u128::from(ways)) >> all;
            }
            ways = ways * u64::from(all - freed) / u64::from(freed + 1);
        }
        self.likely = sums;
    }

    /// The expected number of pods that need this many units each, in millionths.
    fn expected(&self, units: u32) -> u64 {
        let sums = (self.fewest..).zip(&self.likely);
        let pods = sums.map(|(sum, likely)| u128::from(sum / units) * likely).sum::<u128>();
        u64::try_from((pods * u128::from(WHOLE)) >> ONE).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(count: u32) -> Free {
        Free { gpus: count, nics: count }
    }

    /// The expected number of pods of a shape in cells with this free and total room.
    fn expected(cells: &[(Free, Free)], demand: Demand) -> u64 {
        let (free, whole): (Vec<_>, Vec<_>) = cells.iter().copied().unzip();
        let (unit, count) = demand.units();
        Spread::of(&free, &whole, unit).expected(count)
    }

    #[test]
    fn what_is_in_use_may_be_free_again() {
        let of = |free: u32, gpus: u32| expected(&[(pairs(free), pairs(8))], Demand::gpus(gpus));
        assert_eq!((of(8, 8), of(7, 8), of(6, 8)), (WHOLE, WHOLE / 2, WHOLE / 4));
        // Of 16 cases: three of four end in 4, all four end in 1.
        assert_eq!(of(4, 4), WHOLE + WHOLE / 16);
        assert_eq!(of(0, 1), 4 * WHOLE);
        // A GPU without a NIC is useless.
        let gpus_only = Free { gpus: 2, nics: 0 };
        assert_eq!(expected(&[(gpus_only, gpus_only)], Demand::gpus(1)), 0);
    }

    /// Pairs can be in any cells, but a GPU never gets the NIC of another cell.
    #[test]
    fn a_pod_is_served_where_each_gpu_finds_its_nics_in_one_cell() {
        let cells = [(pairs(1), pairs(2)), (pairs(2), pairs(2))];
        assert_eq!(expected(&cells, Demand::gpus(2)), WHOLE + WHOLE / 2);
        let apart = [(Free { gpus: 2, nics: 0 }, Free { gpus: 2, nics: 0 }), (pairs(1), pairs(1))];
        assert_eq!(expected(&apart, Demand::gpus(1)), WHOLE);
        // Two NICs for each GPU.
        let each = Demand { gpus: 2, nics: 4, nodes: 1 };
        let wide = Free { gpus: 1, nics: 3 };
        assert_eq!(expected(&[(wide, wide), (wide, wide)], each), WHOLE);
        assert_eq!(expected(&[(wide, wide), (pairs(1), pairs(1))], each), 0);
    }

    #[test]
    fn many_devices_do_not_overflow() {
        let shape = Demand { gpus: 0, nics: 1, nodes: 1 };
        let many = Free { gpus: 0, nics: 1_000 };
        let half = u64::from(HELD_MAX) / 2 * WHOLE;
        assert_eq!(expected(&[(Free::default(), many)], shape), half);
        let all = expected(&[(Free::default(), many); 20], shape);
        assert!(all.abs_diff(20 * half) <= 1, "{all}");
    }

    /// A fuller node is better, whatever its cells, if there are pods that need the whole
    /// node.
    #[test]
    fn the_fullest_node_is_best() {
        let mix = Mix::default();
        let one = |free| Room::new(vec![vec![pairs(free)]]);
        // Each pair has its own switch, on two NUMA nodes.
        let many = |free: u32| {
            let switches = (0..8).map(|switch| pairs(u32::from(switch < free))).collect();
            let numa = vec![pairs(free.min(4)), pairs(free.saturating_sub(4))];
            Room::new(vec![switches, numa, vec![pairs(free)]])
        };
        let rooms: [&dyn Fn(u32) -> Room; 2] = [&one, &many];
        for room in rooms {
            let cost = |free| Cost::of(&room(free), &room(free - 1), &room(8), &mix);
            let costs: Vec<_> = (1..=8).map(cost).collect();
            assert!(costs.is_sorted(), "{costs:?}");
        }
    }

    /// Of two equally full nodes, the one whose cell is already broken is used.
    #[test]
    fn of_equally_full_nodes_the_one_with_broken_cells_is_taken() {
        let mix = Mix::new([(Demand::gpus(1), 1), (Demand::gpus(2), 1)]);
        let room = |cells: [u32; 2]| {
            Room::new(vec![cells.map(pairs).to_vec(), vec![pairs(cells[0] + cells[1])]])
        };
        let cost = |before, after| Cost::of(&room(before), &room(after), &room([2, 2]), &mix);
        let (whole, broken) = (cost([2, 0], [1, 0]), cost([1, 1], [0, 1]));
        assert_eq!((whole.loss, whole.left), (broken.loss, broken.left));
        assert!(broken < whole);
    }
}
