//! Groups that belong in domains of a level below the fabric: all pods in one domain, or slices of
//! them each in one, or, where it is only preferred, as few domains as possible.
//!
//! The fewest domains are found by taking the one with most room until the rest fits in one; that
//! one is the smallest that is large enough, so that whole domains stay free. Then the pods are
//! divided evenly.

use super::super::capacity::FabricCapacity;
use super::super::group::{Group, Member};
use super::super::requirements::PodRequirements;
use super::spots::Fit;
use super::{GroupDemand, Placer};
use cluster_model::fabric_level::{FabricLevel, LevelDomain, LevelRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The pods that got a place, and the domains that they go to, by name.
pub(super) type Taken<'g> = (Vec<&'g Member>, BTreeMap<String, LevelDomain>);

/// The domains of a group on one fabric.
#[derive(Clone, Debug)]
pub(super) struct LevelPlan<'g> {
    /// The pods of each domain.
    pub(super) domains: Vec<(LevelDomain, Vec<&'g Member>)>,
}

/// Pods that belong in one domain.
#[derive(Clone, Debug)]
struct Cohort<'g> {
    pods: Vec<(Arc<PodRequirements>, &'g Member)>,
    /// How many places it needs, with those of pods that are still to come.
    size: usize,
}

impl Placer<'_, '_> {
    /// Whether a group fits on a fabric: on how many domains of its level, and the places left; with
    /// no domains if none is asked for, or only preferred and not to be had.
    pub(super) fn fit_on(
        group: &Group,
        needs: &GroupDemand<'_>,
        fabric: &mut FabricCapacity<'_>,
    ) -> Option<Fit> {
        let rest = needs.rest_on(fabric)?;
        let anywhere = |domains| Fit { domains, rest, spots: needs.spots(&BTreeSet::new()) };
        let Some(request) = group.level() else { return Some(anywhere(0)) };
        match plan(group, needs, request, fabric) {
            Some(plan) => {
                let names = plan.domains.into_iter().map(|(domain, _)| domain).collect();
                let domains = BTreeSet::len(&names);
                Some(Fit { domains, rest, spots: needs.spots(&names) })
            }
            None if request.is_required => None,
            // Behind every fabric where it is to be had.
            None => Some(anywhere(usize::MAX)),
        }
    }

    /// How many pods of a group fit on a fabric, in one domain if the level is required.
    pub(super) fn most_on(
        group: &Group,
        needs: &GroupDemand<'_>,
        fabric: &mut FabricCapacity<'_>,
    ) -> usize {
        let all = needs.how_many(fabric);
        match group.level() {
            Some(request) if request.is_required => {
                let rooms = rooms(needs, request.level, fabric);
                match group.domain_size() {
                    None => all.min(rooms.into_values().max().unwrap_or(0)),
                    Some(size) => {
                        let whole = rooms.into_values().map(|room| room / size * size);
                        all.min(whole.sum())
                    }
                }
            }
            _ => all,
        }
    }
}

impl Placer<'_, '_> {
    /// Takes places for a group on a fabric. Returns the gated pods that got one, and the domains
    /// that they go to.
    pub(super) fn take<'g>(
        &mut self,
        group: &Group,
        fabric: &str,
        needs: &GroupDemand<'g>,
    ) -> Taken<'g> {
        let Some(room) = self.cluster.fabric(fabric) else { return Taken::default() };
        let planned = group.level().map(|request| (request, plan(group, needs, request, room)));
        let taken = match planned {
            Some((_, Some(plan))) => plan.take(needs, room),
            Some((request, None)) if request.is_required => Taken::default(),
            _ => (needs.take(room), BTreeMap::new()),
        };
        if !taken.0.is_empty() {
            let spots = needs.spots(&taken.1.values().cloned().collect());
            self.settling.entry(fabric.to_owned()).or_default().extend(spots);
        }
        taken
    }

    /// Takes places for pods that were created after others of their group were placed. Where a
    /// level is required, they go to the domain of those that they share one with.
    pub(super) fn join<'g>(
        &mut self,
        group: &'g Group,
        fabric: &str,
        needs: &GroupDemand<'g>,
    ) -> Taken<'g> {
        let view = self.cluster.view();
        let Some(room) = self.cluster.fabric(fabric) else { return Taken::default() };
        let request = group.level().filter(|request| request.is_required);
        let Some(request) = request else { return (needs.take(room), BTreeMap::new()) };
        let mut taken = Taken::default();
        let mut alone = Vec::new();
        for (kind, members) in &needs.pods {
            for member in members {
                let Some(home) = group.home(member) else {
                    alone.push(*member);
                    continue;
                };
                if room.take_in(kind, 1, Some(home)) == 1 {
                    taken.0.push(member);
                    taken.1.insert(member.name.clone(), home.clone());
                }
            }
        }
        if let Some((kind, more)) = &needs.to_come
            && group.domain_size().is_none()
        {
            let home = group.released().find_map(|mate| mate.domain.as_ref());
            room.take_in(kind, *more, home);
        }
        let Ok(mut needs) = GroupDemand::of(group, alone.into_iter(), view) else { return taken };
        needs.to_come = None;
        if let Some(plan) = plan(group, &needs, request, room) {
            let (pods, domains) = plan.take(&needs, room);
            taken.0.extend(pods);
            taken.1.extend(domains);
        }
        taken
    }
}

