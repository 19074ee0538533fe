//! The matching behind a plan: assigns NICs to groups of GPUs, several on either side, with the
//! greatest gain.
//!
//! It is a flow of greatest gain by successive best augmenting paths (Jewell 1958; Busacker and
//! Gowen 1960). The gain of each further NIC of a group, or further use of a NIC, never increases.
//! Each path therefore gains at most as much as the last one, and the first path without gain ends
//! the search.

use std::array;
use std::ops::{Add, Sub};

/// A gain: values in order of priority. No amount of a later value outweighs an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gain(pub(super) [i64; WISHES]);

/// The number of values in a gain.
pub(super) const WISHES: usize = 8;

/// The input of a matching.
#[derive(Clone, Debug, Default)]
pub(super) struct Problem {
    /// The gain of the first, second, … NIC of each group.
    pub(super) seats: Vec<Vec<Gain>>,
    /// The gain of the first, second, … use of each NIC.
    pub(super) uses: Vec<Vec<Gain>>,
    /// The gain of each NIC (column) for each group (row); `None` if they cannot be paired.
    pub(super) gains: Vec<Vec<Option<Gain>>>,
}

/// The best pairs of group and NIC, by group. Equal problems give equal results.
pub(super) fn best(problem: &Problem) -> Vec<(usize, usize)> {
    best_of(problem, usize::MAX)
}

/// The best of all sets with at most this many pairs. Each augmented matching is the best of its size.
pub(super) fn best_of(problem: &Problem, most: usize) -> Vec<(usize, usize)> {
    let mut matching = Matching::new(problem);
    for _ in 0..most {
        let Some(path) = matching.best_path() else { break };
        matching.augment(&path);
    }
    let rows = matching.paired.iter().enumerate();
    let pairs = rows.flat_map(|(group, row)| {
        let nics = row.iter().enumerate().filter(|(_, paired)| **paired);
        nics.map(move |(nic, _)| (group, nic))
    });
    pairs.collect()
}

struct Matching<'p> {
    problem: &'p Problem,
    paired: Vec<Vec<bool>>,
    /// The number of pairs per group and per NIC.
    taken: Vec<usize>,
    used: Vec<usize>,
}

/// Alternating groups and NICs, from a group with a free seat to a NIC with a free use.
type Path = Vec<(usize, usize)>;

/// The best path to each vertex so far: its gain, and the previous vertex.
struct Ways {
    to_group: Vec<Option<(Gain, Option<usize>)>>,
    to_nic: Vec<Option<(Gain, usize)>>,
}

impl<'p> Matching<'p> {
    fn new(problem: &'p Problem) -> Self {
        Self {
            problem,
            paired: problem.gains.iter().map(|row| vec![false; row.len()]).collect(),
            taken: vec![0; problem.seats.len()],
            used: vec![0; problem.uses.len()],
        }
    }

    /// The augmenting path with the greatest gain, if any has one.
    fn best_path(&self) -> Option<Path> {
        let mut ways = self.starts();
        // A given-up pair leads backwards. Paths cannot improve forever, since every matching so
        // far is the best of its size.
        while self.onward(&mut ways) | self.back(&mut ways) {}
        let ends = (0..self.used.len()).filter_map(|nic| {
            let worth = *self.problem.uses[nic].get(self.used[nic])?;
            Some((ways.to_nic[nic]?.0 + worth, nic))
        });
        // Of equal ends, the first wins.
        let (gain, end) = ends.reduce(|best, end| if end.0 > best.0 { end } else { best })?;
        (gain > Gain::default()).then(|| ways.path_to(end))?
    }

    fn starts(&self) -> Ways {
        Ways {
            to_group: self
                .problem
                .seats
                .iter()
                .enumerate()
                .map(|(group, seats)| seats.get(self.taken[group]).map(|worth| (*worth, None)))
                .collect(),
            to_nic: vec![None; self.used.len()],
        }
    }

    /// Extends paths from groups to NICs that they are not paired with. Returns true if a path
    /// improved.
    fn onward(&self, ways: &mut Ways) -> bool {
        let mut better = false;
        for (group, row) in self.problem.gains.iter().enumerate() {
            let Some((so_far, _)) = ways.to_group[group] else { continue };
            for (nic, gain) in row.iter().enumerate() {
                let Some(gain) = gain.filter(|_| !self.paired[group][nic]) else { continue };
                let way = so_far + gain;
                if ways.to_nic[nic].is_none_or(|(known, _)| way > known) {
                    ways.to_nic[nic] = Some((way, group));
                    better = true;
                }
            }
        }
        better
    }

