//! Chooses NICs for GPUs that a pod already has: a device plugin gave them to it, so only the NICs
//! are open. Unlike a [plan](Topology::plan), it reaches every NIC of the machine, and it returns as
//! many NICs as are wanted or none.

use super::matching::{Gain, Problem, best, best_of};
use super::{Group, MOST_LINKS, Nearness, PlanRequest, Tier};
use super::{crossing, groups, seats, sorted, use_again};
use crate::graph::Distance;
use crate::{Level, PciAddress, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// The NICs that a pod needs, and what it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NearestRequest {
    /// The pod's GPUs.
    pub gpus: Vec<PciAddress>,
    /// The NICs that it can get.
    pub nics: Vec<PciAddress>,
    /// The number of NICs that it needs.
    pub count: usize,
    /// How near each NIC must be to its GPU, or the NICs to each other if there is no GPU. `None`
    /// accepts any distance.
    pub within: Option<Level>,
    /// GPUs that other pods can still get; they decide between choices that are otherwise equal.
    pub rest: Vec<PciAddress>,
}

/// The most choices of shared NICs that are compared. A machine with 16 NICs below 8 switches has
/// 1107 for 8 of them.
const MOST_CHOICES: usize = 5_000;

impl Topology {
    /// The nearest NICs for these GPUs, by NIC; `None` if too few are free, or if no choice is as near
    /// as required.
    ///
    /// The NICs are spread evenly over the GPUs, or the GPUs over the NICs if there are fewer of
    /// these. Among such choices, the paths of the pairs are the shortest, as in a
    /// [plan](Topology::plan), where a path between sockets counts 0. Without a GPU, the NICs are as
    /// near to each other as possible, and taken from the fullest place that has enough.
    pub fn nearest(&self, request: &NearestRequest) -> Option<Vec<PciAddress>> {
        let gpus = sorted(&request.gpus);
        let nics = sorted(&request.nics);
        if request.count == 0 || nics.len() < request.count {
            return (request.count == 0).then(Vec::new);
        }
        let request = NearestRequest { gpus, nics, ..request.clone() };
        if request.gpus.is_empty() {
            return self.near_each_other(&request);
        }
        let search = Search { topology: self, request: &request, places: self.places(&request) };
        let pairs = if request.count < request.gpus.len() {
            search.shared_pairs()?
        } else {
            search.own_pairs()?
        };
        let chosen: BTreeSet<PciAddress> = pairs.into_iter().map(|(_, nic)| nic).collect();
        (chosen.len() == request.count).then(|| chosen.into_iter().collect())
    }

    /// The cells of all devices at the required level.
    fn places(&self, request: &NearestRequest) -> Option<BTreeMap<PciAddress, usize>> {
        let cells = self.cells_of_all(request.within?).into_iter().enumerate();
        let places = cells.flat_map(|(index, cell)| {
            cell.gpus.into_iter().chain(cell.nics).map(move |device| (device, index))
        });
        Some(places.collect())
    }

    /// NICs of the nearest place that has enough; of several, the one with the fewest NICs.
    fn near_each_other(&self, request: &NearestRequest) -> Option<Vec<PciAddress>> {
        let NearestRequest { nics, count, within, .. } = request;
        for level in Level::ALL.into_iter().filter(|level| within.is_none_or(|it| *level <= it)) {
            let mut cells: Vec<_> =
                self.cells_of_all(level).into_iter().map(|cell| cell.nics).collect();
            for cell in &mut cells {
                cell.retain(|nic| nics.contains(nic));
            }
            let enough = cells.into_iter().filter(|cell| cell.len() >= *count);
            if let Some(fullest) = enough.min_by_key(Vec::len) {
                return Some(fullest.into_iter().take(*count).collect());
            }
        }
        let is_near_enough = within.is_none() || *count == 1;
        is_near_enough.then(|| nics.iter().take(*count).copied().collect())
    }
}

/// A GPU and a NIC.
type Ends = (PciAddress, PciAddress);

/// A request with at least one GPU, without duplicates and in address order.
struct Search<'r> {
    topology: &'r Topology,
    request: &'r NearestRequest,
    places: Option<BTreeMap<PciAddress, usize>>,
}

