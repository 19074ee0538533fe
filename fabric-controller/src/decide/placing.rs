//! Whether groups fit on a fabric, and the places that they take there.

use super::super::capacity::FabricCapacity;
use super::super::group::{Group, Member};
use super::levels::{LevelPlan, Taken, most};
use super::spots::Fit;
use super::{GroupDemand, Placer};
use cluster_model::fabric_level::LevelDomain;
use std::collections::{BTreeMap, BTreeSet};

impl Placer<'_, '_> {
    /// Whether a group fits on a fabric: on how many domains of its levels, and the places left.
    pub(super) fn fit_on(
        group: &Group,
        needs: &GroupDemand<'_>,
        fabric: &mut FabricCapacity<'_>,
    ) -> Option<Fit> {
        let rest = needs.rest_on(fabric)?;
        let levels = group.levels().as_slice();
        if levels.is_empty() {
            return Some(Fit { domains: Vec::new(), rest, spots: needs.spots(&BTreeSet::new()) });
        }
        let plan = LevelPlan::new(group, needs, fabric, &[])?;
        let domains = plan.domains(levels);
        Some(Fit { domains, rest, spots: needs.spots(&plan.places()) })
    }

    /// How many pods of a group fit on a fabric, in domains if it requires them.
    pub(super) fn most_on(
        group: &Group,
        needs: &GroupDemand<'_>,
        fabric: &mut FabricCapacity<'_>,
    ) -> usize {
        let all = needs.how_many(fabric);
        if group.requires_domains() { all.min(most(group, needs, fabric)) } else { all }
    }

    /// Takes places for a group on a fabric. Returns the gated pods that got one, and the domains
    /// that they go to.
    pub(super) fn take<'g>(
        &mut self,
        group: &Group,
        fabric: &str,
        needs: &GroupDemand<'g>,
    ) -> Taken<'g> {
        let Some(room) = self.cluster.fabric(fabric) else { return Taken::default() };
        let has_levels = !group.levels().is_empty();
        let plan = has_levels.then(|| LevelPlan::new(group, needs, room, &[])).flatten();
        let taken = match plan.filter(LevelPlan::has_domains) {
            Some(plan) => plan.take(needs, room),
            None if group.requires_domains() => Taken::default(),
            None => (needs.take(room), BTreeMap::new()),
        };
        if !taken.0.is_empty() {
            let spots = needs.spots(&taken.1.values().cloned().collect());
            self.settling.entry(fabric.to_owned()).or_default().extend(spots);
        }
        taken
    }

    /// Takes places for pods that were created after others of their group were placed. Where levels
    /// are required, they go to the domains of those that they share one with.
    pub(super) fn join<'g>(
        &mut self,
        group: &'g Group,
        fabric: &str,
        needs: &GroupDemand<'g>,
    ) -> Taken<'g> {
        let view = self.cluster.view();
        let Some(room) = self.cluster.fabric(fabric) else { return Taken::default() };
        let required = group.levels().required().count();
        if required == 0 {
            return (needs.take(room), BTreeMap::new());
        }
        // Pods of one slice have the same.
        let mut homes_of: BTreeMap<_, Vec<LevelDomain>> = BTreeMap::new();
        let mut taken = Taken::default();
        // Pods whose slice has no domain yet, by the domains that they have.
        let mut alone: BTreeMap<Vec<LevelDomain>, Vec<&'g Member>> = BTreeMap::new();
        for (kind, members) in &needs.pods {
            for member in members {
                let homes = homes_of.entry(&member.slice);
                let homes = homes.or_insert_with(|| group.homes(member, view)).clone();
                if homes.len() < required {
                    alone.entry(homes).or_default().push(*member);
                } else if room.take_in(kind, 1, &homes) == 1 {
                    taken.0.push(member);
                    taken.1.insert(member.name.clone(), homes);
                }
            }
        }
        if let Some((kind, more)) = &needs.to_come
            && group.domain_size().is_none()
        {
            let homes = group.members.first().map(|member| group.homes(member, view));
            room.take_in(kind, *more, &homes.unwrap_or_default());
        }
        for (homes, members) in alone {
            let Ok(mut needs) = GroupDemand::new(group, members.into_iter(), view) else {
                continue;
            };
            needs.to_come = None;
            if let Some(plan) = LevelPlan::new(group, &needs, room, &homes) {
                let (pods, domains) = plan.take(&needs, room);
                taken.0.extend(pods);
                taken.1.extend(domains);
            }
        }
        taken
    }
}
