//! Chooses which groups are placed now, and where.
//!
//! Groups that already have a fabric come first: the places that they still need are reserved. The
//! others follow by priority and age. Each group gets the fabric on which it fits and leaves the
//! fewest free places, so that large free capacities stay for large groups. A group that does not
//! fit lets younger ones pass for a while. After that, the fabric that is nearest to having room
//! for it is reserved.

mod allocated;
mod growing;
mod levels;
mod needs;
mod placing;
mod quotas;
mod settled;
mod spots;
pub mod supposed;

use super::capacity::ClusterCapacity;
use super::group::{Group, GroupKey, Member, later};
use super::waiting::WaitingReason;
use cluster_model::fabric_level::LevelDomain;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashSet};

pub(crate) use needs::GroupDemand;
use spots::Spot;

/// What happens to a group if its fabric no longer has room for one of its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "server", derive(clap::ValueEnum))]
pub enum FullFabricPolicy {
    /// The pod waits until there is room.
    Wait,
    /// All pods of the group are evicted and placed again, if another fabric, or other domains of
    /// the levels that it requires, have room for all.
    Evict,
}

/// The operator's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementPolicy {
    /// How long to wait for the missing pods of a group.
    pub whole_within: SignedDuration,
    /// How long a group waits until a fabric is reserved for it.
    pub starves_after: SignedDuration,
    /// What happens to a group on a full fabric.
    pub full_fabric: FullFabricPolicy,
    /// The fabrics to which an autoscaler adds nodes for pods that wait for the scheduler. They may
    /// have no nodes yet.
    pub growing: Vec<String>,
}

impl Default for PlacementPolicy {
    fn default() -> Self {
        Self {
            whole_within: SignedDuration::from_mins(5),
            starves_after: SignedDuration::from_mins(5),
            full_fabric: FullFabricPolicy::Wait,
            growing: Vec::new(),
        }
    }
}

/// What to do about a group now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// These pods, by name, go to this fabric.
    Place {
        /// The fabric.
        fabric: String,
        /// The pods whose gates are removed.
        pods: Vec<String>,
        /// The domains of levels that each of them goes to, if it goes to any; nearest level first.
        domains: BTreeMap<String, Vec<LevelDomain>>,
        /// Why other pods of the group still wait.
        rest: Option<WaitingReason>,
    },
    /// All gated pods wait.
    Wait(WaitingReason),
    /// Every released pod is marked, and evicted.
    Evict {
        /// The pods, by name.
        pods: Vec<String>,
    },
}

/// An action, and a warning for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The group.
    pub group: GroupKey,
    /// What to do.
    pub action: Action,
    /// Set if the group is placed without a known size, or before all its pods exist.
    pub warning: Option<Warning>,
}

impl Decision {
    /// Returns true if the group waits for this reason.
    pub fn waits_for(&self, reason: &WaitingReason) -> bool {
        matches!(&self.action, Action::Wait(why) if why == reason)
    }
}

/// What may go wrong with a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The number of pods is unknown.
    OneByOne,
    /// Not all pods exist after a long wait.
    Late,
    /// The fabric has no room yet; an autoscaler adds nodes to it.
    Grows,
}

/// Returns true if a gate may be removed or a group moved, or if pods without a gate may have lost
/// their place; otherwise [`decide`] decides nothing.
pub fn is_needed(groups: &[Group], rules: &PlacementPolicy) -> bool {
    let evicts = rules.full_fabric == FullFabricPolicy::Evict;
    groups.iter().any(|group| {
        group.waiting().next().is_some()
            || group.members.iter().any(|member| member.moves)
            || (evicts && group.is_open())
    })
}

/// The next time at which [`decide`] may decide differently although nothing has changed; `None` if
/// there is none.
pub fn next_due(groups: &[Group], rules: &PlacementPolicy, now: Timestamp) -> Option<Timestamp> {
    let grow = groups.iter().filter_map(Group::grows_at);
    groups
        .iter()
        .filter_map(|group| {
            let youngest = group.members.iter().map(|member| member.created).max()?;
            let oldest = group.waits_since()?;
            Some([later(youngest, rules.whole_within), later(oldest, rules.starves_after)])
        })
        .flatten()
        .chain(grow)
        .filter(|at| *at > now)
        .min()
}

