//! The places that a group needs on a fabric: for existing pods by kind, and for those
//! still to come.

use super::super::capacity::{ClusterCapacity, FabricCapacity};
use super::super::group::{Group, Member};
use super::spots::Spot;
use cluster_model::fabric_level::LevelDomain;
use cluster_model::room::Ask;
use cluster_model::view::ClusterView;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Pods of a group that need places.
#[derive(Debug)]
pub(crate) struct GroupDemand<'g> {
    /// Existing pods by requirements, oldest first.
    pub(super) pods: Vec<(Arc<Ask>, Vec<&'g Member>)>,
    /// Pods that are still to come, assumed to equal the existing ones.
    pub(super) to_come: Option<(Arc<Ask>, usize)>,
    /// Whether the number of pods is known.
    is_sized: bool,
}

impl<'g> GroupDemand<'g> {
    /// The needs of these pods of a group and of those still to come.
    ///
    /// # Errors
    /// Describes a claim that is unknown.
    pub(crate) fn new(
        group: &'g Group,
        members: impl Iterator<Item = &'g Member>,
        view: &ClusterView,
    ) -> Result<Self, String> {
        Self::with(group, members, view, |member| {
            if member.has_devices(&group.key.namespace, view) {
                Arc::new(member.ask.without_claims())
            } else {
                member.ask.clone()
            }
        })
    }

    /// The needs of these pods if they were created again.
    pub(super) fn anew(
        group: &'g Group,
        members: impl Iterator<Item = &'g Member>,
        view: &ClusterView,
    ) -> Result<Self, String> {
        Self::with(group, members, view, |member| member.ask.clone())
    }

    fn with(
        group: &'g Group,
        members: impl Iterator<Item = &'g Member>,
        view: &ClusterView,
        kind: impl Fn(&Member) -> Arc<Ask>,
    ) -> Result<Self, String> {
        let mut pods: Vec<(Arc<Ask>, Vec<&Member>)> = Vec::new();
        let mut members: Vec<_> = members.collect();
        members.sort_by_key(|member| (member.created, &member.name));
        for member in members {
            let kind = kind(member);
            match pods.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, members)) => members.push(member),
                None => pods.push((kind, vec![member])),
            }
        }
        for (kind, _) in &pods {
            kind.claims(view)?;
        }
        let missing = group.size.map_or(0, |size| size.pods.saturating_sub(group.present()));
        let like = group.members.first().filter(|_| missing > 0);
        let to_come =
            like.map(|member| (Arc::new(member.ask.without_volumes_of(&member.name)), missing));
        Ok(Self { pods, to_come, is_sized: group.size.is_some() })
    }

    /// The number of pods of each kind.
    pub(super) fn counts(&self) -> Vec<(Arc<Ask>, usize)> {
        let mut counts: Vec<_> =
            self.pods.iter().map(|(kind, pods)| (kind.clone(), pods.len())).collect();
        if let Some((kind, more)) = &self.to_come {
            match counts.iter_mut().find(|(known, _)| known == kind) {
                Some((_, count)) => *count += more,
                None => counts.push((kind.clone(), *more)),
            }
        }
        counts
    }

    /// The number of pods of each kind, where pods of lower priority give way; `None` if there are
    /// none that do.
    fn preempting_counts(&self, cluster: &ClusterCapacity<'_>) -> Option<Vec<(Arc<Ask>, usize)>> {
        let counts = self.counts();
        let mut priorities = counts.iter().filter_map(|(kind, _)| kind.preempting_priority());
        if !priorities.any(|priority| cluster.has_pods_below(priority)) {
            return None;
        }
        Some(
            counts
                .into_iter()
                .map(|(kind, count)| {
                    (kind.preempting().map_or_else(|| kind.clone(), Arc::new), count)
                })
                .collect(),
        )
    }

    /// The fabrics on which the group fits once pods of lower priority have given way: how many of
    /// its pods fit without that, and the places left.
    pub(super) fn with_preemption(
        &self,
        cluster: &mut ClusterCapacity<'_>,
    ) -> Vec<(String, usize, usize)> {
        let Some(counts) = self.preempting_counts(cluster) else { return Vec::new() };
        // Of a group of unknown size, one pod must fit.
        let counts = if self.is_sized { counts } else { vec![(counts[0].0.clone(), 1)] };
        cluster
            .fabrics_mut()
            .filter_map(|(name, fabric)| {
                let rest = fabric.fits(&counts)?;
                Some((name.clone(), self.how_many(fabric), rest))
            })
            .collect()
    }

    /// The total number of places.
    pub(super) fn total(&self) -> usize {
        self.counts().iter().map(|(_, count)| count).sum()
    }

    /// The kinds of the existing pods, in the domains of these places if there are any.
    pub(super) fn spots(&self, places: &BTreeSet<Vec<LevelDomain>>) -> HashSet<Spot> {
        let kinds = self.pods.iter().map(|(kind, _)| kind);
        let spots = kinds.flat_map(|kind| {
            let anywhere = places.is_empty().then(|| (kind.clone(), Vec::new()));
            places.iter().map(|it| (kind.clone(), it.clone())).chain(anywhere)
        });
        spots.collect()
    }

    /// The kinds of pods without a gate, each in its domains.
    pub(super) fn released_spots(&self) -> HashSet<Spot> {
        let pods = self.pods.iter().flat_map(|(kind, members)| {
            members.iter().map(move |member| (kind.clone(), member.domains.clone()))
        });
        pods.collect()
    }

    /// The places left on a fabric after the group is placed; `None` if it does not fit.
    /// A group of unknown size fits if one of its pods does.
    pub(super) fn rest_on(&self, fabric: &mut FabricCapacity<'_>) -> Option<usize> {
        if self.is_sized {
            return fabric.fits(&self.counts());
        }
        let (first, _) = self.pods.first()?;
        fabric.count(first).checked_sub(1)
    }

    /// How many of the pods fit on a fabric.
    pub(super) fn how_many(&self, fabric: &mut FabricCapacity<'_>) -> usize {
        let counts = self.counts();
        if let [(kind, count)] = &*counts {
            return fabric.count(kind).min(*count);
        }
        let mut trial = fabric.clone();
        counts.iter().map(|(kind, count)| trial.take(kind, *count)).sum()
    }

    /// Takes places on a fabric: free ones first, then those that pods of lower priority hold. A pod
    /// whose gate was removed takes one in its domains. Returns the pods that got one.
    pub(super) fn take(&self, fabric: &mut FabricCapacity<'_>) -> Vec<&'g Member> {
        let mut placed = Vec::new();
        for (kind, members) in &self.pods {
            let mut by_domain: BTreeMap<&[LevelDomain], Vec<&'g Member>> = BTreeMap::new();
            for member in members {
                let domains = if member.is_released() { &*member.domains } else { &[] };
                by_domain.entry(domains).or_default().push(member);
            }
            for (domains, members) in by_domain {
                let fit = take(fabric, kind, members.len(), domains);
                placed.extend(members.iter().take(fit));
            }
        }
        if let Some((kind, more)) = &self.to_come {
            take(fabric, kind, *more, &[]);
        }
        placed
    }
}

/// Takes free places, then those that pods of lower priority hold. Returns how many there were.
fn take(
    fabric: &mut FabricCapacity<'_>,
    kind: &Arc<Ask>,
    count: usize,
    within: &[LevelDomain],
) -> usize {
    let fit = fabric.take_in(kind, count, within);
    let preempting = (fit < count).then(|| kind.preempting()).flatten();
    fit + preempting.map_or(0, |kind| fabric.take_in(&Arc::new(kind), count - fit, within))
}
