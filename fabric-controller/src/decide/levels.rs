//! Groups that belong in domains of levels below the fabric: all pods in one domain, or slices of
//! them each in one, or, where it is only preferred, as few domains as possible.
//!
//! The widest level is chosen first, then the nearer ones within its domains. One domain for all is
//! taken where the pods then need the fewest nearer domains; among equal ones the smallest, so that
//! whole domains stay free. Where none is large enough, the fewest domains are found by taking the one
//! with most room until the rest fits in one, and the pods are divided evenly over them.

use super::super::capacity::FabricCapacity;
use super::super::group::{Group, Member};
use super::GroupDemand;
use super::quotas::quotas;
use cluster_model::fabric_level::{FabricLevel, LevelDomain, LevelRequest};
use cluster_model::room::Ask;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The pods that got a place, and the domains that they go to, by name.
pub(super) type Taken<'g> = (Vec<&'g Member>, BTreeMap<String, Vec<LevelDomain>>);

/// The domains of a group on one fabric.
#[derive(Clone, Debug)]
pub(super) struct LevelPlan<'g> {
    parts: Vec<Part<'g>>,
}

/// Pods that go to the same domains.
#[derive(Clone, Debug)]
struct Part<'g> {
    /// Nearest level first.
    domains: Vec<LevelDomain>,
    pods: Vec<(usize, &'g Member)>,
}

/// Pods that belong in one domain of the nearest level.
#[derive(Clone, Debug)]
struct Cohort<'g> {
    /// With the number of their kind.
    pods: Vec<(usize, &'g Member)>,
    /// How many are still to come.
    missing: usize,
}

impl Cohort<'_> {
    fn size(&self) -> usize {
        self.pods.len() + self.missing
    }
}

/// Nodes, and how many pods fit there.
type NodeRooms<'f> = Vec<(&'f str, usize)>;

/// What a group needs in domains, and the room on a fabric.
struct Field<'f, 'a> {
    fabric: &'f FabricCapacity<'a>,
    /// The kinds of pods, and how many of each fit on which nodes.
    kinds: Vec<(Arc<Ask>, NodeRooms<'f>)>,
    /// The kind of pods that are still to come.
    missing_kind: usize,
    /// The number of pods of a slice.
    slice: Option<usize>,
    /// The levels that are asked for, widest first.
    levels: Vec<LevelRequest>,
}

impl<'g> LevelPlan<'g> {
    /// Plans the domains of a group on a fabric, within these domains that it already has; `None` if
    /// they have too little room.
    pub(super) fn new(
        group: &Group,
        needs: &GroupDemand<'g>,
        fabric: &FabricCapacity<'_>,
        within: &[LevelDomain],
    ) -> Option<Self> {
        let field = Field::new(group, needs, fabric, within);
        let cohorts = field.cohorts(group, needs);
        let parts = field.spread(&field.levels, &cohorts, within)?;
        (parts.len() == 1 || field.fits(&parts)).then_some(Self { parts })
    }

    /// How many domains of each of these levels it has, widest first; behind every other number if it
    /// has pods in none.
    pub(super) fn domains(&self, levels: &[LevelRequest]) -> Vec<usize> {
        numbers(&self.parts, levels.iter().rev().map(|request| request.level))
    }

    /// Whether pods go to domains; not if a preferred level is not to be had.
    pub(super) fn has_domains(&self) -> bool {
        self.parts.iter().any(|part| !part.domains.is_empty())
    }

    /// The different places of its pods.
    pub(super) fn places(self) -> BTreeSet<Vec<LevelDomain>> {
        self.parts.into_iter().map(|part| part.domains).collect()
    }

    /// Takes its places, and any for pods that are still to come.
    pub(super) fn take(self, needs: &GroupDemand<'g>, room: &mut FabricCapacity<'_>) -> Taken<'g> {
        let mut taken = Taken::default();
        let all_in_one = self.parts.len() == 1;
        for Part { domains, pods } in self.parts {
            for (kind, of_kind) in &needs.pods {
                let here: Vec<_> = pods
                    .iter()
                    .map(|(_, member)| *member)
                    .filter(|member| of_kind.iter().any(|it| it.name == member.name))
                    .collect();
                let fit = room.take_in(kind, here.len(), &domains);
                for member in here.into_iter().take(fit) {
                    taken.0.push(member);
                    if !domains.is_empty() {
                        taken.1.insert(member.name.clone(), domains.clone());
                    }
                }
            }
            if let Some((kind, more)) = needs.to_come.as_ref().filter(|_| all_in_one) {
                room.take_in(kind, *more, &domains);
            }
        }
        if let Some((kind, more)) = needs.to_come.as_ref().filter(|_| !all_in_one) {
            room.take(kind, *more);
        }
        taken
    }
}