impl Search<'_> {
    /// How near a NIC is to a GPU, at any distance; `None` if it is farther than required.
    fn reach(&self, gpu: PciAddress, nic: PciAddress) -> Option<Nearness> {
        if let Some(places) = &self.places {
            places.get(&gpu).filter(|place| places.get(&nic) == Some(place))?;
        }
        let Some(distance) = self.topology.distance(gpu, nic) else {
            return Some(Nearness::FARTHEST);
        };
        Some(Nearness::new(distance).unwrap_or_else(|| Nearness::beyond(distance)))
    }

    /// Pairs in which each GPU has its own NICs.
    fn own_pairs(&self) -> Option<Vec<Ends>> {
        let NearestRequest { gpus, nics, count, rest, .. } = self.request;
        let per_gpu = count.div_ceil(gpus.len());
        let is_even = count % gpus.len() == 0;
        // The search for an uneven number ends early, so it must not count pairs of other GPUs.
        let rest = if is_even { rest.clone() } else { Vec::new() };
        let plan = PlanRequest { rest, ..PlanRequest::each(gpus, nics, per_gpu) }.tidy();
        let groups = groups(&plan);
        let problem = Problem {
            seats: groups.iter().map(|group| seats(group.tier, per_gpu)).collect(),
            uses: plan.nics.iter().map(|_| vec![use_again(0)]).collect(),
            gains: groups.iter().enumerate().map(|it| self.gains(it, &plan)).collect(),
        };
        let pairs = if is_even { best(&problem) } else { best_of(&problem, *count) };
        let asked = pairs.into_iter().filter(|(group, _)| groups[*group].tier == Tier::Asked);
        let pairs: Vec<Ends> =
            asked.map(|(group, nic)| (groups[group].gpus[0], plan.nics[nic])).collect();
        let is_even = gpus
            .iter()
            .all(|gpu| pairs.iter().filter(|(of, _)| of == gpu).count() >= count / gpus.len());
        (is_even && pairs.len() == *count).then_some(pairs)
    }

    /// The gain of each NIC for one group.
    fn gains(&self, (at, group): (usize, &Group<'_>), plan: &PlanRequest) -> Vec<Option<Gain>> {
        let nics = plan.nics.iter().enumerate();
        let gains = nics.map(|(index, nic)| {
            let near = self.nearness(group, *nic)?;
            Some(group.tier.near(near) + crossing(at, plan.per_group, index))
        });
        gains.collect()
    }

    /// How near a NIC is to the GPU of a group; `None` if they cannot be paired.
    fn nearness(&self, group: &Group<'_>, nic: PciAddress) -> Option<Nearness> {
        let gpu = *group.gpus.first()?;
        match group.tier {
            Tier::Asked => self.reach(gpu, nic),
            Tier::Rest => Nearness::new(self.topology.distance(gpu, nic)?),
        }
    }

    /// Pairs in which several GPUs share a NIC. Compares the choices of NICs that differ in their
    /// distances to these GPUs.
    fn shared_pairs(&self) -> Option<Vec<Ends>> {
        let NearestRequest { gpus, nics, count, .. } = self.request;
        let mut alike: BTreeMap<Vec<Option<Nearness>>, Vec<PciAddress>> = BTreeMap::new();
        for nic in nics {
            let near: Vec<_> = gpus.iter().map(|gpu| self.reach(*gpu, *nic)).collect();
            alike.entry(near).or_default().push(*nic);
        }
        // Nothing is near enough to those.
        alike.retain(|near, _| near.iter().any(Option::is_some));
        let alike: Vec<Vec<PciAddress>> = alike.into_values().collect();
        let mut best: Option<(i64, i64, Vec<Ends>)> = None;
        for chosen in choices(&alike, *count) {
            let Some(spread) = self.spread(&chosen) else { continue };
            // Of equal choices, the first by address.
            let is_better = best.as_ref().is_none_or(|best| {
                (spread.0, spread.1) > (best.0, best.1)
                    || (spread.0, spread.1) == (best.0, best.1) && spread.2 < best.2
            });
            if is_better {
                best = Some(spread);
            }
        }
        best.map(|(_, _, pairs)| pairs)
    }

    /// The GPUs spread evenly over exactly these NICs, and how near they are in total; `None` if that
    /// is not possible.
    fn spread(&self, nics: &[PciAddress]) -> Option<(i64, i64, Vec<Ends>)> {
        let gpus = &self.request.gpus;
        let plan = PlanRequest::each(gpus, nics, 1);
        let groups = groups(&plan);
        let problem = Problem {
            seats: gpus.iter().map(|_| seats(Tier::Asked, 1)).collect(),
            uses: nics.iter().map(|_| (0..gpus.len()).map(use_again).collect()).collect(),
            gains: groups.iter().enumerate().map(|it| self.gains(it, &plan)).collect(),
        };
        let pairs: Vec<Ends> =
            best(&problem).into_iter().map(|(group, nic)| (gpus[group], nics[nic])).collect();
        let even = gpus.len() / nics.len()..=gpus.len().div_ceil(nics.len());
        let mut loads = nics.iter().map(|nic| pairs.iter().filter(|(_, of)| of == nic).count());
        if pairs.len() < gpus.len() || !loads.all(|load| even.contains(&load)) {
            return None;
        }
        let near: Vec<Nearness> =
            pairs.iter().map(|(gpu, nic)| self.reach(*gpu, *nic)).collect::<Option<_>>()?;
        let steps = near.iter().map(|near| near.steps).sum();
        let shortness = near.iter().map(|near| near.shortness).sum();
        Some((steps, shortness, pairs))
    }
}

impl Nearness {
    /// Of devices whose distance is not known.
    const FARTHEST: Self = Self { steps: 0, shortness: -(1 << 40) };

    /// Of devices that are too far apart for a pair of a plan.
    fn beyond(distance: Distance) -> Self {
        let (slit, links) = distance.length();
        let length = i64::from(slit) * MOST_LINKS + i64::from(links).min(MOST_LINKS - 1);
        Self { steps: 0, shortness: -length }
    }
}

/// The choices of this many NICs, of which those of a group are interchangeable.
fn choices(groups: &[Vec<PciAddress>], count: usize) -> Vec<Vec<PciAddress>> {
    let mut choices: Vec<Vec<PciAddress>> = vec![Vec::new()];
    for (index, group) in groups.iter().enumerate() {
        let later: usize = groups[index + 1..].iter().map(Vec::len).sum();
        let mut longer = Vec::new();
        for chosen in &choices {
            let open = count - chosen.len();
            for some in open.saturating_sub(later)..=open.min(group.len()) {
                longer.push(chosen.iter().chain(&group[..some]).copied().collect());
            }
        }
        longer.truncate(MOST_CHOICES);
        choices = longer;
    }
    choices.retain(|chosen| chosen.len() == count);
    for chosen in &mut choices {
        chosen.sort_unstable();
    }
    choices
}

#[cfg(test)]
mod tests;
