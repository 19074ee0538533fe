//! Checks that a plan is as good as the best of all plans.

use std::cmp::Reverse;
use std::mem;
use std::ops::Add;

use proptest::prelude::*;
use topology_graph::{Connection, Hop, Pair, PathKind, PciAddress, PlanRequest, Topology};

use crate::machine::{build, machine};

/// The worth of a plan: how many groups have a first NIC, a second, and so on; how evenly NICs are
/// used; how near they are; and the same for the remaining GPUs.
type Worth = (Vec<usize>, i64, Nearness, usize, Nearness);

/// How near a group and a NIC are, or the sum over pairs: by the kind of path, then by fewer PCIe
/// links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Nearness {
    steps: usize,
    links: Reverse<usize>,
}

/// Groups and NICs of a machine.
struct Search<'s> {
    topology: &'s Topology,
    asked: Vec<Vec<PciAddress>>,
    rest: Vec<Vec<PciAddress>>,
    nics: Vec<PciAddress>,
    per_group: usize,
    shared: bool,
}

impl Search<'_> {
    fn groups(&self) -> Vec<&Vec<PciAddress>> {
        self.asked.iter().chain(&self.rest).collect()
    }

    /// How near each group and NIC are; no steps if they cannot be paired.
    fn near(&self) -> Vec<Vec<Nearness>> {
        let farthest = |group: &[PciAddress], nic: &PciAddress| {
            let near = group.iter().map(|gpu| nearness(self.topology, *gpu, *nic));
            near.min().unwrap_or_default()
        };
        let row = |group: &Vec<PciAddress>| -> Vec<Nearness> {
            self.nics.iter().map(|nic| farthest(group, nic)).collect()
        };
        self.groups().into_iter().map(row).collect()
    }

    /// The best worth over all plans, by trying every assignment.
    fn best(&self) -> Worth {
        self.best_from(0, &self.near(), &mut Vec::new())
    }

    fn worth(&self, pairs: &[(usize, usize)], near: &[Vec<Nearness>]) -> Worth {
        let mut counts = vec![0; near.len()];
        let mut uses = vec![0_i64; self.nics.len()];
        let mut nearness = vec![Nearness::default(); near.len()];
        for &(group, nic) in pairs {
            counts[group] += 1;
            uses[nic] += 1;
            nearness[group] = nearness[group] + near[group][nic];
        }
        let rounds = |counts: &[usize]| -> Vec<usize> {
            let at_least = |round| counts.iter().filter(|count| **count >= round).count();
            (1..=self.per_group).map(at_least).collect()
        };
        let (asked, rest) = counts.split_at(self.asked.len());
        let (near_asked, near_rest) = nearness.split_at(self.asked.len());
        let evenness = -uses.iter().map(|uses| uses * uses).sum::<i64>();
        (
            rounds(asked),
            if self.shared { evenness } else { 0 },
            sum(near_asked),
            weighted(&rounds(rest)),
            sum(near_rest),
        )
    }

    fn best_from(
        &self,
        from: usize,
        near: &[Vec<Nearness>],
        chosen: &mut Vec<(usize, usize)>,
    ) -> Worth {
        if near.is_empty() || from == near.len() * self.nics.len() {
            return self.worth(chosen, near);
        }
        let (group, nic) = (from % near.len(), from / near.len());
        let mut best = self.best_from(from + 1, near, chosen);
        let used = chosen.iter().filter(|pair| pair.1 == nic).count();
        let taken = chosen.iter().filter(|pair| pair.0 == group).count();
        let room = (self.shared || used == 0) && taken < self.per_group;
        if room && near[group][nic].steps > 0 {
            chosen.push((group, nic));
            best = best.max(self.best_from(from + 1, near, chosen));
            chosen.pop();
        }
        best
    }

    /// The worth of the computed plan, including what the remaining GPUs would get.
    fn planned(&self) -> Worth {
        let request = PlanRequest {
            groups: self.asked.clone(),
            nics: self.nics.clone(),
            per_group: self.per_group,
            shared: self.shared,
            rest: self.rest.concat(),
        };
        let plan = self.topology.plan(&request);
        let left: Vec<PciAddress> = self
            .nics
            .iter()
            .copied()
            .filter(|nic| plan.iter().all(|pair| pair.nic != *nic))
            .collect();
        let after = PlanRequest::each(&request.rest, &left, self.per_group);
        let after = self.topology.plan(&after);
        self.worth(&[self.numbers(&plan), self.numbers(&after)].concat(), &self.near())
    }

    fn numbers(&self, plan: &[Pair]) -> Vec<(usize, usize)> {
        let number = |pair: &Pair| {
            let group = self.groups().iter().position(|group| group[0] == pair.gpu)?;
            Some((group, self.nics.iter().position(|nic| *nic == pair.nic)?))
        };
        plan.iter().filter_map(number).collect()
    }
}