impl<'g> LevelPlan<'g> {
    /// Takes the places of a plan, and any for pods that are still to come.
    fn take(self, needs: &GroupDemand<'g>, room: &mut FabricCapacity<'_>) -> Taken<'g> {
        let mut taken = Taken::default();
        let all_in_one = self.domains.len() == 1;
        for (domain, members) in self.domains {
            for (kind, of_kind) in &needs.pods {
                let here: Vec<_> = members
                    .iter()
                    .filter(|member| of_kind.iter().any(|it| it.name == member.name))
                    .collect();
                let fit = room.take_in(kind, here.len(), Some(&domain));
                for member in here.into_iter().take(fit) {
                    taken.0.push(member);
                    taken.1.insert(member.name.clone(), domain.clone());
                }
            }
            if let Some((kind, more)) = needs.to_come.as_ref().filter(|_| all_in_one) {
                room.take_in(kind, *more, Some(&domain));
            }
        }
        if let Some((kind, more)) = needs.to_come.as_ref().filter(|_| !all_in_one) {
            room.take(kind, *more);
        }
        taken
    }
}

/// The room of each domain for the kind of pod that has least.
fn rooms(
    needs: &GroupDemand<'_>,
    level: FabricLevel,
    fabric: &FabricCapacity<'_>,
) -> BTreeMap<String, usize> {
    let mut least: Option<BTreeMap<String, usize>> = None;
    for (kind, _) in needs.counts() {
        let counts = fabric.count_by(&kind, level);
        least = Some(match least {
            None => counts,
            Some(known) => known
                .into_iter()
                .filter_map(|(name, room)| {
                    let other = *counts.get(&name)?;
                    Some((name, room.min(other)))
                })
                .collect(),
        });
    }
    least.unwrap_or_default()
}

/// The domains of a group on a fabric with room for it; `None` if they have too little room.
pub(super) fn plan<'g>(
    group: &Group,
    needs: &GroupDemand<'g>,
    request: LevelRequest,
    fabric: &FabricCapacity<'_>,
) -> Option<LevelPlan<'g>> {
    let mut cohorts = cohorts(group, needs, request);
    let rooms = rooms(needs, request.level, fabric);
    if request.is_required && group.domain_size().is_none() {
        return whole(&cohorts.pop()?, needs, request.level, fabric);
    }
    let size = cohorts.iter().map(|cohort| cohort.size).max()?;
    let slots: Vec<_> = rooms.into_iter().map(|(name, room)| (name, room / size)).collect();
    let quotas = quotas(slots, cohorts.len())?;
    let mut cohorts = cohorts.into_iter();
    let mut domains = Vec::new();
    let mut trial = fabric.clone();
    for (name, quota) in quotas {
        let domain = LevelDomain { level: request.level, name };
        let mut pods = Vec::new();
        for cohort in cohorts.by_ref().take(quota) {
            for (kind, member) in cohort.pods {
                pods.push((kind, member));
            }
        }
        if !take_all(&mut trial, &pods, &domain) {
            return None;
        }
        domains.push((domain, pods.into_iter().map(|(_, member)| member).collect()));
    }
    Some(LevelPlan { domains })
}

