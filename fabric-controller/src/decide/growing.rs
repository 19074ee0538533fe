//! Groups that no fabric has room for, and fabrics that an autoscaler can grow.
//!
//! Scheduling gates hide pods from autoscalers. A group with a limited wait is released to a fabric
//! whose nodes an autoscaler adds, although it has no room yet. It stays on this one fabric, and
//! moves like any other group whose fabric is full.

use super::super::group::Group;
use super::super::waiting::WaitingReason;
use super::{Action, GroupDemand, Placer, Warning};
use std::collections::BTreeMap;

impl Placer<'_, '_> {
    /// Releases a group without room to a fabric that can grow, if it has waited long enough.
    pub(super) fn grow_or_wait(
        &mut self,
        group: &Group,
        needs: &GroupDemand<'_>,
        why: WaitingReason,
    ) {
        let is_full = matches!(why, WaitingReason::NoRoom { .. } | WaitingReason::NoFabrics);
        let fabric = if is_full { self.growing_for(group, needs) } else { None };
        let is_due = group.grows_at().is_some_and(|at| at <= self.now);
        match (fabric, why) {
            (Some(fabric), _) if is_due => {
                let pods = group.gated().map(|member| member.name.clone()).collect();
                self.take(group, &fabric, needs);
                let action = Action::Place { fabric, pods, domains: BTreeMap::new(), rest: None };
                self.push(group, action, Some(Warning::Grows));
            }
            (can_grow, WaitingReason::NoRoom { best, fit, need, at_most, .. }) => {
                let why = WaitingReason::NoRoom { best, fit, need, at_most, can_grow };
                self.push(group, Action::Wait(why), None);
            }
            (_, why) => self.push(group, Action::Wait(why), None),
        }
    }

    /// The fabric that can grow and takes most of the group now. Those with nodes, none of which
    /// can take a pod of the group even with nothing in use, are left out.
    fn growing_for(&mut self, group: &Group, needs: &GroupDemand<'_>) -> Option<String> {
        // Which domains the new nodes belong to is unknown.
        if group.requires_domains() {
            return None;
        }
        let rules = self.rules;
        let chosen = rules.growing.iter().find(|name| group.reserved() == Some(name));
        if chosen.is_some() {
            return chosen.cloned();
        }
        let mut best: Option<(usize, &String)> = None;
        for name in &rules.growing {
            let emptied = self.emptied.get_or_insert_with(|| self.cluster.emptied());
            let suits = emptied.fabric(name).is_none_or(|fabric| needs.how_many(fabric) > 0);
            let fit = self.cluster.fabric(name).map_or(0, |fabric| needs.how_many(fabric));
            if suits && best.is_none_or(|(most, _)| fit > most) {
                best = Some((fit, name));
            }
        }
        best.map(|(_, name)| name.clone())
    }
}
