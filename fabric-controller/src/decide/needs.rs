//! The places that a group needs on a fabric: for existing pods by kind, and for those
//! still to come.

use super::super::capacity::FabricCapacity;
use super::super::group::{Group, Member};
use super::super::requirements::PodRequirements;
use cluster_model::view::ClusterView;
use std::collections::HashSet;
use std::sync::Arc;

/// Pods of a group that need places.
#[derive(Debug)]
pub(crate) struct GroupDemand<'g> {
    /// Existing pods by requirements, oldest first.
    pub(super) pods: Vec<(Arc<PodRequirements>, Vec<&'g Member>)>,
    /// Pods that are still to come, assumed to equal the existing ones.
    pub(super) to_come: Option<(Arc<PodRequirements>, usize)>,
    /// Whether the number of pods is known.
    is_sized: bool,
}

impl<'g> GroupDemand<'g> {
    /// The needs of these pods of a group and of those still to come.
    ///
    /// # Errors
    /// Describes a claim that is unknown.
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

    /// The needs of these pods if they were created again.
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

    /// The number of pods of each kind.
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

    /// The total number of places.
    pub(super) fn total(&self) -> usize {
        self.counts().iter().map(|(_, count)| count).sum()
    }

    /// The kinds of the existing pods.
    pub(super) fn kinds(&self) -> HashSet<Arc<PodRequirements>> {
        self.pods.iter().map(|(kind, _)| kind.clone()).collect()
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

    /// Takes places on a fabric. Returns the pods that got one.
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