/// The number of domains of each level; behind every other number if there are pods in none.
fn numbers(parts: &[Part<'_>], levels: impl Iterator<Item = FabricLevel>) -> Vec<usize> {
    levels
        .map(|level| {
            let names: Option<BTreeSet<_>> = parts
                .iter()
                .map(|part| part.domains.iter().find(|it| it.level == level).cloned())
                .collect();
            names.map_or(usize::MAX, |names| names.len())
        })
        .collect()
}

/// How many pods of a group fit on a fabric in the domains that it requires.
pub(super) fn most(group: &Group, needs: &GroupDemand<'_>, fabric: &FabricCapacity<'_>) -> usize {
    let field = Field::new(group, needs, fabric, &[]);
    let nearest = field.levels.last().copied();
    let shared = field.levels.iter().rev().find(|request| field.is_shared(**request));
    let regions: Vec<Vec<LevelDomain>> = match shared {
        Some(request) => field.rooms(request.level, &[]).into_keys().map(|it| vec![it]).collect(),
        None => vec![Vec::new()],
    };
    let rooms = regions.iter().map(|region| match (nearest, field.slice) {
        (Some(nearest), Some(slice)) if nearest.is_required => {
            let rooms = field.rooms(nearest.level, region).into_values();
            let rooms: Vec<_> = rooms.map(|room| least(&room)).collect();
            // The last slice may be smaller.
            let last = needs.total() % slice;
            let has_room = rooms.iter().any(|room| room % slice >= last);
            let whole: usize = rooms.iter().map(|room| room / slice * slice).sum();
            whole + if has_room { last } else { 0 }
        }
        _ => field.room_in(region),
    });
    rooms.max().unwrap_or(0)
}

/// The room for the kind of pod that has least.
fn least(room: &[usize]) -> usize {
    room.iter().copied().min().unwrap_or(0)
}

impl<'f, 'a> Field<'f, 'a> {
    fn new(
        group: &Group,
        needs: &GroupDemand<'_>,
        fabric: &'f FabricCapacity<'a>,
        within: &[LevelDomain],
    ) -> Self {
        let counts = needs.counts();
        let to_come = needs.to_come.as_ref().map(|(kind, _)| kind);
        let missing_kind = counts.iter().position(|(kind, _)| Some(kind) == to_come);
        let kinds = counts.into_iter().map(|(kind, _)| {
            let nodes = fabric.count_nodes(&kind);
            (kind, nodes)
        });
        let levels = group.levels().as_slice().iter().rev().copied();
        let levels = levels.filter(|request| within.iter().all(|it| it.level != request.level));
        Self {
            fabric,
            kinds: kinds.collect(),
            missing_kind: missing_kind.unwrap_or(0),
            slice: group.domain_size(),
            levels: levels.collect(),
        }
    }

    /// Whether the pods of a cohort must share a domain of the nearest level.
    fn is_bound(&self) -> bool {
        self.slice.is_some() || self.levels.last().is_some_and(|nearest| nearest.is_required)
    }

    /// Whether all pods must share a domain of this level.
    fn is_shared(&self, request: LevelRequest) -> bool {
        let is_nearest = self.levels.last() == Some(&request);
        request.is_required && !(is_nearest && self.slice.is_some())
    }

    /// The pods that belong together: the slices, all of them, or each by itself.
    fn cohorts<'g>(&self, group: &Group, needs: &GroupDemand<'g>) -> Vec<Cohort<'g>> {
        let pods = needs.pods.iter().flat_map(|(kind, members)| {
            let kind = self.kinds.iter().position(|(known, _)| known == kind).unwrap_or(0);
            members.iter().map(move |member| (kind, *member))
        });
        match self.slice {
            Some(size) => {
                let mut slices: BTreeMap<_, Vec<_>> = BTreeMap::new();
                for (kind, member) in pods {
                    slices.entry(member.slice.clone()).or_default().push((kind, member));
                }
                slices
                    .into_iter()
                    .map(|(slice, pods)| {
                        let whole = group.slice_pods(slice.as_ref(), size);
                        Cohort { missing: whole.saturating_sub(pods.len()), pods }
                    })
                    .collect()
            }
            None if self.is_bound() => {
                let missing = needs.to_come.as_ref().map_or(0, |(_, count)| *count);
                vec![Cohort { pods: pods.collect(), missing }]
            }
            None => pods.map(|pod| Cohort { pods: vec![pod], missing: 0 }).collect(),
        }
    }

    /// Chooses domains of these levels, widest first, for cohorts within domains. `None` if those that
    /// are required have too little room.
    fn spread<'g>(
        &self,
        levels: &[LevelRequest],
        cohorts: &[Cohort<'g>],
        within: &[LevelDomain],
    ) -> Option<Vec<Part<'g>>> {
        let Some((widest, nearer)) = levels.split_first() else {
            let pods = cohorts.iter().flat_map(|cohort| cohort.pods.iter().copied()).collect();
            return Some(vec![Part { domains: within.to_vec(), pods }]);
        };
        if let Some(parts) = self.in_one(*widest, nearer, cohorts, within) {
            return Some(parts);
        }
        if self.is_shared(*widest) {
            return None;
        }
        let parts = self.in_several(*widest, nearer, cohorts, within);
        // A preferred level that is not to be had is left out.
        parts.or_else(|| {
            (!widest.is_required).then(|| self.spread(nearer, cohorts, within)).flatten()
        })
    }

    /// One domain of a level for all cohorts.
    fn in_one<'g>(
        &self,
        request: LevelRequest,
        nearer: &[LevelRequest],
        cohorts: &[Cohort<'g>],
        within: &[LevelDomain],
    ) -> Option<Vec<Part<'g>>> {
        let need = self.need(cohorts);
        let rooms = self.rooms(request.level, within).into_iter();
        let mut fitting: Vec<_> = rooms
            .filter_map(|(domain, room)| {
                let left = room.iter().zip(&need).map(|(room, need)| room.checked_sub(*need));
                Some((left.collect::<Option<Vec<_>>>()?.into_iter().min()?, domain))
            })
            .collect();
        fitting.sort();
        let parts = fitting.into_iter().filter_map(|(_, domain)| {
            let inside: Vec<_> = std::iter::once(domain).chain(within.iter().cloned()).collect();
            let parts = self.spread(nearer, cohorts, &inside)?;
            (!nearer.is_empty() || self.fits(&parts)).then_some(parts)
        });
        if nearer.is_empty() {
            return parts.into_iter().next();
        }
        // The first of equal ones.
        parts.min_by_key(|parts| numbers(parts, nearer.iter().map(|request| request.level)))
    }

    /// As few domains of a level as possible, with the cohorts divided evenly.
    fn in_several<'g>(
        &self,
        request: LevelRequest,
        nearer: &[LevelRequest],
        cohorts: &[Cohort<'g>],
        within: &[LevelDomain],
    ) -> Option<Vec<Part<'g>>> {
        let size = cohorts.iter().map(Cohort::size).max()?;
        let slots = self.rooms(request.level, within).into_iter().map(|(domain, room)| {
            let inside: Vec<_> =
                std::iter::once(domain.clone()).chain(within.iter().cloned()).collect();
            let slots = match nearer.last().filter(|_| self.is_bound()) {
                None => least(&room) / size,
                Some(nearest) => {
                    let rooms = self.rooms(nearest.level, &inside).into_values();
                    rooms.map(|room| least(&room) / size).sum()
                }
            };
            (inside, slots)
        });
        let slots: Vec<_> = slots.collect();
        if let Some(quotas) = quotas(slots.clone(), cohorts.len()) {
            return self.divide(quotas, nearer, cohorts);
        }
        // The last slice of a controller may be smaller, and fit where no whole one does.
        let (whole, smaller): (Vec<_>, Vec<_>) =
            cohorts.iter().cloned().partition(|cohort| cohort.size() == size);
        let quotas = quotas(slots, whole.len()).filter(|_| !smaller.is_empty())?;
        let mut parts = self.divide(quotas, nearer, &whole)?;
        for cohort in &smaller {
            parts.push(self.beside(request, &parts, cohort, within)?);
        }
        Some(parts)
    }

    /// Divides cohorts over domains by these numbers.
    fn divide<'g>(
        &self,
        quotas: Vec<(Vec<LevelDomain>, usize)>,
        nearer: &[LevelRequest],
        cohorts: &[Cohort<'g>],
    ) -> Option<Vec<Part<'g>>> {
        let mut left = cohorts;
        let mut parts = Vec::new();
        for (inside, quota) in quotas {
            let (here, rest) = left.split_at(quota);
            left = rest;
            parts.extend(self.spread(nearer, here, &inside)?);
        }
        Some(parts)
    }

    /// The domain of a level with the least room for a cohort beside other parts.
    fn beside<'g>(
        &self,
        request: LevelRequest,
        parts: &[Part<'g>],
        cohort: &Cohort<'g>,
        within: &[LevelDomain],
    ) -> Option<Part<'g>> {
        let rooms = self.rooms(request.level, within).into_iter().map(|(domain, room)| {
            let here = parts.iter().filter(|part| part.domains.contains(&domain));
            let taken: usize = here.map(|part| part.pods.len()).sum();
            (least(&room).saturating_sub(taken), domain)
        });
        let (_, domain) = rooms.filter(|(room, _)| *room >= cohort.size()).min()?;
        let domains = std::iter::once(domain).chain(within.iter().cloned()).collect();
        Some(Part { domains, pods: cohort.pods.clone() })
    }

    /// How many pods of each kind cohorts have, with those that are still to come.
    fn need(&self, cohorts: &[Cohort<'_>]) -> Vec<usize> {
        let mut need = vec![0; self.kinds.len()];
        for cohort in cohorts {
            cohort.pods.iter().for_each(|(kind, _)| need[*kind] += 1);
            if let Some(kind) = need.get_mut(self.missing_kind) {
                *kind += cohort.missing;
            }
        }
        need
    }

    /// The room for each kind of pod in each domain of a level within domains.
    fn rooms(
        &self,
        level: FabricLevel,
        within: &[LevelDomain],
    ) -> BTreeMap<LevelDomain, Vec<usize>> {
        let mut rooms: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, (_, nodes)) in self.kinds.iter().enumerate() {
            for (node, room) in nodes.iter().filter(|(node, _)| self.fabric.is_within(node, within))
            {
                let Some(name) = self.fabric.label(node, level.label()) else { continue };
                let of_domain = rooms.entry(name).or_insert_with(|| vec![0; self.kinds.len()]);
                of_domain[index] += room;
            }
        }
        rooms
            .into_iter()
            .map(|(name, room)| (LevelDomain { level, name: name.to_owned() }, room))
            .collect()
    }

    /// The room within domains for the kind of pod that has least.
    fn room_in(&self, within: &[LevelDomain]) -> usize {
        self.kinds
            .iter()
            .map(|(_, nodes)| {
                let inside = nodes.iter().filter(|(node, _)| self.fabric.is_within(node, within));
                inside.map(|(_, room)| room).sum::<usize>()
            })
            .min()
            .unwrap_or(0)
    }

    /// Whether all pods of these parts fit at the same time. Pods of one kind are counted exactly.
    fn fits(&self, parts: &[Part<'_>]) -> bool {
        if let [(kind, _)] = &*self.kinds
            && kind.apart.is_empty()
            && kind.near.is_empty()
        {
            return true;
        }
        let mut trial = self.fabric.clone();
        parts.iter().all(|part| {
            let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
            part.pods.iter().for_each(|(kind, _)| *counts.entry(*kind).or_default() += 1);
            let mut counts: Vec<_> = counts.into_iter().collect();
            counts.sort_by_key(|(_, count)| Reverse(*count));
            counts.into_iter().all(|(kind, count)| {
                trial.take_in(&self.kinds[kind].0, count, &part.domains) == count
            })
        })
    }
}