/// For the remaining GPUs a first NIC is worth one more than a second, and so on.
fn weighted(rounds: &[usize]) -> usize {
    rounds.iter().rev().zip(1..).map(|(count, worth)| count * worth).sum()
}

fn nearness(topology: &Topology, gpu: PciAddress, nic: PciAddress) -> Nearness {
    let far = [PathKind::Node, PathKind::Phb, PathKind::Pxb, PathKind::Pix];
    let route = topology.route(gpu, nic);
    let of_route = route.and_then(|route| {
        // 1 is for devices of one socket on different NUMA nodes, which these machines do not have.
        let steps = far.iter().position(|kind| *kind == route.kind)? + 2;
        let by_pcie = |hop: &&Hop| matches!(hop.by, Some(Connection::Pcie { .. }));
        Some(Nearness { steps, links: Reverse(route.hops.iter().filter(by_pcie).count()) })
    });
    of_route.unwrap_or_default()
}

fn sum(near: &[Nearness]) -> Nearness {
    near.iter().fold(Nearness::default(), |sum, near| sum + *near)
}

impl Add for Nearness {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let links = Reverse(self.links.0 + other.links.0);
        Self { steps: self.steps + other.steps, links }
    }
}

/// The GPUs in groups of `together`, and the NICs.
fn search(topology: &Topology, together: usize, per_group: usize) -> Search<'_> {
    let gpus: Vec<_> = topology.gpus().iter().map(|gpu| gpu.address).collect();
    Search {
        topology,
        asked: gpus.chunks(together).map(<[_]>::to_vec).collect(),
        rest: Vec::new(),
        nics: topology.nics().iter().map(|nic| nic.address).collect(),
        per_group,
        shared: false,
    }
}

/// The default number of cases; `PROPTEST_CASES` raises it.
fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(ProptestConfig::default().cases.max(1_000))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn plans_for_every_gpu_are_best(snapshot in machine(8), per_gpu in 1..3_usize) {
        let topology = build(snapshot);
        let search = search(&topology, 1, per_gpu);
        prop_assert_eq!(search.planned(), search.best());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases().cases.div_ceil(10).max(1_000)))]

    #[test]
    fn plans_for_pairs_of_gpus_are_best(snapshot in machine(9), per_group in 1..4_usize) {
        let topology = build(snapshot);
        let search = search(&topology, 2, per_group);
        prop_assert_eq!(search.planned(), search.best());
    }

    #[test]
    fn plans_with_shared_nics_are_best(snapshot in machine(7), together in 1..3_usize, per_group in 1..3_usize) {
        let topology = build(snapshot);
        let search = Search { shared: true, ..search(&topology, together, per_group) };
        prop_assert_eq!(search.planned(), search.best());
    }

    /// The remaining GPUs keep their NICs: some GPUs are requested, the others stay free.
    #[test]
    fn plans_for_some_gpus_are_best_for_the_others(snapshot in machine(8), asked: u8, free: u8, per_gpu in 1..3_usize) {
        let topology = build(snapshot);
        let mut search = search(&topology, 1, per_gpu);
        let is_set = |bits: u8, at: usize| bits >> at & 1 == 1;
        let gpus = mem::take(&mut search.asked).into_iter().enumerate();
        let (asked, rest): (Vec<_>, Vec<_>) = gpus.partition(|(at, _)| is_set(asked, *at));
        search.asked = asked.into_iter().map(|(_, group)| group).collect();
        search.rest = rest.into_iter().map(|(_, group)| group).collect();
        let nics = mem::take(&mut search.nics).into_iter().enumerate();
        search.nics = nics.filter(|(at, _)| is_set(free, *at)).map(|(_, nic)| nic).collect();
        prop_assert_eq!(search.planned(), search.best());
    }

    #[test]
    fn the_order_of_a_request_does_not_matter(snapshot in machine(10), per_gpu in 1..3_usize) {
        let topology = build(snapshot);
        let search = search(&topology, 1, per_gpu);
        let gpus = search.asked.concat();
        let backwards = |addresses: &[PciAddress]| -> Vec<PciAddress> {
            addresses.iter().rev().chain(addresses).copied().collect()
        };
        let (there, back) = (
            PlanRequest::each(&gpus, &search.nics, per_gpu),
            PlanRequest::each(&backwards(&gpus), &backwards(&search.nics), per_gpu),
        );
        prop_assert_eq!(topology.plan(&there), topology.plan(&back));
    }
}
