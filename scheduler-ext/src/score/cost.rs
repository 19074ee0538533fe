//! What an allocation takes away from future pods.

use super::{Demand, Free, FreeCells, Mix};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// The loss for future pods. Smaller is better; fields are compared in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost {
    /// Devices that pods of the mix can no longer get, in thousandths of a device. Sum
    /// over shapes and levels of: the shape's share, times its GPUs, times the decrease
    /// in the expected number of its pods that have each GPU and its NICs in one cell of
    /// that level.
    pub loss: u64,
    /// As `loss`, but for gangs that find enough whole nodes on the fabric; 0 if the node has no
    /// fabric or was in use before.
    pub gangs: u64,
    /// NICs that are unused before the allocation and in use after it. The number is smaller if a
    /// pod with a share gets NICs that others already share, so whole NICs stay free.
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
    pub fn new(before: &FreeCells, after: &FreeCells, whole: &FreeCells, mix: &Mix) -> Self {
        Costs::default().of([before, after, whole], mix)
    }

    /// Adds what a fabric, or a domain of a level below it, with this many whole nodes loses when one
    /// of them gets its first pod.
    #[must_use]
    pub fn breaking_one_of(self, whole_nodes: u32, mix: &Mix) -> Self {
        let left = whole_nodes.saturating_sub(1);
        let gangs = mix.shares().iter().filter(|(demand, _)| demand.nodes > 1);
        let lost = gangs.map(|(demand, share)| {
            let weight = u128::from(*share) * u128::from(demand.worth());
            let fewer = whole_nodes / demand.nodes - left / demand.nodes;
            weight * u128::from(fewer) * u128::from(WHOLE)
        });
        Self { gangs: self.gangs.saturating_add(steps(lost.sum())), ..self }
    }
}

/// Costs with one mix. The loss of a level depends on the free devices of its cells, in any order.
/// Most levels of most nodes are in one of a few states, so each state is computed once.
#[derive(Debug, Default)]
pub struct Costs {
    known: HashMap<Vec<Cell>, Lost, RandomState>,
    /// The level that is being computed.
    cells: Vec<Cell>,
}

/// A cell before and after an allocation, and with nothing in use.
type Cell = [Free; 3];

/// The loss of a level, in millionths of millionths of a device.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    /// For pods that find each GPU with its NICs in one cell.
    pairs: u128,
    /// For pods that find all their devices in one cell.
    pods: u128,
}

impl Costs {
    /// [`Cost::new`] these rooms before and after, and with nothing in use; `mix` is the same in
    /// every call.
    pub fn of(&mut self, rooms: [&FreeCells; 3], mix: &Mix) -> Cost {
        let [before, after, whole] = rooms.map(FreeCells::levels);
        let node = before.len().saturating_sub(1);
        let mut all = Lost::default();
        for (level, ((before, after), whole)) in before.iter().zip(after).zip(whole).enumerate() {
            if before == after {
                continue;
            }
            let cells = before.iter().zip(after).zip(whole);
            self.cells.clear();
            self.cells.extend(cells.map(|((before, after), whole)| [*before, *after, *whole]));
            let Lost { pairs, pods } = self.lost(mix);
            all.pairs += pairs;
            all.pods += if level < node { pods } else { 0 };
        }
        let [before, after] = [rooms[0].node(), rooms[1].node()];
        let left = if before.gpus > 0 { after.gpus } else { after.nics };
        Cost {
            loss: steps(all.pairs),
            gangs: 0,
            nics: before.nics.saturating_sub(after.nics),
            left,
            cells: steps(all.pods),
        }
    }

    /// What the level loses.
    fn lost(&mut self, mix: &Mix) -> Lost {
        self.cells.sort_unstable();
        if let Some(known) = self.known.get(&self.cells) {
            return *known;
        }
        let lost = Lost::new(&self.cells, mix);
        self.known.insert(self.cells.clone(), lost);
        lost
    }
}

impl Lost {
    fn new(cells: &[Cell], mix: &Mix) -> Self {
        // By unit: the expected numbers before and after.
        let mut spreads: Vec<(Demand, [Spread; 2])> = Vec::new();
        let mut lost = Self::default();
        for (demand, share) in mix.shares() {
            let weight = u128::from(*share) * u128::from(demand.worth());
            let (unit, count) = demand.units();
            let known = spreads.iter().position(|(known, _)| *known == unit);
            let number = known.unwrap_or_else(|| {
                spreads.push((unit, [0, 1].map(|when| Spread::new(cells, when, unit))));
                spreads.len() - 1
            });
            let [before, after] = spreads[number].1.each_ref().map(|it| it.expected(count));
            lost.pairs += weight * u128::from(before.saturating_sub(after));
            let [before, after] =
                [0, 1].map(|when| cells.iter().map(|cell| cell[when].fits(*demand)).sum::<u32>());
            lost.pods += weight * u128::from(before.saturating_sub(after)) * u128::from(WHOLE);
        }
        lost
    }
}