    /// Extends paths from NICs back to groups that they are paired with. Returns true if a path
    /// improved.
    fn back(&self, ways: &mut Ways) -> bool {
        let mut better = false;
        for (group, row) in self.problem.gains.iter().enumerate() {
            for (nic, gain) in row.iter().enumerate() {
                let Some(gain) = gain.filter(|_| self.paired[group][nic]) else { continue };
                let Some((so_far, _)) = ways.to_nic[nic] else { continue };
                let way = so_far - gain;
                if ways.to_group[group].is_none_or(|(known, _)| way > known) {
                    ways.to_group[group] = Some((way, Some(nic)));
                    better = true;
                }
            }
        }
        better
    }

    /// Pairs and separates groups and NICs along the path.
    fn augment(&mut self, path: &Path) {
        for (index, &(group, nic)) in path.iter().enumerate() {
            self.paired[group][nic] = true;
            if let Some(&(next, _)) = path.get(index + 1) {
                self.paired[next][nic] = false;
            }
        }
        if let (Some(first), Some(last)) = (path.first(), path.last()) {
            self.taken[first.0] += 1;
            self.used[last.1] += 1;
        }
    }
}

impl Ways {
    fn path_to(&self, end: usize) -> Option<Path> {
        let mut path = Vec::new();
        let mut nic = Some(end);
        while let Some(at) = nic {
            let (_, group) = self.to_nic[at]?;
            path.push((group, at));
            nic = self.to_group[group]?.1;
        }
        path.reverse();
        Some(path)
    }
}

impl Add for Gain {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(array::from_fn(|wish| self.0[wish] + other.0[wish]))
    }
}

impl Sub for Gain {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(array::from_fn(|wish| self.0[wish] - other.0[wish]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gain(first: i64, second: i64) -> Gain {
        Gain([first, second, 0, 0, 0, 0, 0, 0])
    }

    fn worth(problem: &Problem, pairs: &[(usize, usize)]) -> Gain {
        let mut sum = Gain::default();
        let (mut taken, mut used) = (vec![0; problem.seats.len()], vec![0; problem.uses.len()]);
        for &(group, nic) in pairs {
            sum = sum + problem.gains[group][nic].unwrap();
            sum = sum + problem.seats[group][taken[group]] + problem.uses[nic][used[nic]];
            taken[group] += 1;
            used[nic] += 1;
        }
        sum
    }

    /// The greatest gain over all sets of pairs.
    fn brute_force(problem: &Problem, from: usize, chosen: &mut Vec<(usize, usize)>) -> Gain {
        let nics = problem.uses.len();
        if nics == 0 || from == problem.seats.len() * nics {
            return worth(problem, chosen);
        }
        let pair = (from / nics, from % nics);
        let without = brute_force(problem, from + 1, chosen);
        let taken = chosen.iter().filter(|known| known.0 == pair.0).count();
        let used = chosen.iter().filter(|known| known.1 == pair.1).count();
        let room = taken < problem.seats[pair.0].len() && used < problem.uses[pair.1].len();
        if !room || problem.gains[pair.0][pair.1].is_none() {
            return without;
        }
        chosen.push(pair);
        let with = brute_force(problem, from + 1, chosen);
        chosen.pop();
        with.max(without)
    }

    /// Gains that never increase.
    fn worths() -> impl Strategy<Value = Vec<Gain>> {
        prop::collection::vec((-2..3_i64, 0..3_i64), 1..4).prop_map(|mut worths| {
            worths.sort_unstable_by(|a, b| b.cmp(a));
            worths.into_iter().map(|(first, second)| gain(first, second)).collect()
        })
    }

    fn problem() -> impl Strategy<Value = Problem> {
        (0..4_usize, 0..4_usize).prop_flat_map(|(groups, nics)| {
            let one = prop::option::weighted(0.8, (0..4_i64, 0..4_i64));
            let one = one.prop_map(|gains| gains.map(|(first, second)| gain(first, second)));
            let gains = prop::collection::vec(prop::collection::vec(one, nics), groups);
            let seats = prop::collection::vec(worths(), groups);
            let uses = prop::collection::vec(worths(), nics);
            (seats, uses, gains).prop_map(|(seats, uses, gains)| Problem { seats, uses, gains })
        })
    }

    #[test]
    fn nothing_to_match() {
        assert_eq!(best(&Problem::default()), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]
        #[test]
        fn equals_brute_force(problem in problem()) {
            let pairs = best(&problem);
            prop_assert_eq!(worth(&problem, &pairs), brute_force(&problem, 0, &mut Vec::new()));
        }
    }
}