/// The smallest domain with room for all pods.
fn whole<'g>(
    all: &Cohort<'g>,
    needs: &GroupDemand<'g>,
    level: FabricLevel,
    fabric: &FabricCapacity<'_>,
) -> Option<LevelPlan<'g>> {
    let counts = needs.counts();
    let mut rooms: BTreeMap<String, Option<usize>> = BTreeMap::new();
    for (index, (kind, count)) in counts.iter().enumerate() {
        let mut there = fabric.count_by(kind, level);
        if index == 0 {
            rooms = there.keys().map(|name| (name.clone(), Some(usize::MAX))).collect();
        }
        for (name, left) in &mut rooms {
            let rest = there.remove(name).and_then(|room| room.checked_sub(*count));
            *left = rest.zip(*left).map(|(rest, left)| rest.min(left));
        }
    }
    let mut fitting: Vec<_> =
        rooms.into_iter().filter_map(|(name, left)| Some((left?, name))).collect();
    fitting.sort();
    fitting.into_iter().find_map(|(_, name)| {
        let domain = LevelDomain { level, name };
        // One kind is counted exactly.
        let is_exact = counts.len() == 1;
        let fits = is_exact || {
            let mut trial = fabric.clone();
            counts.iter().all(|(kind, n)| trial.take_in(kind, *n, Some(&domain)) == *n)
        };
        let pods = all.pods.iter().map(|(_, member)| *member).collect();
        fits.then(|| LevelPlan { domains: vec![(domain, pods)] })
    })
}

/// Takes a place in the domain for each pod. Returns false if one has none.
fn take_all(
    fabric: &mut FabricCapacity<'_>,
    pods: &[(Arc<PodRequirements>, &Member)],
    domain: &LevelDomain,
) -> bool {
    let mut kinds: Vec<(&Arc<PodRequirements>, usize)> = Vec::new();
    for (kind, _) in pods {
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    kinds.into_iter().all(|(kind, count)| fabric.take_in(kind, count, Some(domain)) == count)
}

/// The pods that belong together: all of them, the slices, or each by itself.
fn cohorts<'g>(group: &Group, needs: &GroupDemand<'g>, request: LevelRequest) -> Vec<Cohort<'g>> {
    let pods: Vec<_> = needs
        .pods
        .iter()
        .flat_map(|(kind, members)| members.iter().map(|member| (kind.clone(), *member)))
        .collect();
    let to_come = needs.to_come.as_ref().map_or(0, |(_, count)| *count);
    match group.domain_size() {
        Some(size) => {
            let mut slices: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for (kind, member) in pods {
                slices.entry(member.slice.clone()).or_default().push((kind, member));
            }
            slices.into_values().map(|pods| Cohort { size: size.max(pods.len()), pods }).collect()
        }
        None if request.is_required => {
            let size = pods.len() + to_come;
            vec![Cohort { pods, size }]
        }
        None => pods.into_iter().map(|pod| Cohort { pods: vec![pod], size: 1 }).collect(),
    }
}

/// Divides cohorts evenly over the fewest domains, given how many each has room for. `None` if
/// there is too little room.
fn quotas(mut slots: Vec<(String, usize)>, cohorts: usize) -> Option<Vec<(String, usize)>> {
    slots.retain(|(_, slots)| *slots > 0);
    // Least room first.
    slots.sort_by(|(a, least), (b, more)| (least, a).cmp(&(more, b)));
    let mut chosen = Vec::new();
    let mut left = cohorts;
    while left > 0 {
        let enough = slots.iter().position(|(_, slots)| *slots >= left);
        let at = match enough {
            Some(at) => at,
            None => slots.len().checked_sub(1)?,
        };
        let (name, room) = slots.remove(at);
        left = left.saturating_sub(room);
        chosen.push((name, room));
    }
    chosen.sort_by(|(a, least), (b, more)| (least, a).cmp(&(more, b)));
    let mut left = cohorts;
    let mut quotas = Vec::new();
    for (index, (name, room)) in chosen.iter().enumerate() {
        let share = left.div_ceil(chosen.len() - index).min(*room);
        left -= share;
        quotas.push((name.clone(), share));
    }
    Some(quotas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cohorts_are_divided_evenly_over_the_fewest_domains() {
        let slots = |rooms: &[usize]| {
            let named = rooms.iter().enumerate().map(|(index, room)| (format!("d{index}"), *room));
            named.collect::<Vec<_>>()
        };
        for (rooms, cohorts, expected) in [
            (&[18, 18][..], 16, Some(vec![("d0", 16)])),
            // The smallest domain that is large enough.
            (&[18, 12, 16], 10, Some(vec![("d1", 10)])),
            (&[18, 18, 18], 32, Some(vec![("d0", 16), ("d2", 16)])),
            (&[18, 4, 18], 36, Some(vec![("d0", 18), ("d2", 18)])),
            (&[18, 4, 18], 38, Some(vec![("d1", 4), ("d0", 17), ("d2", 17)])),
            (&[2, 2], 5, None),
            (&[0, 0], 1, None),
            (&[], 1, None),
        ] {
            let found = quotas(slots(rooms), cohorts);
            let expected = expected.map(|all| {
                all.into_iter().map(|(name, share)| (name.to_owned(), share)).collect::<Vec<_>>()
            });
            assert_eq!(found, expected, "{cohorts} over {rooms:?}");
        }
    }
}
