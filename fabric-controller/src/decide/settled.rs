//! Groups that have a fabric: the places that they still need are reserved, and recreated
//! pods join the others. If the fabric has no more room, also for pods that the scheduler has not
//! placed yet, they wait, or the whole group moves.

use super::super::group::{Group, PodStage};
use super::super::waiting::WaitingReason;
use super::{Action, FullFabricPolicy, GroupDemand, Placer, names};

impl Placer<'_, '_> {
    /// Reserves places for released pods without a node. Returns how many pods that the
    /// scheduler could not place have no place.
    pub(super) fn keep(&mut self, group: &Group) -> usize {
        let Some(fabric) = self.fabric_of(group) else { return 0 };
        let pods = group.released().filter(|member| member.stage == PodStage::Released);
        let stuck = pods.clone().filter(|member| member.is_unschedulable).count();
        if pods.clone().next().is_none() {
            return 0;
        }
        let Ok(mut needs) = GroupDemand::new(group, pods.clone(), self.cluster.view()) else {
            return 0;
        };
        needs.to_come = None;
        self.cluster.begin_group();
        let placed = match self.cluster.fabric(&fabric) {
            Some(room) => needs.take(room).len(),
            None => 0,
        };
        // If a pod was unschedulable, the scheduler is not placing the group right now.
        if stuck == 0 {
            self.settling.entry(fabric).or_default().extend(needs.released_spots());
        }
        // Pods that may have a place are not taken for stuck.
        if self.cluster.gave_up().is_some() { 0 } else { stuck.min(pods.count() - placed) }
    }

    /// Places pods of the group that were created later. `lacking` is the number of
    /// released pods that no longer have a place.
    pub(super) fn go_on(&mut self, group: &Group, lacking: usize) {
        let Some(fabric) = self.fabric_of(group) else { return };
        if group.released().any(|member| member.moves) {
            return self.push(group, all(group), None);
        }
        let ready = group.gated().filter(|member| member.other_gates.is_empty());
        let needs = match GroupDemand::new(group, ready, self.cluster.view()) {
            Ok(needs) => needs,
            Err(why) => return self.push(group, Action::Wait(WaitingReason::Unknown(why)), None),
        };
        self.cluster.begin_group();
        let (placed, domains) = self.join(group, &fabric, &needs);
        let spots = needs.spots(&domains.values().cloned().collect());
        let busy = self.is_busy(&fabric, &spots);
        if let Some(why) = self.cluster.gave_up().filter(|_| group.has_gated()) {
            return self.push(group, Action::Wait(why), None);
        }
        if busy && !placed.is_empty() {
            return self.push(group, Action::Wait(WaitingReason::Settling { fabric }), None);
        }
        if !placed.is_empty() {
            self.settling.entry(fabric.clone()).or_default().extend(spots);
        }
        let ready: usize = needs.pods.iter().map(|(_, members)| members.len()).sum();
        let waiting = ready - placed.len();
        let waiting = waiting + lacking;
        let elsewhere = if waiting > 0 { self.elsewhere(group, &fabric) } else { None };
        let elsewhere = elsewhere.filter(|_| self.cluster.gave_up().is_none());
        if elsewhere.is_some()
            && self.rules.full_fabric == FullFabricPolicy::Evict
            && group.members.iter().all(|member| member.is_controlled)
        {
            return self.push(group, all(group), None);
        }
        let fit = placed.len();
        let need = ready + lacking;
        let rest = (waiting > 0).then(|| {
            let fabric = fabric.clone();
            if elsewhere.is_none() && self.rules.growing.contains(&fabric) {
                WaitingReason::Growing { fabric, fit, need }
            } else {
                WaitingReason::Full { fabric, fit, need, elsewhere }
            }
        });
        let action = match (fit, rest) {
            (0, Some(why)) => Action::Wait(why),
            (0, None) => return,
            (_, rest) => Action::Place { fabric, pods: names(placed), domains, rest },
        };
        self.push(group, action, None);
    }

    fn fabric_of(&self, group: &Group) -> Option<String> {
        group.fabric(|node| self.cluster.fabric_of(node))
    }

    /// A fabric with room for the whole group now: its own, in other domains of the levels that the
    /// group requires, or another one.
    fn elsewhere(&mut self, group: &Group, fabric: &str) -> Option<String> {
        let members = group.members.iter().filter(|member| member.stage != PodStage::Succeeded);
        let needs = GroupDemand::anew(group, members, self.cluster.view()).ok()?;
        let own = group.requires_domains().then_some(fabric);
        let others = self.cluster.fabrics_mut().map(|(name, _)| name.clone());
        let others: Vec<_> = others.filter(|name| name != fabric).collect();
        let mut all = own.map(str::to_owned).into_iter().chain(others);
        all.find(|name| {
            let is_open = !self.kept.contains(name);
            let room = self.cluster.fabric(name).filter(|_| is_open);
            room.is_some_and(|room| Self::fit_on(group, &needs, room).is_some())
        })
    }
}

/// Evicts every released pod of the group.
fn all(group: &Group) -> Action {
    Action::Evict { pods: names(group.released().collect()) }
}
