//! What a group needs of a fabric: its pods by kind, and those still to come.

use super::super::capacity::FabricCapacity;
use super::super::group::{Group, Member};
use super::super::requirements::PodRequirements;
use cluster_model::view::ClusterView;
use std::collections::HashSet;
use std::sync::Arc;

/// Pods of a group that need a place.
#[derive(Debug)]
pub(crate) struct GroupDemand<'g> {
    /// Those that are there, by what they need, oldest first.
    pub(super) pods: Vec<(Arc<PodRequirements>, Vec<&'g Member>)>,
    /// Those that are still to come, taken to be as the others are.
    pub(super) to_come: Option<(Arc<PodRequirements>, usize)>,
    /// Whether it is known how many there will be.
    is_sized: bool,
}

impl<'g> GroupDemand<'g> {
    /// What these pods of a group need, and those that are still to come.
    ///
    /// # Errors
    /// What is not known of their claims.
    pub(crate) fn of(
        group: &'g Group,
        members: impl Iterator<Item = &'g Member>,
        view: &ClusterView,
    ) -> Result<Self, String> {
        Self::with(group, members, view, |member| {
            if member.has_devices(&group.key.namespace, view) {
                Arc::new(member.requirements.without_claims())
            } else {
                member.requirements.clone()
            }
        })
    }

    /// What these pods would need if they were made anew.
    pub(super) fn anew(
        group: &'g Group,
        members: impl Iterator<Item = &'g Member>,
        view: &ClusterView,
    ) -> Result<Self, String> {
        Self::with(group, members, view, |member| member.requirements.clone())
    }

    fn with(
        group: &'g Group,
        members: impl Iterator<Item = &'g Member>,
        view: &ClusterView,
        kind: impl Fn(&Member) -> Arc<PodRequirements>,
    ) -> Result<Self, String> {
        let mut pods: Vec<(Arc<PodRequirements>, Vec<&Member>)> = Vec::new();
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
        let to_come = like.map(|member| (member.requirements.clone(), missing));
        Ok(Self { pods, to_come, is_sized: group.size.is_some() })
    }

    /// How many of each kind.
    fn counts(&self) -> Vec<(Arc<PodRequirements>, usize)> {
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

    /// All places that are needed.
    pub(super) fn total(&self) -> usize {
        self.counts().iter().map(|(_, count)| count).sum()
    }

    /// The kinds of the pods that are there.
    pub(super) fn kinds(&self) -> HashSet<Arc<PodRequirements>> {
        self.pods.iter().map(|(kind, _)| kind.clone()).collect()
    }

    /// The places that are left on a fabric beside the group's; `None` where it
    /// does not fit. A group of unknown size fits where one of its pods does.
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

    /// Takes the places on a fabric; the pods that got one.
    pub(super) fn take(&self, fabric: &mut FabricCapacity<'_>) -> Vec<&'g Member> {
        let mut placed = Vec::new();
        for (kind, members) in &self.pods {
            let fit = fabric.take(kind, members.len());
            placed.extend(members.iter().take(fit));
        }
        if let Some((kind, more)) = &self.to_come {
            fabric.take(kind, *more);
        }
        placed
    }
}