/// Decides on every group with gated pods or pods without a node.
pub fn decide(
    groups: &[Group],
    cluster: ClusterCapacity<'_>,
    rules: &PlacementPolicy,
    now: Timestamp,
) -> Vec<Decision> {
    let mut order: Vec<_> = groups.iter().collect();
    order.sort_by_cached_key(|group| (group.rank(), group.key.clone()));
    let mut choice = Placer::new(cluster, rules, now);
    // Reserve places for groups with a fabric before placing new ones.
    let (settled, open): (Vec<_>, Vec<_>) =
        order.into_iter().partition(|group| group.has_released());
    let lacking: Vec<_> = settled.iter().map(|group| choice.keep(group)).collect();
    settled.iter().zip(lacking).for_each(|(group, lacking)| choice.go_on(group, lacking));
    let (chosen, new): (Vec<_>, Vec<_>) =
        open.into_iter().partition(|group| group.reserved().is_some());
    chosen.into_iter().chain(new).for_each(|group| choice.start(group));
    choice.decisions
}

/// The decisions of one round.
struct Placer<'r, 'a> {
    cluster: ClusterCapacity<'a>,
    /// The same cluster with nothing in use; computed on demand.
    emptied: Option<ClusterCapacity<'a>>,
    rules: &'r PlacementPolicy,
    now: Timestamp,
    /// Fabrics that are reserved for groups that have waited too long.
    kept: BTreeSet<String>,
    /// The kinds of pods that the scheduler is placing, by fabric.
    settling: BTreeMap<String, HashSet<Spot>>,
    decisions: Vec<Decision>,
}

impl<'r, 'a> Placer<'r, 'a> {
    fn new(cluster: ClusterCapacity<'a>, rules: &'r PlacementPolicy, now: Timestamp) -> Self {
        Self {
            cluster,
            emptied: None,
            rules,
            now,
            kept: BTreeSet::new(),
            settling: BTreeMap::new(),
            decisions: Vec::new(),
        }
    }

    fn push(&mut self, group: &Group, action: Action, warning: Option<Warning>) {
        self.decisions.push(Decision { group: group.key.clone(), action, warning });
    }

    /// Decides on a group without released pods.
    fn start(&mut self, group: &Group) {
        if !group.has_gated() {
            return;
        }
        if let Some(why) = self.not_yet(group) {
            return self.push(group, Action::Wait(why), None);
        }
        if let Some(action) = self.where_devices_are(group) {
            return self.push(group, action, None);
        }
        let needs = match GroupDemand::new(group, group.gated(), self.cluster.view()) {
            Ok(needs) => needs,
            Err(why) => return self.push(group, Action::Wait(WaitingReason::Unknown(why)), None),
        };
        self.cluster.begin_group();
        let chosen = self.choose(group, &needs);
        if let Some(why) = self.cluster.gave_up() {
            return self.push(group, Action::Wait(why), None);
        }
        let fabric = match chosen {
            Ok(fabric) => fabric,
            Err(why) => return self.grow_or_wait(group, &needs, why),
        };
        let is_whole = group.size.is_none_or(|size| group.present() >= size.pods);
        let warning = match group.size {
            None => Some(Warning::OneByOne),
            Some(size) if size.at_once && !is_whole => Some(Warning::Late),
            Some(_) => None,
        };
        let (placed, domains) = self.take(group, &fabric, &needs);
        if let Some(why) = self.cluster.gave_up() {
            return self.push(group, Action::Wait(why), None);
        }
        let waiting = group.gated().count() - placed.len();
        let rest = (waiting > 0).then(|| WaitingReason::Full {
            fabric: fabric.clone(),
            fit: 0,
            need: waiting,
            elsewhere: None,
        });
        let pods = names(placed);
        self.push(group, Action::Place { fabric, pods, domains, rest }, warning);
    }

    /// Returns why it is too early to choose a fabric.
    fn not_yet(&self, group: &Group) -> Option<WaitingReason> {
        let youngest = group.members.iter().map(|member| member.created).max();
        let late =
            youngest.is_some_and(|made| self.now.duration_since(made) >= self.rules.whole_within);
        let have = group.present();
        if let Some(size) = group.size.filter(|size| size.at_once && !late)
            && have < size.pods
        {
            return Some(WaitingReason::NotWhole { have, want: size.pods });
        }
        let gates: BTreeSet<_> = group.gated().flat_map(|member| &member.other_gates).collect();
        (!gates.is_empty()).then(|| WaitingReason::OtherGates(gates.into_iter().cloned().collect()))
    }