/// Thousandths of a device.
fn steps(loss: u128) -> u64 {
    u64::try_from(loss.saturating_add(STEP / 2) / STEP).unwrap_or(u64::MAX)
}

/// The probability distribution of the number of units on a level when a future pod comes. Each
/// device in use, GPUs together with NICs, is free again by then with a probability of one half.
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
    /// The distribution for a level's cells, before the allocation (0) or after it (1).
    fn new(cells: &[Cell], when: usize, unit: Demand) -> Self {
        let mut spread = Self { fewest: 0, likely: vec![1 << ONE] };
        for cell in cells {
            spread.add(cell[when], cell[2], unit);
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
            ports: whole.ports.saturating_sub(free.ports),
        };
        let all = held.gpus.max(held.nics).min(HELD_MAX);
        let mut sums = vec![0; self.likely.len() + (most - fewest) as usize];
        // Of `all` devices, `ways` choices of `freed`.
        let mut ways = 1_u64;
        for freed in 0..=all {
            let gpus = free.gpus + freed.min(held.gpus);
            let nics = free.nics + freed.min(held.nics);
            let ports = free.ports + freed.min(held.ports);
            let more = (Free { gpus, nics, ports }.fits(unit) - fewest) as usize;
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
        Free::new(count, count)
    }

    /// The expected number of pods of a shape in cells with this free and total room.
    fn expected(cells: &[(Free, Free)], demand: Demand) -> u64 {
        let cells: Vec<Cell> = cells.iter().map(|(free, whole)| [*free, *free, *whole]).collect();
        let (unit, count) = demand.units();
        Spread::new(&cells, 0, unit).expected(count)
    }

    #[test]
    fn devices_in_use_may_be_free_again() {
        let of = |free: u32, gpus: u32| expected(&[(pairs(free), pairs(8))], Demand::gpus(gpus));
        assert_eq!((of(8, 8), of(7, 8), of(6, 8)), (WHOLE, WHOLE / 2, WHOLE / 4));
        // Of 16 cases: three of four end in 4, all four end in 1.
        assert_eq!(of(4, 4), WHOLE + WHOLE / 16);
        assert_eq!(of(0, 1), 4 * WHOLE);
        // A GPU without a NIC is useless.
        let gpus_only = Free::new(2, 0);
        assert_eq!(expected(&[(gpus_only, gpus_only)], Demand::gpus(1)), 0);
    }

    /// Pairs can be in any cells, but a GPU never gets the NIC of another cell.
    #[test]
    fn a_gpu_and_its_nics_must_be_in_one_cell() {
        let cells = [(pairs(1), pairs(2)), (pairs(2), pairs(2))];
        assert_eq!(expected(&cells, Demand::gpus(2)), WHOLE + WHOLE / 2);
        let apart = [(Free::new(2, 0), Free::new(2, 0)), (pairs(1), pairs(1))];
        assert_eq!(expected(&apart, Demand::gpus(1)), WHOLE);
        // Two NICs for each GPU.
        let each = Demand { gpus: 2, nics: 4, nodes: 1 };
        let wide = Free::new(1, 3);
        assert_eq!(expected(&[(wide, wide), (wide, wide)], each), WHOLE);
        assert_eq!(expected(&[(wide, wide), (pairs(1), pairs(1))], each), 0);
    }

    /// Two ports with four functions each: a pod with three NICs never fits, one with two does.
    #[test]
    fn functions_of_one_port_are_one_nic_of_a_pod() {
        let functions = Free { gpus: 8, nics: 8, ports: 2 };
        let of =
            |nics: u32| expected(&[(functions, functions)], Demand { gpus: 1, nics, nodes: 1 });
        assert_eq!((of(1), of(2), of(3)), (8 * WHOLE, 4 * WHOLE, 0));
        let room = FreeCells::new(vec![vec![functions], vec![functions]]);
        let fits = |gpus: u32, nics: u32| room.fits(Demand { gpus, nics, nodes: 1 }).max();
        assert_eq!(fits(2, 2), Some(4));
        assert_eq!(fits(3, 3), Some(0), "each GPU finds a function, but not of a port of its own");
    }

    #[test]
    fn many_devices_do_not_overflow() {
        let shape = Demand { gpus: 0, nics: 1, nodes: 1 };
        let many = Free::new(0, 1_000);
        let half = u64::from(HELD_MAX) / 2 * WHOLE;
        assert_eq!(expected(&[(Free::default(), many)], shape), half);
        let all = expected(&[(Free::default(), many); 20], shape);
        assert!(all.abs_diff(20 * half) <= 1, "{all}");
    }

    /// With 8 whole nodes there is room for a gang of 8, two of 4 and four of 2, and one fewer of
    /// each without one of the nodes. With 9, all of them still find room.
    #[test]
    fn a_fabric_loses_gangs_that_no_longer_fit() {
        let gangs = |mix: &str, whole_nodes: u32| {
            Cost::default().breaking_one_of(whole_nodes, &mix.parse().unwrap()).gangs
        };
        // Thousandths of a device: a gang of 8 has 64 GPUs, and all shares are equal.
        let mix = "2*8x8=1,4*8x8=1,8*8x8=1,1x1=1";
        let lost = [0, 1, 2, 3, 4, 6, 8, 9].map(|whole_nodes| gangs(mix, whole_nodes));
        assert_eq!(lost, [0, 0, 4_000, 0, 12_000, 4_000, 28_000, 0]);
        assert_eq!(gangs("1x1=1,8x8=1", 8), 0);
    }

    /// A fuller node is better, whatever its cells, if there are pods that need the whole
    /// node.
    #[test]
    fn the_fullest_node_is_best() {
        let mix = Mix::default();
        let one = |free| FreeCells::new(vec![vec![pairs(free)]]);
        // Each pair has its own switch, on two NUMA nodes.
        let many = |free: u32| {
            let switches = (0..8).map(|switch| pairs(u32::from(switch < free))).collect();
            let numa = vec![pairs(free.min(4)), pairs(free.saturating_sub(4))];
            FreeCells::new(vec![switches, numa, vec![pairs(free)]])
        };
        let rooms: [&dyn Fn(u32) -> FreeCells; 2] = [&one, &many];
        for room in rooms {
            let cost = |free| Cost::new(&room(free), &room(free - 1), &room(8), &mix);
            let costs: Vec<_> = (1..=8).map(cost).collect();
            assert!(costs.is_sorted(), "{costs:?}");
        }
    }

    /// Of two equally full nodes, the one whose cell is already broken is used.
    #[test]
    fn among_equally_full_nodes_the_broken_one_is_used() {
        let mix = Mix::new([(Demand::gpus(1), 1), (Demand::gpus(2), 1)]);
        let room = |cells: [u32; 2]| {
            FreeCells::new(vec![cells.map(pairs).to_vec(), vec![pairs(cells[0] + cells[1])]])
        };
        let cost = |before, after| Cost::new(&room(before), &room(after), &room([2, 2]), &mix);
        let (whole, broken) = (cost([2, 0], [1, 0]), cost([1, 1], [0, 1]));
        assert_eq!((whole.loss, whole.left), (broken.loss, broken.left));
        assert!(broken < whole);
    }

    /// Costs are the same whether computed together or alone, and whichever of equal cells a level
    /// loses.
    #[test]
    fn cached_costs_equal_fresh_costs() {
        let mix = Mix::default();
        // Eight pairs below a switch each, as bits, on two NUMA nodes.
        let room = |free: u32| {
            let switches = (0..8).map(|switch| pairs(free >> switch & 1)).collect();
            let numa = vec![pairs((free & 0xf).count_ones()), pairs((free >> 4).count_ones())];
            FreeCells::new(vec![switches, numa, vec![pairs(free.count_ones())]])
        };
        let whole = room(0xff);
        let mut costs = Costs::default();
        for free in 1..=0xff_u32 {
            let left = free & (free - 1);
            let rooms = [&room(free), &room(left), &whole];
            let alone = Cost::new(rooms[0], rooms[1], rooms[2], &mix);
            assert_eq!(costs.of(rooms, &mix), alone, "{free:b}");
            let mirrored = [free, left].map(|bits| room(bits.reverse_bits() >> 24));
            assert_eq!(costs.of([&mirrored[0], &mirrored[1], &whole], &mix), alone, "{free:b}");
        }
    }
}