    /// The fabric for a group: the one that was chosen before if the group still fits, otherwise
    /// the one with the fewest places left.
    fn choose(&mut self, group: &Group, needs: &GroupDemand<'_>) -> Result<String, WaitingReason> {
        let mut fitting = Vec::new();
        let mut best: Option<(usize, String)> = None;
        for (name, fabric) in self.cluster.fabrics_mut() {
            if let Some(fit) = Self::fit_on(group, needs, fabric) {
                fitting.push((fit, name.clone()));
                continue;
            }
            let fit = Self::most_on(group, needs, fabric);
            if best.as_ref().is_none_or(|(most, _)| fit > *most) {
                best = Some((fit, name.clone()));
            }
        }
        // An earlier choice stays, even if the fabric is reserved for another group.
        if let Some((_, name)) = fitting.iter().find(|(_, name)| group.reserved() == Some(name)) {
            return Ok(name.clone());
        }
        let open = fitting
            .iter()
            .filter(|(fit, name)| !self.kept.contains(name) && !self.is_busy(name, &fit.spots));
        let chosen = match group.size {
            Some(_) => open.min_by_key(|(fit, _)| (&fit.domains, fit.rest)),
            // The number of further pods is unknown.
            None => open.max_by_key(|(fit, name)| {
                (std::cmp::Reverse(&fit.domains), fit.rest, std::cmp::Reverse(name))
            }),
        };
        if let Some((_, name)) = chosen {
            return Ok(name.clone());
        }
        if let Some((_, fabric)) = fitting.iter().find(|(fit, name)| self.is_busy(name, &fit.spots))
        {
            return Err(WaitingReason::Settling { fabric: fabric.clone() });
        }
        if let Some((_, fabric)) = fitting.into_iter().next() {
            return Err(WaitingReason::KeptFree { fabric });
        }
        let Some((fit, best)) = best else { return Err(WaitingReason::NoFabrics) };
        if let Some(fabric) = self.preempt(group, needs) {
            return Ok(fabric);
        }
        let at_most = self.protect(group, needs);
        Err(WaitingReason::NoRoom { best, fit, need: needs.total(), at_most, can_grow: None })
    }

    /// The fabric on which a group fits once pods of lower priority have given way: the one that was
    /// chosen before, otherwise the one where most of its pods fit without that.
    fn preempt(&mut self, group: &Group, needs: &GroupDemand<'_>) -> Option<String> {
        // The room of each domain is counted without preemption.
        if group.requires_domains() {
            return None;
        }
        let fitting = needs.with_preemption(&mut self.cluster);
        if let Some((name, _, _)) = fitting.iter().find(|(name, ..)| group.reserved() == Some(name))
        {
            return Some(name.clone());
        }
        let open = fitting.iter().filter(|(name, ..): &&(String, usize, usize)| {
            !self.kept.contains(name) && !self.is_busy(name, &needs.spots(&BTreeSet::new()))
        });
        let best = open.max_by_key(|(name, free, rest)| (*free, std::cmp::Reverse((*rest, name))));
        best.map(|(name, _, _)| name.clone())
    }

    /// Returns true if the scheduler is placing other pods on a fabric, of other kinds or on other
    /// nodes of it: it may choose other nodes for them than were counted.
    fn is_busy(&self, fabric: &str, spots: &HashSet<Spot>) -> bool {
        let there = self.settling.get(fabric);
        let with_labels = self.cluster.has_anti_affinity();
        there.is_some_and(|there| {
            !spots::are_alike(there, spots, with_labels) && !spots::are_apart(there, spots)
        })
    }

    /// Reserves a fabric for a group that has waited too long: among those that are large enough,
    /// the one with most room. Returns how many of its pods fit on the largest fabric when nothing
    /// is in use.
    fn protect(&mut self, group: &Group, needs: &GroupDemand<'_>) -> usize {
        let emptied = self.emptied.get_or_insert_with(|| self.cluster.emptied());
        let mut at_most = 0;
        let mut large = Vec::new();
        for (name, fabric) in emptied.fabrics_mut() {
            at_most = at_most.max(Self::most_on(group, needs, fabric));
            if Self::fit_on(group, needs, fabric).is_some() && !self.kept.contains(name) {
                large.push(name.clone());
            }
        }
        let waited = group.waits_since().map(|since| self.now.duration_since(since));
        if waited.is_some_and(|waited| waited >= self.rules.starves_after) {
            let cluster = &mut self.cluster;
            let room = large.into_iter().filter_map(|name| {
                let fabric = cluster.fabric(&name)?;
                Some((Self::most_on(group, needs, fabric), std::cmp::Reverse(name)))
            });
            if let Some((_, std::cmp::Reverse(name))) = room.max() {
                self.kept.insert(name);
            }
        }
        at_most
    }
}

fn names(members: Vec<&Member>) -> Vec<String> {
    members.into_iter().map(|member| member.name.clone()).collect()
}
